import { type JobType, PRIORITY_NAMES } from "@/api/model";
import { FieldRow } from "./FieldRow";
import { defaultsOf, type Options } from "./options";

interface OptionFieldsProps {
  type: JobType | undefined;
  options: Options;
  mistakes: Partial<Record<keyof Options, string>>;
  queues: readonly string[];
  onChange: (change: Partial<Options>) => void;
}

/** Queue, priority, threads, times. Empty fields show what the type has there. */
export function OptionFields({ type, options, mistakes, queues, onChange }: OptionFieldsProps) {
  const defaults = defaultsOf(type);
  const text = (key: keyof Options, label: string, note: string, list?: string) => (
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
          list={list}
          value={options[key]}
          onChange={(event) => onChange({ [key]: event.target.value })}
        />
      )}
    </FieldRow>
  );
  const named = options.priority === "" || PRIORITY_NAMES[Number(options.priority)] !== undefined;
  return (
    <div className="grid grid-cols-2 gap-x-4 gap-y-2 md:grid-cols-4">
      {text("queue", "Queue", "where it stands in line", "stoker-queues")}
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
            <option value="">{defaults.priority} (default)</option>
            {!named && <option value={options.priority}>{options.priority}</option>}
            {PRIORITY_NAMES.map((name, value) => (
              <option key={name} value={value}>
                {name}
              </option>
            ))}
          </select>
        )}
      </FieldRow>
      {text("threads", "Threads", "that it needs at once")}
      {text("timeout", "Timeout", "then it is killed: 30, 10m, 2h")}
      {text("memory", "Memory", "MB; it is ended when it needs more")}
      {text("delay", "Delay", "starts in 10m, say")}
      {text("attempts", "Attempts", "before it counts as failed")}
      <div className="col-span-2 md:col-span-1">{text("name", "Name", "a label for people")}</div>
    </div>
  );
}
