import { type FormEvent, useEffect, useRef } from "react";
import { PRIORITY_NAMES } from "@/api/model";
import { FieldRow } from "@/components/submit/FieldRow";
import { JsonInput } from "@/components/submit/JsonInput";
import type { EditDraft, EditMistakes } from "./edit";

interface EditFormProps {
  id: string;
  draft: EditDraft;
  mistakes: EditMistakes;
  /** Counts the times that it could not be sent: each brings one to the first field that is wrong. */
  tried: number;
  onChange: (change: Partial<EditDraft>) => void;
  onSubmit: () => void;
}

/** What can be changed of a job while it waits. */
export function EditForm({ id, draft, mistakes, tried, onChange, onSubmit }: EditFormProps) {
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    if (tried > 0) form.current?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus();
  }, [tried]);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    onSubmit();
  };
  const input = (field: keyof EditDraft, label: string, note: string, placeholder = "", type = "text") => (
    <FieldRow label={label} note={note} mistake={mistakes[field]}>
      {({ id, describedBy, invalid }) => (
        <input
          id={id}
          type={type}
          step={type === "datetime-local" ? 1 : undefined}
          aria-describedby={describedBy}
          aria-invalid={invalid}
          className="field"
          autoComplete="off"
          spellCheck={false}
          placeholder={placeholder}
          value={draft[field]}
          onChange={(event) => onChange({ [field]: event.target.value })}
        />
      )}
    </FieldRow>
  );
  const names = PRIORITY_NAMES.map((name, value) => `${value} is ${name}`).join(", ");
  return (
    <form ref={form} id={id} onSubmit={submit} noValidate className="flex flex-col gap-3">
      <div className="grid grid-cols-2 gap-x-4 gap-y-2">
        {input("priority", "Priority", names)}
        {input("queue", "Queue", "where it stands in line", "default")}
        {input("attempts", "Attempts", "before it counts as failed", "default")}
        {input("timeout", "Timeout", "30, 10m, 2h", "none")}
        <div className="col-span-2">
          {input("runAt", "Run at", "by your clock; empty means now", "", "datetime-local")}
        </div>
      </div>
      <JsonInput
        label="Payload"
        rows={4}
        value={draft.payload}
        mistake={mistakes.payload}
        onChange={(payload) => onChange({ payload })}
      />
      <JsonInput
        label="Metadata"
        rows={2}
        note='Names and texts, replaced as a whole: {"customer": "42"}'
        value={draft.metadata}
        mistake={mistakes.metadata}
        onChange={(metadata) => onChange({ metadata })}
      />
    </form>
  );
}
