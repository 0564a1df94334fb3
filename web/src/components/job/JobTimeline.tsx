import { useMemo } from "react";
import type { Job } from "@/api/model";
import { Panel } from "@/components/Panel";
import { cx } from "@/lib/cx";
import { duration, exact, plural } from "@/lib/format";
import { type Bar, type BarKind, outcomeText, place, type Timeline, ticks, timeline } from "./timeline";

const ROWS_SHOWN = 12;

const BARS: Record<BarKind, string> = {
  delayed: "bg-[repeating-linear-gradient(135deg,var(--scheduled)_0_2px,transparent_2px_6px)] opacity-60",
  waited: "bg-queued/35",
  ran: "bg-running",
  "backed off": "bg-[repeating-linear-gradient(135deg,var(--blocked)_0_2px,transparent_2px_6px)] opacity-70",
  over: "bg-[repeating-linear-gradient(90deg,var(--line-strong)_0_3px,transparent_3px_7px)] h-px",
};

const RAN: Record<string, string> = {
  completed: "bg-completed",
  running: "bg-running",
  cancelled: "bg-cancelled",
  handed_back: "bg-cancelled",
  snoozed: "bg-cancelled",
};

/** Where the time went: one line per attempt, all on the same axis. */
export function JobTimeline({ job, now }: { job: Job; now: number }) {
  const made = useMemo(() => timeline(job, now), [job, now]);
  const hidden = Math.max(0, made.rows.length - ROWS_SHOWN);
  const span = (made.to - made.from) / 1000;
  return (
    <Panel
      title="Timeline"
      actions={<Totals totals={made.totals} ran={ranColor(made.rows.at(-1)?.outcome ?? null)} />}
    >
      <div className="flex flex-col gap-1.5">
        {hidden > 0 && <p className="text-xs text-muted">{plural(hidden, "earlier attempt")} not shown.</p>}
        {made.rows.slice(-ROWS_SHOWN).map((row) => (
          <div key={`${row.attempt}/${row.claimId}`} className="flex items-center gap-3">
            <span className="w-14 shrink-0 text-xs text-muted">
              {row.attempt > 0 ? `Try ${row.attempt}` : "Waited"}
            </span>
            <div className="relative h-5 min-w-0 flex-1 rounded-sm bg-sunken">
              {row.bars.map((bar) => (
                <TimelineBar key={`${bar.kind}/${bar.from}`} bar={bar} within={made} outcome={row.outcome} />
              ))}
            </div>
            <span
              className={cx(
                "w-24 shrink-0 text-xs leading-tight",
                row.outcome === "completed" ? "text-completed" : "text-muted",
              )}
            >
              {outcomeText(row.outcome)}
            </span>
          </div>
        ))}
        <Axis span={span} />
      </div>
    </Panel>
  );
}

/** A run is coloured by how it ended. */
const ranColor = (outcome: string | null) =>
  outcome === null ? "bg-running" : (RAN[outcome] ?? "bg-failed");

function TimelineBar({ bar, within, outcome }: { bar: Bar; within: Timeline; outcome: string | null }) {
  const { left, width } = place(bar, within);
  const length = duration((bar.to - bar.from) / 1000);
  const color = bar.kind === "ran" ? ranColor(outcome) : BARS[bar.kind];
  return (
    <div
      role="img"
      aria-label={`${bar.kind} ${length}`}
      title={`${bar.kind} ${length}${bar.open ? " so far" : ""}\n${exact(bar.from)} – ${bar.open ? "now" : exact(bar.to)}`}
      className={cx(
        "absolute top-1/2 h-3 min-w-[3px] -translate-y-1/2 rounded-[2px]",
        color,
        bar.open && bar.kind === "ran" && "pulse",
      )}
      style={{ left: `min(${left}%, calc(100% - 3px))`, width: `${width}%` }}
    />
  );
}

function Axis({ span }: { span: number }) {
  return (
    <div aria-hidden="true" className="flex gap-3">
      <span className="w-14 shrink-0" />
      <div className="relative h-4 min-w-0 flex-1 text-2xs text-faint">
        {ticks(span).map((at) => {
          const left = span > 0 ? (at / span) * 100 : 0;
          return (
            <span
              key={at}
              className={cx(
                "absolute whitespace-nowrap",
                left > 90 ? "-translate-x-full" : left > 4 && "-translate-x-1/2",
              )}
              style={{ left: `${left}%` }}
            >
              {at === 0 ? "0" : duration(at)}
            </span>
          );
        })}
      </div>
      <span className="w-24 shrink-0" />
    </div>
  );
}

const LEGEND: BarKind[] = ["delayed", "waited", "ran", "backed off"];

function Totals({ totals, ran }: { totals: Timeline["totals"]; ran: string }) {
  return (
    <dl className="flex flex-wrap justify-end gap-x-4 gap-y-0.5 text-xs">
      {LEGEND.filter((kind) => totals[kind] > 0).map((kind) => (
        <div key={kind} className="flex items-center gap-1.5">
          <dt className="flex items-center gap-1.5 text-muted">
            <span
              aria-hidden="true"
              className={cx("inline-block h-2.5 w-3 rounded-[2px]", kind === "ran" ? ran : BARS[kind])}
            />
            {kind}
          </dt>
          <dd className="font-medium">{duration(totals[kind])}</dd>
        </div>
      ))}
    </dl>
  );
}
