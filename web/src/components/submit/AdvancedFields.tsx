import { useState } from "react";
import type { JobType } from "@/api/model";
import { FieldRow } from "./FieldRow";
import { defaultsOf, type Options } from "./options";

interface AdvancedFieldsProps {
  type: JobType | undefined;
  options: Options;
  mistakes: Partial<Record<keyof Options, string>>;
  onChange: (change: Partial<Options>) => void;
}

const CONFLICTS = { return: "return that job", reject: "reject this one", replace: "replace that one" };
const UNTILS = { finished: "the job has finished", started: "the job has started" };
const ADVANCED = ["uniqueKey", "onConflict", "uniqueUntil", "expires", "deadline", "softTimeout"] as const;

/** What few jobs need: unique keys, expiry and deadlines. Closed until somebody opens it or something stands in it. */
export function AdvancedFields({ type, options, mistakes, onChange }: AdvancedFieldsProps) {
  const [open, setOpen] = useState(ADVANCED.some((key) => options[key] !== ""));
  const defaults = defaultsOf(type);
  const text = (key: keyof Options, label: string, note: string) => (
    <FieldRow label={label} note={note} mistake={mistakes[key]}>
      {({ id, describedBy, invalid }) => (
        <input
          id={id}
          aria-describedby={describedBy}
          aria-invalid={invalid}
          className="field"
          autoComplete="off"
          spellCheck={false}
          placeholder={defaults[key]}
          value={options[key]}
          onChange={(event) => onChange({ [key]: event.target.value })}
        />
      )}
    </FieldRow>
  );
  const choice = (key: keyof Options, label: string, note: string, choices: Record<string, string>) => (
    <FieldRow label={label} note={note} mistake={mistakes[key]}>
      {({ id, describedBy, invalid }) => (
        <select
          id={id}
          aria-describedby={describedBy}
          aria-invalid={invalid}
          className="field"
          value={options[key]}
          onChange={(event) => onChange({ [key]: event.target.value })}
        >
          <option value="">{choices[defaults[key]]} (default)</option>
          {Object.entries(choices).map(([value, words]) => (
            <option key={value} value={value}>
              {words}
            </option>
          ))}
        </select>
      )}
    </FieldRow>
  );
  return (
    <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)} className="mt-3">
      <summary className="w-fit text-muted hover:text-text">Advanced</summary>
      <div className="mt-2 grid grid-cols-2 gap-x-4 gap-y-2 md:grid-cols-3">
        {text("uniqueKey", "Unique key", "one unfinished job has it, at most")}
        {choice("onConflict", "If another job has the key", "on_conflict", CONFLICTS)}
        {choice("uniqueUntil", "Hold the key until", "unique_until", UNTILS)}
        {text("expires", "Expires in", "cancelled if it has not started: 10m, 2h")}
        {text("deadline", "Deadline", "must have ended, retries included: 1h")}
        {text("softTimeout", "Soft timeout", "raises SoftTimeout in a Python task")}
      </div>
    </details>
  );
}
