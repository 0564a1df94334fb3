import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import {
  deleteSchedule,
  type Schedule,
  scheduleKeys,
  setSchedulePaused,
  triggerSchedule,
} from "@/api/schedules";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { toast } from "@/components/Toast";
import { ScheduleEditor } from "./ScheduleEditor";

interface ScheduleActionsProps {
  schedule: Schedule;
  onDeleted?: (() => void) | undefined;
}

/** Run now, pause or resume, edit, delete. */
export function ScheduleActions({ schedule, onDeleted }: ScheduleActionsProps) {
  const { name, paused } = schedule;
  const client = useQueryClient();
  const [open, setOpen] = useState<"edit" | "delete" | null>(null);
  const again = () => client.invalidateQueries({ queryKey: scheduleKeys.all });
  const trigger = useMutation({
    mutationFn: () => triggerSchedule(name),
    onSuccess: (job) => {
      toast.done(
        `${name} was triggered`,
        <Link to="/jobs/$id" params={{ id: job.id }} className="text-accent underline">
          {job.id}
        </Link>,
      );
      return again();
    },
    onError: toast.error,
  });
  const pause = useMutation({
    mutationFn: () => setSchedulePaused(name, !paused),
    onSuccess: (next) => {
      if (next.paused) toast.done(`${name} is paused`, "Jobs that it made go on; no tick fires.");
      else toast.done(`${name} goes on`);
      return again();
    },
    onError: toast.error,
  });
  const remove = useMutation({
    mutationFn: () => deleteSchedule(name),
    onSuccess: () => {
      toast.done(`${name} was deleted`);
      onDeleted?.();
      return again();
    },
    onError: toast.error,
    onSettled: () => setOpen(null),
  });
  return (
    <>
      <Button
        size="sm"
        busy={trigger.isPending}
        aria-label={`Trigger now: ${name}`}
        onClick={() => trigger.mutate()}
      >
        Trigger now
      </Button>
      <Button
        size="sm"
        tone={paused ? "primary" : "plain"}
        icon={paused ? "play" : "pause"}
        busy={pause.isPending}
        aria-label={`${paused ? "Resume" : "Pause"} ${name}`}
        onClick={() => pause.mutate()}
      >
        {paused ? "Resume" : "Pause"}
      </Button>
      <Button size="sm" icon="edit" aria-label={`Edit ${name}`} onClick={() => setOpen("edit")}>
        Edit
      </Button>
      <Button
        size="sm"
        tone="danger"
        icon="trash"
        aria-label={`Delete ${name}`}
        title="Delete"
        onClick={() => setOpen("delete")}
      />
      {open === "edit" && <ScheduleEditor name={name} onClose={() => setOpen(null)} />}
      {open === "delete" && (
        <ConfirmDialog
          title={`Delete ${name}?`}
          confirm="Delete the schedule"
          danger
          busy={remove.isPending}
          onConfirm={() => remove.mutate()}
          onClose={() => setOpen(null)}
        >
          It never ticks again, and what became of its ticks is forgotten. Its jobs stay.
          {schedule.app !== null &&
            !schedule.orphaned &&
            ` The code of ${schedule.app} declares it: it comes back when that declaration changes.`}
        </ConfirmDialog>
      )}
    </>
  );
}
