import { isRetrying, type JobRow, type Status } from "@/api/model";
import { useNow } from "@/lib/clock";
import { cx } from "@/lib/cx";
import { relative } from "@/lib/format";

const COLORS: Record<Status, string> = {
  queued: "text-queued",
  running: "text-running",
  scheduled: "text-scheduled",
  blocked: "text-blocked",
  completed: "text-completed",
  failed: "text-failed",
  cancelled: "text-cancelled",
};

type Standing = Pick<JobRow, "status" | "attempt" | "maxAttempts" | "runAt" | "cancelRequestedAt">;

/** How a job stands, by colour and by word: never by colour alone. */
export function StatusBadge({ job }: { job: Standing }) {
  const { status } = job;
  return (
    <span
      className={cx("inline-flex items-center gap-1.5 whitespace-nowrap", COLORS[status] ?? "text-muted")}
    >
      <StatusDot status={status} />
      {isRetrying(job) ? (
        <Retrying job={job} />
      ) : (
        <span>{job.cancelRequestedAt !== null && status === "running" ? "cancelling" : status}</span>
      )}
    </span>
  );
}

function Retrying({ job }: { job: Standing }) {
  const now = useNow();
  return <span title={nextAttempt(job, now)}>retrying</span>;
}

/** "attempt 2 of 4, in 5 s": what a job that backs off waits for. */
export function nextAttempt(
  { attempt, maxAttempts, runAt }: Pick<JobRow, "attempt" | "maxAttempts" | "runAt">,
  now: number,
): string {
  const which = `attempt ${attempt + 1}${maxAttempts === null ? "" : ` of ${maxAttempts}`}`;
  if (runAt === null) return which;
  return runAt - now < 1000 ? `${which}, now` : `${which}, ${relative(runAt, now)}`;
}

/** Shapes differ as well as colours: full when it ended, a ring while it waits, beating while it runs. */
export function StatusDot({ status }: { status: Status }) {
  const waits = status === "queued" || status === "scheduled" || status === "blocked";
  return (
    <span
      aria-hidden="true"
      className={cx(
        "inline-block size-2 shrink-0",
        COLORS[status] ?? "text-muted",
        status === "failed" ? "rounded-[2px]" : "rounded-full",
        waits ? "border-[1.5px] border-current" : "bg-current",
        status === "running" && "pulse",
      )}
    />
  );
}
