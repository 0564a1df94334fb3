import type { ReactNode } from "react";
import type { Worker } from "@/api/model";
import { Elapsed } from "@/components/Duration";
import { Meter } from "@/components/Meter";
import { Time } from "@/components/Time";
import { served } from "@/components/workers/served";
import { cx } from "@/lib/cx";

interface WorkerCardProps {
  worker: Worker;
  now: number;
  /** Threads in use. */
  used: number;
  cells: ReactNode;
  actions: ReactNode;
}

const STATES: Record<string, string> = {
  live: "text-good",
  draining: "text-warn",
};

/** A silent worker is given up by the server; before that it is worth a look. */
const LATE_SEC = 15;

export function WorkerCard({ worker, now, used, cells, actions }: WorkerCardProps) {
  const ended = worker.status !== "live" && worker.status !== "draining";
  const late = !ended && now - worker.lastHeartbeatAt > LATE_SEC * 1000;
  return (
    <article
      aria-label={worker.name}
      data-worker={worker.name}
      className={cx(
        "flex min-w-0 flex-col gap-3 rounded-lg border border-line bg-panel p-4 shadow-low",
        ended && "opacity-80",
      )}
    >
      <header className="flex min-w-0 items-start justify-between gap-3">
        <div className="min-w-0">
          <div className="flex min-w-0 items-center gap-2">
            <h2 className="clip text-base font-semibold" title={worker.id}>
              {worker.name}
            </h2>
            <span
              className={cx(
                "inline-flex shrink-0 items-center gap-1.5 text-xs",
                STATES[worker.status] ?? "text-muted",
              )}
            >
              <span aria-hidden="true" className="size-2 rounded-full bg-current" />
              {worker.status}
            </span>
          </div>
          <p className="clip text-xs text-muted">
            {worker.endpoint ?? [worker.host, worker.pid && `pid ${worker.pid}`].filter(Boolean).join(", ")}
          </p>
        </div>
        {actions}
      </header>
      {!ended && (
        <>
          <div>
            <div className="mb-1 flex justify-between text-xs">
              <span className="text-muted">Threads</span>
              <span>
                {used} of {worker.threads} in use
              </span>
            </div>
            <Meter value={used} max={worker.threads} label={`Threads of ${worker.name} in use`} />
          </div>
          {cells}
        </>
      )}
      <dl className="mt-auto grid grid-cols-[auto_minmax(0,1fr)] gap-x-4 gap-y-0.5 text-xs">
        <dt className="text-muted">Heartbeat</dt>
        <dd className={cx(late && "font-medium text-warn")}>
          <Time at={worker.lastHeartbeatAt} />
          {late && ", late"}
        </dd>
        {!ended && (
          <>
            <dt className="text-muted">Up for</dt>
            <dd>
              <Elapsed since={worker.registeredAt} />
            </dd>
          </>
        )}
        <dt className="text-muted">Queues</dt>
        <dd className="clip">{worker.queues === null ? "all" : worker.queues.join(", ")}</dd>
        <dt className="text-muted">Types</dt>
        <dd className="clip" title={worker.types.join(", ")}>
          {served(worker)}
        </dd>
        {Object.keys(worker.labels).length > 0 && (
          <>
            <dt className="text-muted">Labels</dt>
            <dd className="wrap-any font-mono text-2xs leading-4">
              {Object.entries(worker.labels)
                .map(([name, value]) => `${name}=${value}`)
                .join(" ")}
            </dd>
          </>
        )}
      </dl>
    </article>
  );
}
