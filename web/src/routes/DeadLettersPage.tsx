import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type FocusEvent, type ReactNode, useRef, useState } from "react";
import { changeDeadLetters, listDeadLetters } from "@/api/endpoints";
import type { DeadLetterGroup, DeadLetterGroups, JobRow } from "@/api/model";
import { deadLetterGroupsQuery, jobQuery, keys } from "@/api/queries";
import { Page } from "@/app/Page";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { CanaryNote } from "@/components/deadletters/CanaryNote";
import { GroupCard } from "@/components/deadletters/GroupCard";
import { GroupJobs } from "@/components/deadletters/GroupJobs";
import { canaryState, type GroupSort, held, sorted } from "@/components/deadletters/groups";
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
  const [discarding, setDiscarding] = useState<DeadLetterGroup | null>(null);
  const polling = usePolling();
  const groups = useQuery({ ...deadLetterGroupsQuery(GROUPS), refetchInterval: polling });
  const current = groups.data?.groups.find(({ fingerprint }) => fingerprint === discarding?.fingerprint);
  return (
    <Page>
      {groups.data ? (
        <Groups found={groups.data} hold={discarding !== null} onDiscard={setDiscarding} />
      ) : groups.error ? (
        <ErrorNote error={groups.error} onRetry={() => void groups.refetch()} />
      ) : (
        <>
          <Skeleton className="h-32 rounded-lg" />
          <Skeleton className="h-32 rounded-lg" />
        </>
      )}
      {/* Not in the list, which changes while the question is open: it is about this kind of failure and no other. */}
      {discarding && <DiscardDialog group={current ?? discarding} onClose={() => setDiscarding(null)} />}
    </Page>
  );
}

interface GroupsProps {
  found: DeadLetterGroups;
  /** Nothing may move. */
  hold: boolean;
  onDiscard: (group: DeadLetterGroup) => void;
}

function Groups({ found, hold, onDiscard }: GroupsProps) {
  const [sort, setSort] = useState<GroupSort>("latest");
  const { list, newer, letGo, watch } = useSteady(found.groups, sort, hold);
  const { totalGroups, totalJobs } = found;
  if (list.length === 0)
    return (
      <Panel>
        <EmptyState
          icon="deadLetters"
          title="No dead letters"
          command={`stoker submit fail '{"message": "on purpose"}' --max-attempts 1`}
        >
          Jobs that failed for good come here, grouped by how they failed. To see one:
        </EmptyState>
      </Panel>
    );
  return (
    <>
      <div className="flex flex-wrap items-center justify-between gap-3">
        <p className="text-muted">
          {plural(totalJobs, "job")} failed for good in {plural(totalGroups, "way")}
          {totalGroups > found.groups.length && `; the latest ${found.groups.length} are shown`}
        </p>
        <div className="flex items-center gap-3">
          <span role="status">
            {newer > 0 && (
              <Button size="sm" tone="primary" onClick={letGo}>
                {newer} new
              </Button>
            )}
          </span>
          <RangePicker label="Order" choices={SORTS} value={sort} onChange={setSort} />
        </div>
      </div>
      <section aria-label="Groups" className="flex min-w-0 flex-col gap-3 sm:gap-4" {...watch}>
        {list.map(({ group, gone }) => (
          <Group key={group.fingerprint} group={group} gone={gone} onDiscard={() => onDiscard(group)} />
        ))}
      </section>
    </>
  );
}

/**
 * The order of the groups. While the pointer is over them, the keyboard is among them or a question is open it stays as it
 * is; what would be shown otherwise is then one click away.
 */
function useSteady(groups: readonly DeadLetterGroup[], sort: GroupSort, hold: boolean) {
  const [over, setOver] = useState(false);
  const [within, setWithin] = useState(false);
  const [released, setReleased] = useState(0);
  const order = useRef<{ by: string; shown: readonly DeadLetterGroup[] }>({ by: "", shown: [] });
  const by = `${sort} ${released}`;
  if (!(hold || over || within) || order.current.by !== by)
    order.current = { by, shown: sorted(groups, sort) };
  const { list, newer } = held(order.current.shown, groups);
  const watch = {
    onPointerEnter: () => setOver(true),
    onPointerLeave: () => setOver(false),
    onFocus: (event: FocusEvent) => setWithin(event.target.matches(":focus-visible")),
    onBlur: () => setWithin(false),
  };
  return { list, newer, letGo: () => setReleased(released + 1), watch };
}

interface GroupProps {
  group: DeadLetterGroup;
  gone: boolean;
  onDiscard: () => void;
}

function Group({ group, gone, onDiscard }: GroupProps) {
  const { group: opened } = useSearch({ from: "/dead-letters" });
  const navigate = useNavigate({ from: "/dead-letters" });
  const now = useNow();
  const [canary, setCanary] = useState<string | null>(null);
  const open = opened === group.fingerprint;
  return (
    <GroupCard
      group={group}
      gone={gone}
      now={now}
      open={open}
      onToggle={() =>
        void navigate({ search: { group: open ? undefined : group.fingerprint }, replace: true })
      }
      actions={
        gone ? (
          <p className="flex h-7 items-center text-xs text-muted">No longer in this list.</p>
        ) : (
          <Actions group={group} onCanary={setCanary} onDiscard={onDiscard} />
        )
      }
      canary={canary !== null && <Canary id={canary} />}
    >
      {!gone && <Jobs group={group} />}
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

interface ActionsProps {
  group: DeadLetterGroup;
  onCanary: (id: string) => void;
  onDiscard: () => void;
}

function Actions({ group, onCanary, onDiscard }: ActionsProps) {
  const client = useQueryClient();
  const { fingerprint, count, sampleJobId } = group;
  const refetch = () => client.invalidateQueries({ queryKey: keys.deadLetters });
  const canary = useMutation({
    mutationFn: (id: string) => changeDeadLetters("replay", { ids: [id] }),
    onSuccess: (changed, id) => {
      if (changed === 0) return toast.done("It is no dead letter any more", "Somebody else was faster.");
      void client.invalidateQueries({ queryKey: keys.job(id) });
      onCanary(id);
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
  return (
    <>
      <Button size="sm" icon="play" busy={canary.isPending} onClick={() => canary.mutate(sampleJobId)}>
        Try one first
      </Button>
      <Button size="sm" icon="retry" busy={retry.isPending} onClick={() => retry.mutate()}>
        {count === 1 ? "Retry" : `Retry all ${plural(count, "job")}`}
      </Button>
      <Button size="sm" tone="danger" icon="close" onClick={onDiscard}>
        Discard
      </Button>
    </>
  );
}

function DiscardDialog({ group, onClose }: { group: DeadLetterGroup; onClose: () => void }) {
  const client = useQueryClient();
  const { fingerprint, count } = group;
  const discard = useMutation({
    mutationFn: () => changeDeadLetters("discard", { filter: { fingerprint } }),
    onSuccess: (changed) => toast.done(`${plural(changed, "job")} discarded`),
    onError: toast.error,
    onSettled: () => {
      onClose();
      return client.invalidateQueries({ queryKey: keys.deadLetters });
    },
  });
  return (
    <ConfirmDialog
      title="Discard this group?"
      confirm={`Discard ${plural(count, "job")}`}
      danger
      busy={discard.isPending}
      onConfirm={() => discard.mutate()}
      onClose={onClose}
    >
      <p className="wrap-any">
        {plural(count, "job")} of <b>{group.type}</b> that failed with <b>{group.errorType || "an error"}</b>{" "}
        leave the dead letters. They stay failed and can still be found among the jobs, and retried one by
        one.
      </p>
    </ConfirmDialog>
  );
}
