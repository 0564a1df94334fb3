/** The columns of the table of jobs, by the names that stand in the URL. */

import { createContext, type ReactNode, useContext } from "react";
import { type JobRow, priorityName, type Status } from "@/api/model";
import { Duration, Elapsed } from "@/components/Duration";
import { Meter } from "@/components/Meter";
import { StatusBadge } from "@/components/StatusBadge";
import { Time } from "@/components/Time";
import { cx } from "@/lib/cx";
import { shortId } from "@/lib/format";

export interface JobColumn {
  key: string;
  title: string;
  /** A CSS grid track. */
  width: string;
  /** Pixels below which the table rather scrolls sideways. */
  min: number;
  numeric?: boolean;
  cell: (row: JobRow) => ReactNode;
}

const none = <span className="text-faint">–</span>;

export function Priority({ value }: { value: number }) {
  return (
    <span
      className={value === 0 ? "text-accent" : value === 1 ? "text-muted" : undefined}
      title={`priority ${value}`}
    >
      {priorityName(value)}
    </span>
  );
}

/** Workers by id: people know them by name. */
export const WorkerNames = createContext<ReadonlyMap<string, string>>(new Map());

function WorkerCell({ id }: { id: string }) {
  const name = useContext(WorkerNames).get(id);
  return (
    <span className="clip block text-muted" title={name ? `${name}, ${id}` : id}>
      {name ?? shortId(id)}
    </span>
  );
}

function RunTime({ row }: { row: JobRow }) {
  if (row.status !== "running" || row.startedAt === null) return <Duration seconds={row.runSec} />;
  if (row.progress?.percent == null) return <Elapsed since={row.startedAt} />;
  return (
    <span className="flex items-center justify-end gap-2" title={row.progress.message ?? undefined}>
      <Meter value={row.progress.percent} max={100} label="Progress" className="w-12" />
      <Elapsed since={row.startedAt} />
    </span>
  );
}

/** What it said when it failed, or failed last. */
export function Failure({ row: { failure, status } }: { row: JobRow }) {
  if (failure === null) return none;
  const told = [failure.type, failure.message].filter(Boolean).join(": ");
  return (
    <span className={cx("clip block", status === "failed" ? "text-failed" : "text-muted")} title={told}>
      {told}
    </span>
  );
}

const text = (value: string | null) =>
  value === null || value === "" ? (
    none
  ) : (
    <span className="clip block" title={value}>
      {value}
    </span>
  );

export const COLUMNS: readonly JobColumn[] = [
  {
    key: "status",
    title: "Status",
    width: "100px",
    min: 100,
    cell: (row) => <StatusBadge job={row} />,
  },
  {
    key: "type",
    title: "Type",
    width: "minmax(110px, 1.2fr)",
    min: 110,
    cell: (row) => (
      <span className="clip block font-medium" title={row.type}>
        {row.type}
      </span>
    ),
  },
  { key: "name", title: "Name", width: "minmax(100px, 1.4fr)", min: 100, cell: (row) => text(row.name) },
  {
    key: "id",
    title: "Id",
    width: "86px",
    min: 86,
    cell: (row) => (
      <span className="clip block font-mono text-xs text-muted" title={row.id}>
        {shortId(row.id)}
      </span>
    ),
  },
  { key: "queue", title: "Queue", width: "minmax(80px, 0.8fr)", min: 80, cell: (row) => text(row.queue) },
  {
    key: "priority",
    title: "Priority",
    width: "60px",
    min: 60,
    cell: (row) => <Priority value={row.priority} />,
  },
  {
    key: "attempt",
    title: "Attempt",
    width: "72px",
    min: 72,
    numeric: true,
    cell: (row) =>
      row.attempt === 0 ? (
        none
      ) : (
        <span className={row.attempt > 1 ? undefined : "text-muted"}>
          {row.attempt}
          {row.maxAttempts !== null && <span className="text-faint">/{row.maxAttempts}</span>}
        </span>
      ),
  },
  {
    key: "threads",
    title: "Threads",
    width: "72px",
    min: 72,
    numeric: true,
    cell: (row) => row.threads ?? none,
  },
  {
    key: "worker",
    title: "Worker",
    width: "minmax(80px, 0.8fr)",
    min: 80,
    cell: (row) => (row.workerId === null ? none : <WorkerCell id={row.workerId} />),
  },
  {
    key: "error",
    title: "Error",
    width: "minmax(120px, 2fr)",
    min: 120,
    cell: (row) => <Failure row={row} />,
  },
  { key: "created", title: "Created", width: "80px", min: 80, cell: (row) => <Time at={row.createdAt} /> },
  { key: "due", title: "Due", width: "92px", min: 92, cell: (row) => <Time at={row.runAt} /> },
  { key: "started", title: "Started", width: "92px", min: 92, cell: (row) => <Time at={row.startedAt} /> },
  { key: "ended", title: "Ended", width: "92px", min: 92, cell: (row) => <Time at={row.completedAt} /> },
  {
    key: "wait",
    title: "Waited",
    width: "76px",
    min: 76,
    numeric: true,
    cell: (row) => <Duration seconds={row.queueSec} />,
  },
  {
    key: "run",
    title: "Ran",
    width: "108px",
    min: 108,
    numeric: true,
    cell: (row) => <RunTime row={row} />,
  },
];

// As many as fit beside the navigation on a small laptop; the others are a click away.
const USUAL = ["status", "type", "name", "id", "queue", "priority", "worker", "created", "wait", "run"];
/** Of jobs that failed, how they failed matters more than where they stood in line. */
const USUAL_FAILED = ["status", "type", "name", "id", "attempt", "worker", "error", "ended", "run"];

/** The columns of a list of jobs in these statuses, unless others were chosen. */
const usual = (statuses: readonly Status[]) =>
  statuses.length === 1 && statuses[0] === "failed" ? USUAL_FAILED : USUAL;

/** From the URL; what is unknown is left out, and the usual ones stand in for none. */
export function columnsOf(names: string | undefined, statuses: readonly Status[]): JobColumn[] {
  const wanted = names?.split(",") ?? [];
  const chosen = COLUMNS.filter(({ key }) => wanted.includes(key));
  return chosen.length ? chosen : COLUMNS.filter(({ key }) => usual(statuses).includes(key));
}

/** For the URL; nothing when they are the usual ones. */
export function columnNames(columns: readonly string[], statuses: readonly Status[]): string | undefined {
  const ordered = COLUMNS.map(({ key }) => key).filter((key) => columns.includes(key));
  return ordered.join() === usual(statuses).join() ? undefined : ordered.join();
}
