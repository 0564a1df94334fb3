import type { ReactNode } from "react";
import type { JobRow } from "@/api/model";
import { Duration, Elapsed } from "@/components/Duration";
import { Meter } from "@/components/Meter";
import { StatusDot } from "@/components/StatusBadge";
import { Time } from "@/components/Time";
import { shortId } from "@/lib/format";

interface JobFeedProps {
  rows: JobRow[];
  /** How a job is linked to; components know no URLs. */
  link: (row: JobRow, children: ReactNode) => ReactNode;
}

/** A few jobs, one line each. */
export function JobFeed({ rows, link }: JobFeedProps) {
  return (
    <ul className="pb-2">
      {rows.map((row) => (
        <li key={row.id} className="flex h-8 items-center gap-2.5 px-4 hover:bg-hover">
          <StatusDot status={row.status} />
          <span className="clip flex-1">
            {link(row, <span className="font-medium">{row.type}</span>)}
            <span className="ml-2 text-muted" title={row.id}>
              {row.name ?? shortId(row.id)}
            </span>
            {row.status === "failed" && row.failure && (
              <span className="ml-2 text-failed" title={row.failure.message}>
                {row.failure.message || row.failure.type}
              </span>
            )}
          </span>
          {row.status === "running" && row.progress?.percent != null && (
            <Meter value={row.progress.percent} max={100} label="Progress" className="w-16" />
          )}
          <span className="shrink-0 text-xs text-muted">
            {row.status === "running" && row.startedAt !== null ? (
              <Elapsed since={row.startedAt} />
            ) : (
              <Time at={row.completedAt ?? row.createdAt} />
            )}
          </span>
          {row.status !== "running" && row.runSec !== null && (
            <span className="w-16 shrink-0 text-right text-xs text-muted max-sm:hidden">
              <Duration seconds={row.runSec} />
            </span>
          )}
        </li>
      ))}
    </ul>
  );
}
