import type { Tick } from "@/api/schedules";
import { exact, plural } from "@/lib/format";

const COLORS: Record<Tick["outcome"], string> = {
  fired: "text-completed",
  skipped: "text-scheduled",
  missed: "text-failed",
};
/** Told apart by height as well as by colour. */
const HEIGHTS: Record<Tick["outcome"], number> = { fired: 1, skipped: 0.55, missed: 0.25 };
const PLACES = 30;
const STEP = 6;
const HEIGHT = 22;

/** The latest ticks, oldest first: full bars fired, half ones were skipped, stumps were missed. `ticks` has the newest first. */
export function TickLine({ ticks }: { ticks: readonly Tick[] }) {
  const shown = ticks.slice(0, PLACES).toReversed();
  if (shown.length === 0) return <span className="text-faint">none yet</span>;
  return (
    <svg role="img" aria-label={summary(shown)} width={PLACES * STEP} height={HEIGHT} className="max-w-full">
      {shown.map((tick, index) => {
        const height = HEIGHTS[tick.outcome] * HEIGHT;
        return (
          <rect
            key={`${tick.kind}/${tick.tick}`}
            data-outcome={tick.outcome}
            className={COLORS[tick.outcome]}
            x={index * STEP}
            y={HEIGHT - height}
            width={STEP - 2}
            height={height}
            rx={1}
            fill="currentColor"
          >
            <title>{tell(tick)}</title>
          </rect>
        );
      })}
    </svg>
  );
}

/** "fired, by hand · 2026-01-31 12:00:00.000 UTC" */
export function tell({ outcome, kind, reason, tick, last }: Tick): string {
  const how = kind === "trigger" ? ", by hand" : kind === "backfill" ? ", backfilled" : "";
  const why = reason ? ` (${reason})` : "";
  const until = last > tick ? ` to ${exact(last)}` : "";
  return `${outcome}${how}${why} · ${exact(tick)}${until}`;
}

/** "The last 12 ticks: 10 fired, 1 skipped, 1 missed" */
export function summary(ticks: readonly Tick[]): string {
  const of = (outcome: Tick["outcome"]) => ticks.filter((tick) => tick.outcome === outcome).length;
  const parts = (["fired", "skipped", "missed"] as const)
    .filter((outcome) => of(outcome) > 0)
    .map((outcome) => `${of(outcome)} ${outcome}`);
  return `The last ${plural(ticks.length, "record")} of ticks: ${parts.join(", ")}`;
}
