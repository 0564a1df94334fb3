import type { Bulk } from "@/api/model";
import { Button } from "@/components/Button";
import { Meter } from "@/components/Meter";
import { count } from "@/lib/format";

const DOING = { cancel: "Cancelling", retry: "Retrying", discard: "Discarding" };
const DONE = { cancel: "Cancelled", retry: "Retried", discard: "Discarded" };

interface BulkProgressProps {
  bulk: Bulk;
  onStop: () => void;
  onClose: () => void;
}

/** How far the server is with "all matching". */
export function BulkProgress({ bulk, onStop, onClose }: BulkProgressProps) {
  const running = bulk.status === "running";
  const total = `${count(bulk.total)}${bulk.totalCapped ? "+" : ""}`;
  return (
    <div
      role="status"
      className="flex flex-wrap items-center gap-x-3 gap-y-1 border-b border-line bg-panel px-4 py-2"
    >
      <span className="font-medium">
        {running ? DOING[bulk.action] : bulk.status === "stopped" ? "Stopped" : DONE[bulk.action]}
      </span>
      <Meter
        value={bulk.done}
        max={bulk.total}
        label="Done"
        tone={running ? "accent" : "good"}
        className="w-40 max-sm:w-full"
      />
      <span className="text-muted">
        {count(bulk.done)} of {total} looked at, {count(bulk.changed)} changed
      </span>
      <span className="ml-auto">
        {running ? (
          <Button size="sm" onClick={onStop}>
            Stop
          </Button>
        ) : (
          <Button size="sm" tone="ghost" icon="close" aria-label="Close" onClick={onClose} />
        )}
      </span>
    </div>
  );
}
