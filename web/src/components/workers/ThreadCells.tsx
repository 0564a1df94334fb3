import type { CSSProperties, ReactNode } from "react";
import type { JobRow } from "@/api/model";
import { Duration } from "@/components/Duration";
import { cx } from "@/lib/cx";
import { shortId } from "@/lib/format";
import type { Cell } from "./cells";

interface ThreadCellsProps {
  cells: Cell[];
  kinds: ReadonlyMap<string, number>;
  now: number;
  /** How a job is linked to; components know no URLs. */
  link: (job: JobRow, className: string, style: CSSProperties, children: ReactNode) => ReactNode;
}

/** With many threads there is no room for words. */
const SMALL_FROM = 17;

/** A worker's threads: a cell each, in the colour of the type that runs there. */
export function ThreadCells({ cells, kinds, now, link }: ThreadCellsProps) {
  const threads = cells.reduce((sum, cell) => sum + cell.threads, 0);
  const small = threads >= SMALL_FROM;
  return (
    <ul
      aria-label="Threads"
      className={cx(
        "grid gap-1",
        small
          ? "grid-cols-[repeat(auto-fill,minmax(18px,1fr))]"
          : "grid-cols-[repeat(auto-fill,minmax(96px,1fr))]",
      )}
    >
      {cells.map((cell, index) => (
        <li
          key={cell.job?.id ?? index}
          className="min-w-0"
          style={{ gridColumn: `span ${Math.min(cell.threads, small ? 12 : 2)}` }}
        >
          {cell.job ? (
            <JobCell
              job={cell.job}
              threads={cell.threads}
              kind={kinds.get(cell.job.type) ?? 1}
              small={small}
              now={now}
              link={link}
            />
          ) : (
            <span
              title={cell.state === "busy" ? "Busy" : "Free"}
              className={cx(
                "block rounded-sm border border-dashed border-line-strong text-2xs text-faint",
                small ? "h-[18px]" : "h-11 px-2 py-1",
                cell.state === "busy" && "border-solid bg-hover",
              )}
            >
              <span className={cx(small && "sr-only")}>{cell.state}</span>
            </span>
          )}
        </li>
      ))}
    </ul>
  );
}

interface JobCellProps extends Omit<ThreadCellsProps, "cells" | "kinds"> {
  job: JobRow;
  threads: number;
  kind: number;
  small: boolean;
}

function JobCell({ job, threads, kind, small, now, link }: JobCellProps) {
  const color = `var(--kind-${kind})`;
  const running = job.startedAt === null ? null : Math.max(0, Math.floor((now - job.startedAt) / 1000));
  const style: CSSProperties = {
    background: small ? color : `color-mix(in srgb, ${color} 18%, var(--panel))`,
    borderLeftColor: color,
  };
  return link(
    job,
    cx(
      "block overflow-hidden rounded-sm border-l-[3px] hover:brightness-95",
      small ? "h-[18px]" : "h-11 px-2 py-1",
    ),
    style,
    small ? (
      <span className="sr-only">{job.type}</span>
    ) : (
      <>
        <span className="clip block text-xs font-medium text-text">
          {job.type}
          {threads > 1 && <span className="font-normal text-muted"> ×{threads}</span>}
        </span>
        <span className="clip flex justify-between gap-2 text-2xs text-muted">
          <span className="clip">{job.name ?? shortId(job.id)}</span>
          {running !== null && <Duration seconds={running} />}
        </span>
      </>
    ),
  );
}
