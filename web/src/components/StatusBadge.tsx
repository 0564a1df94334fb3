import type { Status } from "@/api/model";
import { cx } from "@/lib/cx";

const COLORS: Record<Status, string> = {
  queued: "text-queued",
  running: "text-running",
  scheduled: "text-scheduled",
  blocked: "text-blocked",
  completed: "text-completed",
  failed: "text-failed",
  cancelled: "text-cancelled",
};

/** A status by colour and by word: never by colour alone. */
export function StatusBadge({ status, cancelling = false }: { status: Status; cancelling?: boolean }) {
  return (
    <span
      className={cx("inline-flex items-center gap-1.5 whitespace-nowrap", COLORS[status] ?? "text-muted")}
    >
      <StatusDot status={status} />
      <span>{cancelling && status === "running" ? "cancelling" : status}</span>
    </span>
  );
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
