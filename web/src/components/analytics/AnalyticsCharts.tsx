import { useMemo } from "react";
import type { Point, Series } from "@/api/model";
import { Chart, type Line } from "@/components/Chart";
import { perSecond } from "@/components/overview/series";
import { Panel } from "@/components/Panel";
import type { Unit } from "@/components/scale";

const SYNC = "analytics";

interface Spec {
  title: string;
  lines: Line[];
  unit: Unit;
}

/** Throughput, waiting and running over the same time, with one cursor. */
export function AnalyticsCharts({ series }: { series: Series }) {
  const { points, stepSec } = series;
  const times = useMemo(() => points.map((point) => point.at / 1000), [points]);
  const charts = useMemo(() => chartsOf(points, stepSec, series.to), [points, stepSec, series.to]);
  const range = useMemo((): [number, number] => [series.from / 1000, series.to / 1000], [series]);
  return (
    <div className="grid gap-3 sm:gap-4 md:grid-cols-2">
      {charts.map(({ title, lines, unit }, index) => (
        <Panel key={title} title={title} flush className={index === 0 ? "pb-2 md:col-span-2" : "pb-2"}>
          <div className="px-2">
            <Chart
              label={title}
              times={times}
              lines={lines}
              unit={unit}
              sync={SYNC}
              range={range}
              height={index === 0 ? 200 : 160}
            />
          </div>
        </Panel>
      ))}
    </div>
  );
}

function chartsOf(points: Point[], stepSec: number, to: number): Spec[] {
  const perSec = perSecond(points, stepSec, to);
  const values = (value: (point: Point) => number | null) => points.map(value);
  return [
    {
      title: "Jobs per second",
      unit: "rate",
      lines: [
        { label: "submitted", color: "accent", values: perSec((point) => point.submitted) },
        { label: "completed", color: "completed", values: perSec((point) => point.completed), area: true },
        { label: "failed", color: "failed", values: perSec((point) => point.failed) },
        { label: "retried", color: "blocked", values: perSec((point) => point.retried), dashed: true },
      ],
    },
    {
      title: "Wait before a run",
      unit: "duration",
      lines: [
        { label: "median", color: "queued", values: values((point) => point.waitP50), area: true },
        { label: "p95", color: "scheduled", values: values((point) => point.waitP95) },
      ],
    },
    {
      title: "Run time",
      unit: "duration",
      lines: [
        { label: "median", color: "running", values: values((point) => point.runP50), area: true },
        { label: "p95", color: "scheduled", values: values((point) => point.runP95) },
      ],
    },
  ];
}
