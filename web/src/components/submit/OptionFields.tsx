import { PRIORITY_NAMES } from "@/api/model";
import { FieldRow } from "./FieldRow";
import type { Options } from "./options";

interface OptionFieldsProps {
  options: Options;
  mistakes: Partial<Record<keyof Options, string>>;
  queues: readonly string[];
  onChange: (change: Partial<Options>) => void;
}

/** Queue, priority, threads, times. */
export function OptionFields({ options, mistakes, queues, onChange }: OptionFieldsProps) {
  const text = (key: keyof Options, label: string, placeholder: string, note: string, list?: string) => (
    <FieldRow label={label} note={note} mistake={mistakes[key]}>
      {({ id, describedBy, invalid }) => (
        <input
          id={id}
          aria-describedby={describedBy}
          aria-invalid={invalid}
          className="field"
          autoComplete="off"
          spellCheck={false}
          placeholder={placeholder}
          list={list}
          value={options[key]}
          onChange={(event) => onChange({ [key]: event.target.value })}
        />
      )}
    </FieldRow>
  );
  const named = PRIORITY_NAMES[Number(options.priority)] !== undefined;
  return (
    <div className="grid grid-cols-2 gap-x-4 gap-y-2 md:grid-cols-4">
      {text("queue", "Queue", "default", "where it stands in line", "stoker-queues")}
      <datalist id="stoker-queues">
        {queues.map((queue) => (
          <option key={queue} value={queue} />
        ))}
      </datalist>
      <FieldRow label="Priority" note="who goes first" mistake={mistakes.priority}>
        {({ id, describedBy }) => (
          <select
            id={id}
            aria-describedby={describedBy}
            className="field"
            value={options.priority}
            onChange={(event) => onChange({ priority: event.target.value })}
          >
            {!named && <option value={options.priority}>{options.priority}</option>}
            {PRIORITY_NAMES.map((name, value) => (
              <option key={name} value={value}>
                {name}
              </option>
            ))}
          </select>
        )}
      </FieldRow>
      {text("threads", "Threads", "1", "that it needs at once")}
      {text("timeout", "Timeout", "none", "then it is killed: 30, 10m, 2h")}
      {text("delay", "Delay", "none", "starts in 10m, say")}
      {text("attempts", "Attempts", "4", "before it counts as failed")}
      <div className="col-span-2">{text("name", "Name", "", "a label for people")}</div>
    </div>
  );
}
