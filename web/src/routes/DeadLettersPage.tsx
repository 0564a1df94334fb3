import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { changeDeadLetters, listDeadLetters } from "@/api/endpoints";
import type { DeadLetterGroup, JobRow } from "@/api/model";
import { deadLetterGroupsQuery, jobQuery, keys } from "@/api/queries";
import { Page } from "@/app/Page";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { CanaryNote } from "@/components/deadletters/CanaryNote";
import { GroupCard } from "@/components/deadletters/GroupCard";
import { GroupJobs } from "@/components/deadletters/GroupJobs";
import { canaryState, type GroupSort, sorted } from "@/components/deadletters/groups";
import { EmptyState } from "@/components/EmptyState";
import { ErrorNote } from "@/components/ErrorNote";
import { Panel } from "@/components/Panel";
import { RangePicker } from "@/components/RangePicker";
import { Skeleton } from "@/components/Skeleton";
import { toast } from "@/components/Toast";
import { useNow } from "@/lib/clock";
import { plural, shortId } from "@/lib/format";
import { usePolling } from "@/live/live";

const GROUPS = 100;
const JOBS_SHOWN = 10;
const SORTS: readonly GroupSort[] = ["latest", "most"];

export function DeadLettersPage() {
  const polling = usePolling();
  const groups = useQuery({ ...deadLetterGroupsQuery(GROUPS), refetchInterval: polling });
  const [sort, setSort] = useState<GroupSort>("latest");
  if (!groups.data)
    return (
      <Page>
        {groups.error ? (
          <ErrorNote error={groups.error} onRetry={() => void groups.refetch()} />
        ) : (
          <>
            <Skeleton className="h-32 rounded-lg" />
            <Skeleton className="h-32 rounded-lg" />
          </>
        )}
      </Page>
    );
  const { totalGroups, totalJobs } = groups.data;
  if (groups.data.groups.length === 0)
    return (
      <Page>
        <Panel>
          <EmptyState
            icon="deadLetters"
            title="No dead letters"
            command={`stoker submit fail '{"message": "on purpose"}' --max-attempts 1`}
          >
            Jobs that failed for good come here, grouped by how they failed. To see one:
          </EmptyState>
        </Panel>
      </Page>
    );
  return (
    <Page>
      <div className="flex flex-wrap items-center justify-between gap-3">
        <p className="text-muted">
          {plural(totalJobs, "job")} failed for good in {plural(totalGroups, "way")}
          {totalGroups > groups.data.groups.length && `; the latest ${groups.data.groups.length} are shown`}
        </p>
        <RangePicker label="Order" choices={SORTS} value={sort} onChange={setSort} />
      </div>
      {sorted(groups.data.groups, sort).map((group) => (
        <Group key={group.fingerprint} group={group} />
      ))}
    </Page>
  );
}

function Group({ group }: { group: DeadLetterGroup }) {
  const { group: opened } = useSearch({ from: "/dead-letters" });
  const navigate = useNavigate({ from: "/dead-letters" });
  const now = useNow();
  const [canary, setCanary] = useState<string | null>(null);
  const open = opened === group.fingerprint;
  return (
    <GroupCard
      group={group}
      now={now}
      open={open}
      onToggle={() =>
        void navigate({ search: { group: open ? undefined : group.fingerprint }, replace: true })
      }
      actions={<Actions group={group} onCanary={setCanary} />}
      canary={canary !== null && <Canary id={canary} />}
    >
      <Jobs group={group} />
    </GroupCard>
  );
}

const jobLink = (row: Pick<JobRow, "id">, children: ReactNode) => (
  <Link to="/jobs/$id" params={{ id: row.id }} className="hover:underline">
    {children}
  </Link>
);

function Jobs({ group }: { group: DeadLetterGroup }) {
  const { fingerprint, count } = group;
  const jobs = useQuery({
    queryKey: [...keys.deadLetters, "jobs", fingerprint],
    queryFn: ({ signal }) => listDeadLetters({ fingerprint }, { limit: JOBS_SHOWN }, signal),
  });
  if (jobs.error && !jobs.data)
    return (
      <div className="p-4">
        <ErrorNote error={jobs.error} onRetry={() => void jobs.refetch()} />
      </div>
    );
  if (!jobs.data) return <Skeleton className="m-4 h-16" />;
  return (
    <>
      <GroupJobs rows={jobs.data} link={jobLink} />
      {count > JOBS_SHOWN && (
        <p className="border-t border-line px-4 py-2 pl-10 text-xs">
          <Link
            to="/jobs"
            search={{ q: `status:failed fingerprint:${fingerprint}` }}
            className="text-accent hover:underline"
          >
            All {plural(count, "job")}
          </Link>
        </p>
      )}
    </>
  );
}

/** The job that was run again, as it goes; the stream refetches it as it changes. */
function Canary({ id }: { id: string }) {
  const polling = usePolling();
  const job = useQuery({ ...jobQuery(id), refetchInterval: polling });
  const state = job.data ? canaryState(job.data.status, job.data.attempt) : "waiting";
  return <CanaryNote state={state} job={jobLink({ id }, <code className="font-mono">{shortId(id)}</code>)} />;
}

function Actions({ group, onCanary }: { group: DeadLetterGroup; onCanary: (id: string) => void }) {
  const client = useQueryClient();
  const [asking, setAsking] = useState(false);
  const { fingerprint, count, sampleJobId } = group;
  const refetch = () => client.invalidateQueries({ queryKey: keys.deadLetters });
  const canary = useMutation({
    mutationFn: () => changeDeadLetters("replay", { ids: [sampleJobId] }),
    onSuccess: (changed) => {
      if (changed === 0) return toast.done("It is no dead letter any more", "Somebody else was faster.");
      void client.invalidateQueries({ queryKey: keys.job(sampleJobId) });
      onCanary(sampleJobId);
    },
    onError: toast.error,
    onSettled: refetch,
  });
  const retry = useMutation({
    mutationFn: () => changeDeadLetters("replay", { filter: { fingerprint } }),
    onSuccess: (changed) => toast.done(`${plural(changed, "job")} queued again`),
    onError: toast.error,
    onSettled: refetch,
  });
  const discard = useMutation({
    mutationFn: () => changeDeadLetters("discard", { filter: { fingerprint } }),
    onSuccess: (changed) => toast.done(`${plural(changed, "job")} discarded`),
    onError: toast.error,
    onSettled: () => {
      setAsking(false);
      return refetch();
    },
  });
  return (
    <>
      <Button size="sm" icon="play" busy={canary.isPending} onClick={() => canary.mutate()}>
        Retry one as a canary
      </Button>
      <Button size="sm" icon="retry" busy={retry.isPending} onClick={() => retry.mutate()}>
        {count === 1 ? "Retry" : `Retry all ${plural(count, "job")}`}
      </Button>
      <Button size="sm" tone="danger" icon="close" onClick={() => setAsking(true)}>
        Discard
      </Button>
      {asking && (
        <ConfirmDialog
          title="Discard this group?"
          confirm={`Discard ${plural(count, "job")}`}
          danger
          busy={discard.isPending}
          onConfirm={() => discard.mutate()}
          onClose={() => setAsking(false)}
        >
          <p>
            {plural(count, "job")} of <b>{group.type}</b> leave the dead letters. They stay failed and can
            still be found among the jobs, and retried one by one.
          </p>
        </ConfirmDialog>
      )}
    </>
  );
}
