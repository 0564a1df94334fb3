import { useMutation, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { submitJob } from "@/api/endpoints";
import type { Job, JobSpec, JobType } from "@/api/model";
import { jobQuery, queuesQuery, typesQuery } from "@/api/queries";
import { getToken } from "@/api/token";
import { Page } from "@/app/Page";
import { ErrorNote } from "@/components/ErrorNote";
import { Skeleton } from "@/components/Skeleton";
import { NONE } from "@/components/submit/options";
import { SubmitForm, type SubmitStart } from "@/components/submit/SubmitForm";
import { toast } from "@/components/Toast";

export function SubmitPage() {
  const search = useSearch({ from: "/submit" });
  const types = useQuery({ ...typesQuery(), retry: false });
  const queues = useQuery(queuesQuery());
  const from = useQuery({ ...jobQuery(search.from ?? ""), enabled: search.from !== undefined });
  if (types.isPending || (search.from !== undefined && from.isPending))
    return (
      <Page>
        <Skeleton className="h-64 rounded-lg" />
      </Page>
    );
  return (
    <Page>
      {from.error && <ErrorNote error={from.error} />}
      <Form
        key={from.data?.id ?? ""}
        types={types.data ?? []}
        queues={queues.data?.map(({ name }) => name) ?? []}
        from={from.data}
        type={search.type}
      />
    </Page>
  );
}

interface FormProps {
  types: JobType[];
  queues: string[];
  from: Job | undefined;
  type: string | undefined;
}

function Form({ types, queues, from, type }: FormProps) {
  const navigate = useNavigate({ from: "/submit" });
  const submit = useMutation({
    mutationFn: (spec: JobSpec) => submitJob(spec),
    retry: false,
    onSuccess: (job) => {
      toast.done(
        "Job submitted",
        <Link to="/jobs/$id" params={{ id: job.id }} className="text-accent underline">
          {job.id}
        </Link>,
      );
      for (const warning of job.warnings) toast.done("Note", warning);
      void navigate({ to: "/jobs/$id", params: { id: job.id } });
    },
  });
  return (
    <>
      {from && (
        <p className="text-muted">
          A new job like{" "}
          <Link to="/jobs/$id" params={{ id: from.id }} className="font-mono text-xs text-accent underline">
            {from.id}
          </Link>
          , which stays as it is.
        </p>
      )}
      {submit.error && <ErrorNote error={submit.error} />}
      <SubmitForm
        types={types}
        queues={queues}
        start={startOf(from, type ?? types[0]?.type ?? "echo", types)}
        origin={location.origin}
        withToken={getToken() !== null}
        busy={submit.isPending}
        onType={(next) => void navigate({ search: { type: next || undefined }, replace: true })}
        onSubmit={(spec) => submit.mutate(spec)}
      />
    </>
  );
}

const text = (value: number | null) => (value === null ? "" : String(value));

/** The form for a new job like this one, or for one of a type. Where the job has no limit and its type has, that is said. */
function startOf(job: Job | undefined, type: string, types: readonly JobType[]): SubmitStart {
  if (!job) return { type, payload: undefined, options: {} };
  const defaults = types.find((each) => each.type === job.type)?.defaults;
  const limit = (value: number | null, announced: number | null | undefined) =>
    value === null && announced ? NONE : text(value);
  return {
    type: job.type,
    payload: job.payload,
    options: {
      name: job.name ?? "",
      queue: job.queue,
      priority: String(job.priority),
      threads: text(job.threadDemand),
      timeout: limit(job.timeoutSec, defaults?.timeout_sec),
      memory: limit(job.memoryMb, defaults?.memory_mb),
      attempts: text(job.maxAttempts),
      uniqueKey: job.extras.uniqueKey ?? "",
      softTimeout: limit(job.extras.softTimeoutSec, defaults?.soft_timeout_sec),
    },
  };
}
