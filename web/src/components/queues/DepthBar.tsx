import type { Status } from "@/api/model";
import { cx } from "@/lib/cx";
import { count } from "@/lib/format";

const PARTS: { status: Status; color: string }[] = [
  { status: "running", color: "bg-running" },
  { status: "queued", color: "bg-queued" },
  { status: "blocked", color: "bg-blocked" },
  { status: "scheduled", color: "bg-scheduled" },
];

/** What is in a queue and not over, by status; `max` is the deepest queue, so that they compare. */
export function DepthBar({ counts, max }: { counts: Record<Status, number>; max: number }) {
  const parts = PARTS.filter(({ status }) => counts[status] > 0);
  const text = parts.map(({ status }) => `${count(counts[status])} ${status}`).join(", ") || "empty";
  return (
    <div
      role="img"
      aria-label={text}
      title={text}
      className="flex h-2 w-full gap-px overflow-hidden rounded-full bg-line"
    >
      {parts.map(({ status, color }) => (
        <div
          key={status}
          className={cx("h-full min-w-[3px]", color)}
          style={{ width: `${(counts[status] / Math.max(1, max)) * 100}%` }}
        />
      ))}
    </div>
  );
}
