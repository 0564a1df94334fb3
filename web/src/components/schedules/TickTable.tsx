import type { ReactNode } from "react";
import type { Tick } from "@/api/schedules";
import { Time } from "@/components/Time";
import { shortId } from "@/lib/format";
import { inZone } from "./when";

interface TickTableProps {
  ticks: readonly Tick[];
  timezone: string;
  jobLink: (id: string, children: ReactNode) => ReactNode;
}

const COLORS: Record<Tick["outcome"], string> = {
  fired: "text-completed",
  skipped: "text-scheduled",
  missed: "text-failed",
};
const KINDS: Record<Tick["kind"], string> = { tick: "", trigger: "by hand", backfill: "backfilled" };

/** What became of the latest ticks, the newest first. */
export function TickTable({ ticks, timezone, jobLink }: TickTableProps) {
  if (ticks.length === 0) return <p className="px-4 pb-4 text-muted">There were none yet.</p>;
  return (
    <ul className="max-h-[520px] overflow-y-auto" aria-label="Ticks">
      {ticks.map((tick) => (
        <li
          key={`${tick.kind}/${tick.tick}`}
          className="flex flex-wrap items-baseline gap-x-3 border-t border-line px-4 py-1.5"
        >
          <span className={`w-16 font-medium ${COLORS[tick.outcome]}`}>{tick.outcome}</span>
          <span className="min-w-0 flex-1 basis-48">
            {inZone(tick.tick, timezone)}
            {tick.last > tick.tick && ` to ${inZone(tick.last, timezone)}`}
            <span className="text-muted">
              {KINDS[tick.kind] && `, ${KINDS[tick.kind]}`}
              {tick.reason && `, ${tick.reason}`}
            </span>
          </span>
          {tick.jobId !== null && (
            <code className="font-mono text-xs">{jobLink(tick.jobId, shortId(tick.jobId))}</code>
          )}
          <span className="text-xs text-muted">
            <Time at={tick.last} />
          </span>
        </li>
      ))}
    </ul>
  );
}
