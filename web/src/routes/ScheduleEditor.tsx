import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useId, useState } from "react";
import { refusedFields } from "@/api/problem";
import { typesQuery } from "@/api/queries";
import {
  getSchedule,
  previewQuery,
  putSchedule,
  type Schedule,
  type ScheduleBody,
  scheduleKeys,
} from "@/api/schedules";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { Skeleton } from "@/components/Skeleton";
import { type Draft, draftOf, type Mistakes, NEW, read, refused, whenOf } from "@/components/schedules/draft";
import { ScheduleForm } from "@/components/schedules/ScheduleForm";
import { NEEDED } from "@/components/submit/fields";
import { toast } from "@/components/Toast";
import { useDebounced } from "@/lib/debounce";

const PREVIEW_MS = 250;
const PREVIEWED = 5;

/** Makes a schedule, or changes the one of that name. */
export function ScheduleEditor({ name, onClose }: { name?: string; onClose: () => void }) {
  // Asked for once: what somebody types is not replaced by what the server says meanwhile.
  const before = useQuery({
    queryKey: [...scheduleKeys.all, "edit", name],
    queryFn: ({ signal }) => getSchedule(name ?? "", signal),
    enabled: name !== undefined,
    gcTime: 0,
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (name === undefined) return <Editor onClose={onClose} />;
  if (before.data) return <Editor before={before.data} onClose={onClose} />;
  return (
    <Dialog title={`Edit ${name}`} onClose={onClose}>
      {before.error ? <ErrorNote error={before.error} /> : <Skeleton className="h-64 rounded-lg" />}
    </Dialog>
  );
}

function Editor({ before, onClose }: { before?: Schedule; onClose: () => void }) {
  const id = useId();
  const client = useQueryClient();
  const types = useQuery({ ...typesQuery(), retry: false });
  // As it was when the form was opened, so that what is not shown is sent back unchanged.
  const [start] = useState(before);
  const [draft, setDraft] = useState<Draft>(() => (start ? draftOf(start) : NEW));
  const [tried, setTried] = useState(0);
  const when = whenOf(draft);
  const settled = useDebounced(when, PREVIEW_MS);
  const typing = JSON.stringify(settled) !== JSON.stringify(when);
  const preview = useQuery(previewQuery(settled, PREVIEWED));
  const save = useMutation({
    mutationFn: (body: ScheduleBody) => putSchedule(draft.name.trim(), body),
    retry: false,
    onSuccess: (next) => {
      toast.done(start ? `${next.name} was changed` : `${next.name} was made`);
      onClose();
      return client.invalidateQueries({ queryKey: scheduleKeys.all });
    },
    onError: () => setTried((count) => count + 1),
  });
  const { body, mistakes } = read(draft, start?.body ?? null);
  const saved = refused(refusedFields(save.error), draft.by);
  const previewed = refused(typing || when === null ? {} : refusedFields(preview.error), draft.by).mistakes;
  const told: Mistakes = {
    ...saved.mistakes,
    ...previewed,
    // What is merely not filled in yet is told only after somebody tried to send it.
    ...Object.fromEntries(Object.entries(mistakes).filter(([, mistake]) => tried > 0 || mistake !== NEEDED)),
  };
  const submit = () => {
    if (Object.keys(mistakes).length > 0) setTried(tried + 1);
    else save.mutate(body);
  };
  const change = (part: Partial<Draft>) => {
    // What the server said holds until one of the fields is another.
    if (save.error) save.reset();
    const example = part.type === undefined || draft.payload.trim() ? undefined : exampleOf(part.type);
    setDraft({ ...draft, ...part, ...(example === undefined ? {} : { payload: example }) });
  };
  const exampleOf = (type: string): string | undefined => {
    const example = types.data?.find((each) => each.type === type)?.example;
    return example === undefined || example === null ? undefined : JSON.stringify(example, null, 2);
  };
  const elsewhere = save.error !== null && Object.keys(saved.mistakes).length === 0;
  return (
    <Dialog
      title={start ? `Edit ${start.name}` : "New schedule"}
      onClose={onClose}
      className="w-[min(94vw,640px)]"
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" form={id} tone="primary" busy={save.isPending}>
            {start ? "Save changes" : "Create schedule"}
          </Button>
        </>
      }
    >
      {elsewhere && (
        <div className="mb-3">
          <ErrorNote error={save.error} />
        </div>
      )}
      {!elsewhere && saved.rest.length > 0 && (
        <p role="alert" className="wrap-any mb-3 text-bad">
          {saved.rest.join("; ")}
        </p>
      )}
      <ScheduleForm
        id={id}
        draft={draft}
        mistakes={told}
        isNew={start === undefined}
        types={types.data ?? []}
        times={when === null || preview.error ? undefined : preview.data}
        tried={tried}
        onChange={change}
        onSubmit={submit}
      />
    </Dialog>
  );
}
