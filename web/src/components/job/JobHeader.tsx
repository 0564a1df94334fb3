import type { ReactNode } from "react";
import { isRetrying, type Job, priorityName } from "@/api/model";
import { CopyButton } from "@/components/CopyButton";
import { Duration, Elapsed } from "@/components/Duration";
import { nextAttempt, StatusBadge } from "@/components/StatusBadge";
import { Time } from "@/components/Time";
import { useNow } from "@/lib/clock";
import { shortId } from "@/lib/format";
import { type Fact, Facts } from "./Facts";

interface JobHeaderProps {
  job: Job;
  /** What can be done with it. */
  actions: ReactNode;
  /** The worker and the queue, linked; components know no URLs. */
  queue: ReactNode;
  worker: ReactNode;
}

/** What it is and how it stands. */
export function JobHeader({ job, actions, queue, worker }: JobHeaderProps) {
  const now = useNow();
  return (
    <section aria-label="Job" className="rounded-lg border border-line bg-panel p-4 shadow-low">
      <div className="flex flex-wrap items-start justify-between gap-x-4 gap-y-3">
        <div className="min-w-0 flex-1 basis-72">
          <div className="flex min-w-0 items-center gap-3">
            <h2 className="clip text-xl font-semibold" title={job.name ?? job.type}>
              {job.name || job.type}
            </h2>
            <span
              className="shrink-0 rounded-full border border-line px-2.5 py-0.5 font-medium"
              data-status={job.status}
            >
              <StatusBadge job={job} />
            </span>
            {isRetrying(job) && <span className="shrink-0 text-muted">{nextAttempt(job, now)}</span>}
          </div>
          <p className="mt-0.5 flex min-w-0 items-center gap-2 text-muted">
            {job.name && <span className="clip">{job.type}</span>}
            <code className="clip font-mono text-xs" title={job.id}>
              <span className="max-sm:hidden">{job.id}</span>
              <span className="sm:hidden">{shortId(job.id)}</span>
            </code>
            <CopyButton text={job.id} label="Copy the id" />
          </p>
        </div>
        <div className="flex flex-wrap gap-2">{actions}</div>
      </div>
      <div className="mt-4 border-t border-line pt-3">
        <Facts facts={factsOf(job, queue, worker)} />
      </div>
      {job.warnings.map((warning) => (
        <p key={warning} className="wrap-any mt-3 text-warn">
          {warning}
        </p>
      ))}
    </section>
  );
}

function factsOf(job: Job, queue: ReactNode, worker: ReactNode): Fact[] {
  const running = job.status === "running" && job.startedAt !== null;
  return [
    { name: "Queue", value: queue },
    { name: "Priority", value: priorityName(job.priority) },
    {
      name: "Attempt",
      value: job.maxAttempts === null ? job.attempt : `${job.attempt} of ${job.maxAttempts}`,
    },
    { name: "Worker", value: worker },
    { name: "Submitted", value: <Time at={job.createdAt} /> },
    ...(job.status === "scheduled" ? [{ name: "Due", value: <Time at={job.runAt} /> }] : []),
    { name: "Waited", value: <Duration seconds={job.queueSec} /> },
    {
      name: running ? "Running for" : "Ran",
      value:
        running && job.startedAt !== null ? (
          <Elapsed since={job.startedAt} />
        ) : (
          <Duration seconds={job.runSec} />
        ),
    },
    { name: "Ended", value: <Time at={job.completedAt} /> },
  ];
}
