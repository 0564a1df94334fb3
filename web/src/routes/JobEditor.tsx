import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useId, useState } from "react";
import { editJob } from "@/api/endpoints";
import type { Job, JobEdit } from "@/api/model";
import { ApiError, refusedFields } from "@/api/problem";
import { keys } from "@/api/queries";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { EditForm } from "@/components/job/EditForm";
import { type EditDraft, editDraft, readEdit, refusedEdit } from "@/components/job/edit";
import { toast } from "@/components/Toast";

/** Changes a job while it waits. Stays open when the job starts meanwhile, and says so. */
export function JobEditor({ job, onClose }: { job: Job; onClose: () => void }) {
  const id = useId();
  const client = useQueryClient();
  const [before] = useState(() => editDraft(job));
  const [draft, setDraft] = useState<EditDraft>(before);
  const [tried, setTried] = useState(0);
  const save = useMutation({
    mutationFn: (edit: JobEdit) => editJob(job.id, edit),
    retry: false,
    onSuccess: (next) => {
      client.setQueryData(keys.job(job.id), next);
      void client.invalidateQueries({ queryKey: keys.why(job.id) });
      toast.done("Job changed");
      onClose();
    },
    onError: () => setTried((count) => count + 1),
  });
  const { edit, mistakes } = readEdit(draft, before);
  const refused = refusedEdit(refusedFields(save.error));
  const late = save.error instanceof ApiError && save.error.status === 409;
  const submit = () => {
    if (Object.keys(mistakes).length > 0) setTried(tried + 1);
    else if (Object.keys(edit).length === 0) onClose();
    else save.mutate(edit);
  };
  return (
    <Dialog
      title="Edit the job"
      onClose={onClose}
      className="w-[min(94vw,560px)]"
      footer={
        <>
          <Button onClick={onClose}>Close</Button>
          <Button type="submit" form={id} tone="primary" busy={save.isPending} disabled={late}>
            Save changes
          </Button>
        </>
      }
    >
      {late && (
        <div role="alert" className="mb-3 rounded-md border border-warn px-3 py-2">
          <p className="font-medium text-warn">Not changed: the job no longer waits.</p>
          <p className="wrap-any text-muted">{save.error?.message}</p>
        </div>
      )}
      {save.error && !late && Object.keys(refused).length === 0 && (
        <div className="mb-3">
          <ErrorNote error={save.error} />
        </div>
      )}
      <EditForm
        id={id}
        draft={draft}
        mistakes={{ ...refused, ...mistakes }}
        tried={tried}
        onChange={(change) => {
          if (save.error && !late) save.reset();
          setDraft({ ...draft, ...change });
        }}
        onSubmit={submit}
      />
    </Dialog>
  );
}
