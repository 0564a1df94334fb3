import { useMemo } from "react";
import type { Point } from "@/api/model";
import { Chart, type Line } from "@/components/Chart";
import { Panel } from "@/components/Panel";
import type { Unit } from "@/components/scale";
import { perSecond } from "./series";

interface OverviewChartsProps {
  points: Point[];
  stepSec: number;
  /** Milliseconds since 1970. */
  from: number;
  to: number;
}

const SYNC = "overview";

/** Six charts over the same time, with one cursor. */
export function OverviewCharts({ points, stepSec, from, to }: OverviewChartsProps) {
  const times = useMemo(() => points.map((point) => point.at / 1000), [points]);
  const range: [number, number] = [from / 1000, to / 1000];
  const charts = useMemo(() => chartsOf(points, stepSec, to), [points, stepSec, to]);
  return (
    <div className="grid gap-3 sm:gap-4 md:grid-cols-2 xl:grid-cols-3">
      {charts.map(({ title, lines, unit }) => (
        <Panel key={title} title={title} flush className="pb-2">
          <div className="px-2">
            <Chart label={title} times={times} lines={lines} unit={unit} sync={SYNC} range={range} />
          </div>
        </Panel>
      ))}
    </div>
  );
}

interface ChartSpec {
  title: string;
  lines: Line[];
  unit: Unit;
}

function chartsOf(points: Point[], stepSec: number, now: number): ChartSpec[] {
  const rates = perSecond(points, stepSec, now);
  const values = (value: (point: Point) => number | null) => points.map(value);
  return [
    {
      title: "Jobs per second",
      unit: "rate",
      lines: [
        { label: "submitted", color: "accent", values: rates((point) => point.submitted) },
        { label: "completed", color: "completed", values: rates((point) => point.completed), area: true },
        { label: "failed", color: "failed", values: rates((point) => point.failed) },
      ],
    },
    {
      title: "Queue depth",
      unit: "count",
      lines: [{ label: "queued", color: "queued", values: values((point) => point.queueDepth), area: true }],
    },
    {
      title: "Threads",
      unit: "count",
      lines: [
        {
          label: "in use",
          color: "running",
          values: values((point) => point.threadsUsed),
          area: true,
          stepped: true,
        },
        { label: "total", color: "muted", values: values((point) => point.threads), stepped: true },
      ],
    },
    {
      title: "Wait",
      unit: "duration",
      lines: [
        { label: "median", color: "queued", values: values((point) => point.waitP50) },
        { label: "p95", color: "scheduled", values: values((point) => point.waitP95) },
      ],
    },
    {
      title: "Run time",
      unit: "duration",
      lines: [
        { label: "median", color: "running", values: values((point) => point.runP50) },
        { label: "p95", color: "scheduled", values: values((point) => point.runP95) },
      ],
    },
    {
      title: "Workers",
      unit: "count",
      lines: [
        {
          label: "total",
          color: "completed",
          values: values((point) => point.workers),
          stepped: true,
          area: true,
        },
        {
          label: "wanted",
          color: "accent",
          values: values((point) => point.wanted),
          stepped: true,
          dashed: true,
        },
      ],
    },
  ];
}
