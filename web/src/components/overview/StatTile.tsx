import type { ReactNode } from "react";
import { cx } from "@/lib/cx";
import { Trend } from "./Trend";

interface StatTileProps {
  label: string;
  value: ReactNode;
  unit?: string | undefined;
  /** Below the number. */
  note?: ReactNode;
  tone?: "bad" | "warn" | undefined;
  /** The number was true once, and whether it still is nobody knows. */
  stale?: boolean;
  trend?: readonly number[] | undefined;
  /** The token of the trend's colour. */
  trendTone?: "running" | "completed" | "failed" | "queued" | "accent";
}

/** One number that people look at first. */
export function StatTile(props: StatTileProps) {
  const { label, value, unit, note, trend, trendTone = "queued", stale = false } = props;
  const tone = stale ? undefined : props.tone;
  return (
    <div
      data-stale={stale || undefined}
      className={cx(
        "relative flex min-h-24 flex-col overflow-hidden rounded-lg border bg-panel px-4 py-3",
        stale ? "border-dashed border-line-strong" : "border-line shadow-low",
      )}
    >
      <dt className="clip text-xs text-muted">{label}</dt>
      <dd className="flex min-w-0 flex-1 flex-col">
        <span
          className={cx(
            "mt-0.5 text-2xl font-semibold tracking-tight whitespace-nowrap",
            stale && "text-faint",
            tone === "bad" && "text-bad",
            tone === "warn" && "text-warn",
          )}
        >
          {value}
          {unit && <span className="ml-1 text-sm font-normal text-muted">{unit}</span>}
        </span>
        {note && <span className="clip relative z-10 mt-auto text-xs text-muted">{note}</span>}
      </dd>
      {trend && !stale && <Trend values={trend} tone={trendTone} />}
    </div>
  );
}
