import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import { cancelJob, retryJob } from "@/api/endpoints";
import { canCancel, canEdit, canRetry, isFinal, type Job } from "@/api/model";
import { ApiError } from "@/api/problem";
import { keys, whyQuery, workersQuery } from "@/api/queries";
import { getToken } from "@/api/token";
import { Page } from "@/app/Page";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { EmptyState } from "@/components/EmptyState";
import { ErrorNote } from "@/components/ErrorNote";
import { asCurl } from "@/components/job/curl";
import { ErrorPanel } from "@/components/job/ErrorPanel";
import { ExtrasPanel } from "@/components/job/ExtrasPanel";
import { JobHeader } from "@/components/job/JobHeader";
import { JobTimeline } from "@/components/job/JobTimeline";
import { JsonPanel } from "@/components/job/JsonPanel";
import { LogTail } from "@/components/job/LogTail";
import { Pairs } from "@/components/job/Pairs";
import { ProgressPanel } from "@/components/job/ProgressPanel";
import { ResourcesPanel } from "@/components/job/ResourcesPanel";
import { useJob } from "@/components/job/useJob";
import { useLogs } from "@/components/job/useLogs";
import { WhyPanel } from "@/components/job/WhyPanel";
import { Panel } from "@/components/Panel";
import { Skeleton } from "@/components/Skeleton";
import { toast } from "@/components/Toast";
import { useShortcuts } from "@/keyboard/shortcuts";
import { copyText } from "@/lib/clipboard";
import { useNow } from "@/lib/clock";
import { shortId } from "@/lib/format";
import { useLive } from "@/live/live";
import { throttle } from "@/live/sync";
import { quote } from "@/search/language";
import { JobEditor } from "./JobEditor";

export function JobPage() {
  const { id } = useParams({ from: "/jobs/$id" });
  const job = useJob(id);
  if (job.data) return <Loaded key={id} job={job.data} />;
  if (job.error instanceof ApiError && (job.error.status === 404 || job.error.status === 422))
    return (
      <Page>
        <EmptyState icon="search" title="There is no such job" command={`stoker job ${shellWord(id)}`}>
          It may have been removed after its time to live, or belong to another server. Its id:{" "}
          <code className="wrap-any font-mono">{id.slice(0, 100)}</code>
        </EmptyState>
      </Page>
    );
  if (job.error)
    return (
      <Page>
        <ErrorNote error={job.error} onRetry={() => void job.refetch()} />
      </Page>
    );
  return (
    <Page>
      <Skeleton className="h-36 rounded-lg" />
      <Skeleton className="h-28 rounded-lg" />
      <Skeleton className="h-64 rounded-lg" />
    </Page>
  );
}

const shellWord = (id: string) => (/^[\w-]{1,64}$/.test(id) ? id : "ID");

function Loaded({ job }: { job: Job }) {
  const now = useNow();
  const final = isFinal(job.status);
  const logs = useLogs(job.id, job.claimId, final);
  return (
    <Page>
      <Head job={job} />
      {job.status !== "running" && !final && <Why job={job} />}
      {job.status === "running" && job.progress && <ProgressPanel progress={job.progress} />}
      {job.error && <ErrorPanel error={job.error} title={final ? "Error" : "The last attempt failed"} />}
      <JobTimeline job={job} now={final ? (job.completedAt ?? now) : now} />
      <div className="grid items-start gap-3 sm:gap-4 lg:grid-cols-[minmax(0,2fr)_minmax(0,1fr)]">
        <div className="flex min-w-0 flex-col gap-3 sm:gap-4">
          <LogTail
            logs={logs}
            final={final}
            attempts={job.attempts.length}
            command={`stoker logs ${shellWord(job.id)}`}
          />
          <JsonPanel title="Result" value={job.result} none={resultNote(job)} />
        </div>
        <div className="flex min-w-0 flex-col gap-3 sm:gap-4">
          <JsonPanel title="Payload" value={job.payload} />
          <ExtrasPanel extras={job.extras} scheduleLink={scheduleLink} />
          <ResourcesPanel job={job} />
          <Words title="Labels" pairs={job.labels} />
          <Words title="Metadata" pairs={job.metadata} />
        </div>
      </div>
    </Page>
  );
}

const scheduleLink = (name: string) => (
  <Link to="/schedules" search={{ name }} className="text-accent underline">
    {name}
  </Link>
);

function resultNote(job: Job): string | null {
  if (job.status === "completed") return null;
  return isFinal(job.status) ? "There is none." : "Not yet.";
}

function Words({ title, pairs }: { title: string; pairs: Record<string, string> }) {
  if (Object.keys(pairs).length === 0) return null;
  return (
    <Panel title={title}>
      <Pairs pairs={pairs} />
    </Panel>
  );
}

/** The place in a line changes as others run: looked at again when the stream says that something did. */
function Why({ job }: { job: Job }) {
  const client = useQueryClient();
  const why = useQuery(whyQuery(job.id));
  const updatedAt = useLive((state) => state.updatedAt);
  const again = useMemo(
    () => throttle(() => void client.invalidateQueries({ queryKey: keys.why(job.id) }), 2000),
    [client, job.id],
  );
  useEffect(() => again.cancel, [again]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: each update is a reason to look.
  useEffect(() => again(), [updatedAt, job.status, again]);
  if (!why.data) return null;
  if (["running", "finished"].includes(why.data.code)) return null;
  return <WhyPanel why={why.data} />;
}

function Head({ job }: { job: Job }) {
  const workers = useQuery(workersQuery());
  const worker = workers.data?.find(({ id }) => id === job.workerId);
  return (
    <JobHeader
      job={job}
      actions={<Actions job={job} />}
      queue={
        <Link to="/jobs" search={{ q: `queue:${quote(job.queue)}` }} className="hover:underline">
          {job.queue}
        </Link>
      }
      worker={
        job.workerId === null ? (
          <span className="text-faint">–</span>
        ) : (
          <Link
            to="/jobs"
            search={{ q: `worker:${job.workerId}` }}
            title={job.workerId}
            className="hover:underline"
          >
            {worker?.name ?? shortId(job.workerId)}
          </Link>
        )
      }
    />
  );
}

function Actions({ job }: { job: Job }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [asking, setAsking] = useState(false);
  const [editing, setEditing] = useState(false);
  const done = (title: string) => (next: Job) => {
    client.setQueryData(keys.job(job.id), next);
    toast.done(title);
  };
  const retry = useMutation({
    mutationFn: () => retryJob(job.id),
    onSuccess: done("Queued again"),
    onError: toast.error,
  });
  const cancel = useMutation({
    mutationFn: () => cancelJob(job.id),
    onSuccess: (next) => done(isFinal(next.status) ? "Cancelled" : "Told to stop")(next),
    onError: toast.error,
    onSettled: () => setAsking(false),
  });
  const resubmit = () => void navigate({ to: "/submit", search: { from: job.id } });
  const copy = () =>
    copyText(asCurl(job, window.location.origin, getToken() !== null)).then(
      () => toast.done("Copied", "The request that submits this job again, for a shell."),
      toast.error,
    );
  // A job that backs off can be run now.
  const retries = canRetry(job.status) || (job.status === "scheduled" && job.attempts.length > 0);
  const cancels = canCancel(job.status) && job.cancelRequestedAt === null;
  const ask = () => (job.status === "running" ? setAsking(true) : cancel.mutate());
  useShortcuts("Job", [
    { keys: "r", text: "Retry", run: () => retries && retry.mutate() },
    { keys: "c", text: "Cancel", run: () => cancels && ask() },
    { keys: "e", text: "Edit and resubmit", run: resubmit },
    { keys: "y", text: "Copy as curl", run: () => void copy() },
  ]);
  return (
    <>
      {cancels && (
        <Button tone="danger" icon="cancel" busy={cancel.isPending} onClick={ask}>
          Cancel
        </Button>
      )}
      {retries && (
        <Button tone="primary" icon="retry" busy={retry.isPending} onClick={() => retry.mutate()}>
          {job.status === "scheduled" ? "Retry now" : "Retry"}
        </Button>
      )}
      {canEdit(job.status) && (
        <Button icon="edit" onClick={() => setEditing(true)}>
          Edit
        </Button>
      )}
      <Button onClick={resubmit}>Edit and resubmit</Button>
      <Button icon="copy" onClick={() => void copy()}>
        Copy as curl
      </Button>
      {editing && <JobEditor job={job} onClose={() => setEditing(false)} />}
      {asking && (
        <ConfirmDialog
          title="Cancel a running job?"
          confirm="Cancel the job"
          danger
          busy={cancel.isPending}
          onConfirm={() => cancel.mutate()}
          onClose={() => setAsking(false)}
        >
          It is told to stop and killed if it does not. What it has done so far stays done.
        </ConfirmDialog>
      )}
    </>
  );
}
