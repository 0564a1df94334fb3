import type { ReactNode } from "react";
import type { Queue, Status } from "@/api/model";
import { Duration } from "@/components/Duration";
import { Sparkline } from "@/components/Sparkline";
import { StatusDot } from "@/components/StatusBadge";
import { Time } from "@/components/Time";
import { cx } from "@/lib/cx";
import { compact, rate } from "@/lib/format";
import { DepthBar } from "./DepthBar";
import type { Rates } from "./queueRates";

interface QueueCardProps {
  queue: Queue;
  rates: Rates | null;
  /** Of the deepest queue. */
  max: number;
  title: ReactNode;
  actions: ReactNode;
  /** A number that leads to its jobs. */
  link: (status: Status, children: ReactNode) => ReactNode;
}

const WAITING: Status[] = ["queued", "running", "scheduled", "blocked"];
const ENDED: Status[] = ["completed", "failed", "cancelled"];

export function QueueCard({ queue, rates, max, title, actions, link }: QueueCardProps) {
  return (
    <article
      aria-label={queue.name}
      data-queue={queue.name}
      className={cx(
        "flex min-w-0 flex-col gap-3 rounded-lg border bg-panel p-4 shadow-low",
        queue.paused ? "border-warn" : "border-line",
      )}
    >
      <header className="flex min-w-0 items-center justify-between gap-3">
        <div className="flex min-w-0 items-center gap-2.5">
          <h2 className="clip text-base font-semibold">{title}</h2>
          {queue.paused && (
            <span className="shrink-0 rounded-full border border-warn px-1.5 text-2xs leading-4 font-medium text-warn">
              paused{queue.pausedAt !== null && " "}
              {queue.pausedAt !== null && <Time at={queue.pausedAt} />}
            </span>
          )}
        </div>
        {actions}
      </header>
      <DepthBar counts={queue.counts} max={max} />
      <dl className="grid grid-cols-4 gap-x-3 max-sm:grid-cols-2 max-sm:gap-y-2">
        {WAITING.map((status) => (
          <div key={status} className="min-w-0">
            <dt className="flex items-center gap-1.5 text-xs text-muted">
              <StatusDot status={status} />
              {status}
            </dt>
            <dd className="text-lg font-semibold">{link(status, compact(queue.counts[status]))}</dd>
          </div>
        ))}
      </dl>
      <div className="grid grid-cols-[1fr_1fr_1fr_auto] items-end gap-x-3 border-t border-line pt-3 max-sm:grid-cols-3">
        <Rate name="In" value={rates && rate(rates.submitted)} unit="/s" />
        <Rate name="Out" value={rates && rate(rates.ended)} unit="/s" />
        <div className="min-w-0">
          <p className="text-xs text-muted">Oldest waits</p>
          <p className="font-medium">
            <Duration seconds={queue.oldestQueuedAgeSec} />
          </p>
        </div>
        <Sparkline
          values={rates?.trend ?? []}
          label={`Jobs of ${queue.name} that ended in each of the last 30 seconds`}
          width={90}
          height={28}
          className="text-completed max-sm:hidden"
        />
      </div>
      <p className="flex flex-wrap gap-x-4 text-xs text-muted">
        {ENDED.map((status) => (
          <span key={status}>{link(status, `${compact(queue.counts[status])} ${status}`)}</span>
        ))}
      </p>
    </article>
  );
}

function Rate({ name, value, unit }: { name: string; value: string | null; unit: string }) {
  return (
    <div className="min-w-0">
      <p className="text-xs text-muted">{name}</p>
      <p className="font-medium">
        {value ?? "–"}
        {value !== null && <span className="text-xs font-normal text-muted"> {unit}</span>}
      </p>
    </div>
  );
}
