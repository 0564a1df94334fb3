import { useEffect, useMemo, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { tokenColor, useIsDark } from "@/lib/theme";
import { isolated, SCALES, type Unit } from "./scale";

export interface Line {
  label: string;
  /** A design token: `running`, `failed`, `accent`, … */
  color: string;
  values: (number | null)[];
  /** Filled below. */
  area?: boolean;
  dashed?: boolean;
  /** Steps instead of slopes, for counts of things. */
  stepped?: boolean;
}

interface ChartProps {
  /** What it shows, for those who do not see it. */
  label: string;
  /** Seconds since 1970, ascending. */
  times: number[];
  lines: Line[];
  /** What the values are: how they are written, and where the axis has marks. */
  unit: Unit;
  height?: number;
  /** Charts with the same key share their cursor. */
  sync?: string;
  /** The range of time in seconds, if it is more than the points. */
  range?: [number, number];
}

const FONT = "11px ui-sans-serif, system-ui, sans-serif";

export function Chart({ label, times, lines, unit, height = 160, sync, range }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const dark = useIsDark();
  const latest = useRef({ range });
  latest.current = { range };
  const data = useMemo(
    () => [times, ...lines.map((line) => line.values)] as uPlot.AlignedData,
    [times, lines],
  );
  const dataRef = useRef(data);
  dataRef.current = data;
  // A new chart only when its looks change; new values go into the one that is there.
  const looks = JSON.stringify(lines.map(({ values: _, ...look }) => look));

  // biome-ignore lint/correctness/useExhaustiveDependencies: `dark` changes what the tokens resolve to.
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const options = optionsOf(JSON.parse(looks), unit, element.clientWidth, height, sync, latest);
    const chart = new uPlot(options, dataRef.current, element);
    plot.current = chart;
    const observer = new ResizeObserver(() => {
      if (element.clientWidth > 0) chart.setSize({ width: element.clientWidth, height });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      chart.destroy();
      plot.current = null;
    };
  }, [looks, unit, height, sync, dark]);

  useEffect(() => {
    plot.current?.setData(data);
  }, [data]);

  return <div ref={box} role="img" aria-label={label} className="w-full min-w-0 overflow-hidden" />;
}

const two = (value: number) => String(value).padStart(2, "0");
const DAY = 86_400;

/** 12:05 within a day, 1/31 where the steps are long. */
function tick(at: number, step: number): string {
  const date = new Date(at * 1000);
  const day = `${date.getMonth() + 1}/${date.getDate()}`;
  if (step >= DAY) return day;
  const time = `${two(date.getHours())}:${two(date.getMinutes())}`;
  return step < 60 ? `${time}:${two(date.getSeconds())}` : time;
}

function moment(at: number): string {
  const date = new Date(at * 1000);
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return Date.now() / 1000 - at > DAY / 2 ? `${date.getMonth() + 1}/${date.getDate()} ${time}` : time;
}

type Latest = { current: { range: [number, number] | undefined } };

function optionsOf(
  looks: Omit<Line, "values">[],
  unit: Unit,
  width: number,
  height: number,
  sync: string | undefined,
  latest: Latest,
): uPlot.Options {
  const muted = tokenColor("muted");
  const grid = tokenColor("line");
  const axis: uPlot.Axis = {
    stroke: muted,
    font: FONT,
    grid: { stroke: grid, width: 1 },
    ticks: { show: false },
  };
  return {
    width: Math.max(width, 50),
    height,
    padding: [8, 16, 0, 0],
    legend: { show: true, live: true },
    cursor: {
      points: { size: 6 },
      drag: { x: false, y: false },
      ...(sync ? { sync: { key: sync } } : {}),
    },
    scales: {
      x: { time: true, range: (_, min, max) => latest.current.range ?? [min, max] },
      y: { range: (_, __, max) => [0, max > 0 ? max * 1.12 : 1] },
    },
    axes: [
      {
        ...axis,
        size: 26,
        space: 64,
        values: (_, splits, __, ___, step) => splits.map((at) => tick(at, step)),
      },
      {
        ...axis,
        size: 54,
        space: 32,
        incrs: SCALES[unit].steps,
        values: (_, splits) => SCALES[unit].marks(splits),
      },
    ],
    series: [
      { value: (_, at) => (at === null ? "" : moment(at)) },
      ...looks.map((look) => seriesOf(look, unit)),
    ],
  };
}

function seriesOf(look: Omit<Line, "values">, unit: Unit): uPlot.Series {
  const color = tokenColor(look.color);
  return {
    label: look.label,
    stroke: color,
    width: 1.5,
    points: {
      size: 5,
      fill: color,
      show: false,
      // What has nothing beside it is no line, and would not be seen.
      filter: (plot, index) => isolated(plot.data[index] as (number | null)[]),
    },
    spanGaps: false,
    // Without a cursor the legend tells the latest.
    value: (plot, value, index, at) => {
      const shown = at === null || at === undefined ? plot.data[index]?.at(-1) : value;
      return shown === null || shown === undefined ? "–" : SCALES[unit].format(shown);
    },
    ...(look.area ? { fill: color.replace(/^rgb\((.*)\)$/, "rgba($1, 0.12)") } : {}),
    ...(look.dashed ? { dash: [5, 4] } : {}),
    ...(look.stepped && uPlot.paths.stepped ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}),
  };
}
