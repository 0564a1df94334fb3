import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { setQueuePaused } from "@/api/endpoints";
import type { Queue, Status } from "@/api/model";
import { keys, queuesQuery } from "@/api/queries";
import { Page } from "@/app/Page";
import { Button } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { ErrorNote } from "@/components/ErrorNote";
import { Panel } from "@/components/Panel";
import { QueueCard } from "@/components/queues/QueueCard";
import { ratesOf } from "@/components/queues/queueRates";
import { useQueueHistory } from "@/components/queues/useQueueRates";
import { Skeleton } from "@/components/Skeleton";
import { toast } from "@/components/Toast";
import { plural } from "@/lib/format";
import { usePolling } from "@/live/live";
import { quote } from "@/search/language";

const depth = ({ counts }: Queue) => counts.queued + counts.running + counts.scheduled + counts.blocked;

export function QueuesPage() {
  const polling = usePolling();
  const queues = useQuery({ ...queuesQuery(), refetchInterval: polling });
  const history = useQueueHistory();
  if (!queues.data)
    return (
      <Page>
        {queues.error ? (
          <ErrorNote error={queues.error} onRetry={() => void queues.refetch()} />
        ) : (
          <div className="grid gap-3 sm:gap-4 md:grid-cols-2 xl:grid-cols-3">
            <Skeleton className="h-52 rounded-lg" />
            <Skeleton className="h-52 rounded-lg" />
          </div>
        )}
      </Page>
    );
  if (queues.data.length === 0)
    return (
      <Page>
        <Panel>
          <EmptyState
            icon="queues"
            title="No queues yet"
            command={`stoker submit echo '{"hello": "world"}' --queue mail`}
          >
            A queue is there as soon as a job names it.
          </EmptyState>
        </Panel>
      </Page>
    );
  const sorted = queues.data.toSorted((a, b) => a.name.localeCompare(b.name));
  const max = Math.max(1, ...sorted.map(depth));
  const paused = sorted.filter((queue) => queue.paused).length;
  return (
    <Page>
      <p className="text-muted">
        {plural(sorted.length, "queue")}
        {paused > 0 && `, ${paused} paused`}
      </p>
      <div className="grid gap-3 sm:gap-4 md:grid-cols-2 xl:grid-cols-3">
        {sorted.map((queue) => (
          <QueueCard
            key={queue.name}
            queue={queue}
            rates={ratesOf(history, queue.name)}
            max={max}
            title={
              <Link to="/jobs" search={{ q: `queue:${quote(queue.name)}` }} className="hover:underline">
                {queue.name}
              </Link>
            }
            actions={<Pause queue={queue} />}
            link={(status, children) => jobsLink(queue.name, status, children)}
          />
        ))}
      </div>
    </Page>
  );
}

const jobsLink = (queue: string, status: Status, children: ReactNode) => (
  <Link to="/jobs" search={{ q: `queue:${quote(queue)} status:${status}` }} className="hover:underline">
    {children}
  </Link>
);

function Pause({ queue }: { queue: Queue }) {
  const client = useQueryClient();
  const change = useMutation({
    mutationFn: () => setQueuePaused(queue.name, !queue.paused),
    onSuccess: (next) => {
      client.setQueryData<Queue[]>(keys.queues, (all) =>
        all?.map((one) => (one.name === next.name ? next : one)),
      );
      if (next.paused) toast.done(`${next.name} is paused`, "What runs goes on; nothing new starts.");
      else toast.done(`${next.name} goes on`);
    },
    onError: toast.error,
  });
  return (
    <Button
      size="sm"
      tone={queue.paused ? "primary" : "plain"}
      icon={queue.paused ? "play" : "pause"}
      busy={change.isPending}
      onClick={() => change.mutate()}
      aria-label={`${queue.paused ? "Resume" : "Pause"} ${queue.name}`}
    >
      {queue.paused ? "Resume" : "Pause"}
    </Button>
  );
}
