import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type CSSProperties, type ReactNode, useMemo, useState } from "react";
import { drainWorker } from "@/api/endpoints";
import type { JobRow, Worker } from "@/api/model";
import { jobsTopQuery, keys, workersQuery } from "@/api/queries";
import { Page } from "@/app/Page";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { EmptyState } from "@/components/EmptyState";
import { ErrorNote } from "@/components/ErrorNote";
import { Panel } from "@/components/Panel";
import { Skeleton } from "@/components/Skeleton";
import { toast } from "@/components/Toast";
import { byWorker, cellsOf, kindsOf, usedOf } from "@/components/workers/cells";
import { ThreadCells } from "@/components/workers/ThreadCells";
import { WorkerCard } from "@/components/workers/WorkerCard";
import { useNow } from "@/lib/clock";
import { count, plural } from "@/lib/format";
import { usePolling } from "@/live/live";

const JOBS_SHOWN = 1000;

const isThere = ({ status }: Worker) => status === "live" || status === "draining";

const link = (job: JobRow, className: string, style: CSSProperties, children: ReactNode) => (
  <Link
    to="/jobs/$id"
    params={{ id: job.id }}
    preload={false}
    title={`${job.type}${job.name ? `, ${job.name}` : ""}\n${job.id}`}
    className={className}
    style={style}
  >
    {children}
  </Link>
);

export function WorkersPage() {
  const polling = usePolling();
  const workers = useQuery({ ...workersQuery(), refetchInterval: polling });
  if (workers.data) return <Loaded workers={workers.data} />;
  return (
    <Page>
      {workers.error ? (
        <ErrorNote error={workers.error} onRetry={() => void workers.refetch()} />
      ) : (
        <div className="grid gap-3 sm:gap-4 md:grid-cols-2 xl:grid-cols-3">
          <Skeleton className="h-64 rounded-lg" />
          <Skeleton className="h-64 rounded-lg" />
        </div>
      )}
    </Page>
  );
}

function Loaded({ workers }: { workers: Worker[] }) {
  const polling = usePolling();
  const there = workers.filter(isThere).toSorted((a, b) => a.name.localeCompare(b.name));
  const ended = workers.filter((worker) => !isThere(worker));
  const threads = there.reduce((sum, worker) => sum + worker.threads, 0);
  // Every running job at once: one request, however many workers there are.
  const limit = Math.min(JOBS_SHOWN, Math.max(50, Math.ceil(threads / 50) * 50));
  const running = useQuery({
    ...jobsTopQuery({ status: ["running"] }, limit),
    refetchInterval: polling,
    placeholderData: (before) => before,
  });
  const jobs = useMemo(() => byWorker(running.data?.rows ?? []), [running.data]);
  const used = there.reduce((sum, worker) => sum + usedOf(cellsOf(worker, jobs.get(worker.id) ?? [])), 0);
  const kinds = useMemo(() => kindsOf((running.data?.rows ?? []).map(({ type }) => type)), [running.data]);
  return (
    <Page>
      <div className="flex flex-wrap items-center justify-between gap-x-6 gap-y-2">
        <p className="text-muted">
          {plural(there.length, "worker")}, {running.data ? count(used) : "–"} of {plural(threads, "thread")}{" "}
          in use
        </p>
        <Legend kinds={kinds} />
      </div>
      {there.length === 0 && (
        <Panel>
          <EmptyState
            icon="workers"
            title="No worker is connected"
            command={`stoker worker --url ${window.location.origin} --threads 4`}
          >
            Jobs wait until there is one. Start it here or on another machine.
          </EmptyState>
        </Panel>
      )}
      <div className="grid items-stretch gap-3 sm:gap-4 md:grid-cols-2 xl:grid-cols-3">
        {there.map((worker) => (
          <Card key={worker.id} worker={worker} jobs={jobs.get(worker.id) ?? []} kinds={kinds} />
        ))}
      </div>
      {ended.length > 0 && (
        <details className="group">
          <summary className="py-1 text-sm text-muted select-none">
            {plural(ended.length, "worker")} ended a short while ago
          </summary>
          <div className="mt-2 grid gap-3 sm:gap-4 md:grid-cols-2 xl:grid-cols-3">
            {ended.map((worker) => (
              <Card key={worker.id} worker={worker} jobs={[]} kinds={kinds} />
            ))}
          </div>
        </details>
      )}
    </Page>
  );
}

function Legend({ kinds }: { kinds: ReadonlyMap<string, number> }) {
  if (kinds.size === 0) return null;
  return (
    <ul aria-label="Types that run" className="flex min-w-0 flex-wrap gap-x-4 gap-y-1 text-xs">
      {[...kinds].slice(0, 12).map(([type, kind]) => (
        <li key={type} className="flex min-w-0 items-center gap-1.5">
          <span
            aria-hidden="true"
            className="size-2.5 shrink-0 rounded-[2px]"
            style={{ background: `var(--kind-${kind})` }}
          />
          <span className="clip max-w-48">{type}</span>
        </li>
      ))}
    </ul>
  );
}

interface CardProps {
  worker: Worker;
  jobs: JobRow[];
  kinds: ReadonlyMap<string, number>;
}

function Card({ worker, jobs, kinds }: CardProps) {
  const now = useNow();
  const cells = useMemo(() => cellsOf(worker, jobs), [worker, jobs]);
  return (
    <WorkerCard
      worker={worker}
      now={now}
      used={usedOf(cells)}
      cells={<ThreadCells cells={cells} kinds={kinds} now={now} link={link} />}
      actions={worker.status === "live" && <Drain worker={worker} running={jobs.length} />}
    />
  );
}

function Drain({ worker, running }: { worker: Worker; running: number }) {
  const client = useQueryClient();
  const [asking, setAsking] = useState(false);
  const drain = useMutation({
    mutationFn: () => drainWorker(worker.id),
    onSuccess: (next) => {
      client.setQueryData<Worker[]>(keys.workers, (all) =>
        all?.map((one) => (one.id === next.id ? next : one)),
      );
      toast.done(`${worker.name} drains`, "It takes no more jobs and leaves when its last one has ended.");
    },
    onError: toast.error,
    onSettled: () => setAsking(false),
  });
  return (
    <>
      <Button size="sm" icon="drain" onClick={() => setAsking(true)} aria-label={`Drain ${worker.name}`}>
        Drain
      </Button>
      {asking && (
        <ConfirmDialog
          title={`Drain ${worker.name}?`}
          confirm="Drain the worker"
          busy={drain.isPending}
          onConfirm={() => drain.mutate()}
          onClose={() => setAsking(false)}
        >
          It takes no more jobs; {running > 0 ? `the ${plural(running, "job")} it runs` : "what it runs"} goes
          on to its end. This cannot be taken back: to use it again, start it again.
        </ConfirmDialog>
      )}
    </>
  );
}
