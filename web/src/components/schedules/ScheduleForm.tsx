import { type FormEvent, useEffect, useRef } from "react";
import type { JobType } from "@/api/model";
import type { Overlap } from "@/api/schedules";
import { RangePicker } from "@/components/RangePicker";
import { FieldRow } from "@/components/submit/FieldRow";
import { JsonInput } from "@/components/submit/JsonInput";
import { TypePicker } from "@/components/submit/TypePicker";
import type { By, Draft, Field, Mistakes } from "./draft";
import { Preview } from "./Preview";
import { cronInWords } from "./when";

interface ScheduleFormProps {
  id: string;
  draft: Draft;
  mistakes: Mistakes;
  /** One that is there keeps its name. */
  isNew: boolean;
  types: readonly JobType[];
  /** When it would tick; undefined while that is not known. */
  times: readonly number[] | undefined;
  /** Counts the times that it could not be sent: each brings one to the first field that is wrong. */
  tried: number;
  onChange: (change: Partial<Draft>) => void;
  onSubmit: () => void;
}

const WAYS: readonly By[] = ["Cron", "Interval"];
const OVERLAPS: Record<Overlap, string> = {
  allow: "run all the same",
  skip: "skip this tick",
  queue_one: "let one job wait",
  cancel_previous: "cancel the earlier job",
};
const ZONES = typeof Intl.supportedValuesOf === "function" ? Intl.supportedValuesOf("timeZone") : [];

/** When a schedule ticks, what it runs, and what happens when ticks meet or are late. */
export function ScheduleForm({
  id,
  draft,
  mistakes,
  isNew,
  types,
  times,
  tried,
  onChange,
  onSubmit,
}: ScheduleFormProps) {
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    if (tried > 0) form.current?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus();
  }, [tried]);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    onSubmit();
  };
  const text = (
    field: Exclude<Field, "overlap">,
    label: string,
    note: string,
    more: {
      placeholder?: string;
      list?: string;
      required?: boolean;
      disabled?: boolean;
      mono?: boolean;
    } = {},
  ) => (
    <FieldRow label={label} note={note} mistake={mistakes[field]} required={more.required ?? false}>
      {({ id, describedBy, invalid }) => (
        <input
          id={id}
          aria-describedby={describedBy}
          aria-invalid={invalid}
          className={more.mono ? "field font-mono" : "field"}
          autoComplete="off"
          autoCapitalize="off"
          spellCheck={false}
          placeholder={more.placeholder}
          list={more.list}
          disabled={more.disabled}
          value={draft[field]}
          onChange={(event) => onChange({ [field]: event.target.value })}
        />
      )}
    </FieldRow>
  );
  return (
    <form ref={form} id={id} onSubmit={submit} noValidate className="flex flex-col gap-3">
      {isNew && text("name", "Name", "letters, digits and _ . : @ + -", { required: true })}
      <div className="flex flex-col gap-2">
        <div className="flex">
          <RangePicker label="Ticks by" choices={WAYS} value={draft.by} onChange={(by) => onChange({ by })} />
        </div>
        <div className="grid gap-x-4 gap-y-2 sm:grid-cols-2">
          {draft.by === "Cron"
            ? text("cron", "Cron expression", "minute, hour, day, month, weekday; or @daily", {
                required: true,
                placeholder: "0 9 * * 1-5",
                mono: true,
              })
            : text("every", "Every", "seconds, or 10m, 2h, 1d", { required: true, placeholder: "15m" })}
          {text("timezone", "Timezone", "such as Europe/Berlin", {
            placeholder: "UTC",
            list: "stoker-timezones",
          })}
          <datalist id="stoker-timezones">
            {ZONES.map((zone) => (
              <option key={zone} value={zone} />
            ))}
          </datalist>
        </div>
        <Preview
          times={times}
          timezone={draft.timezone.trim() || "UTC"}
          words={draft.by === "Cron" ? cronInWords(draft.cron) : null}
        />
      </div>
      <TypePicker
        types={types}
        value={draft.type}
        mistake={mistakes.type}
        onChange={(type) => onChange({ type })}
      />
      <JsonInput
        label="Payload"
        rows={3}
        value={draft.payload}
        mistake={mistakes.payload}
        onChange={(payload) => onChange({ payload })}
      />
      <div className="grid grid-cols-1 gap-x-4 gap-y-2 sm:grid-cols-2">
        <FieldRow
          label="While an earlier job has not ended"
          note="overlap"
          mistake={mistakes.overlap}
          className="sm:col-span-2"
        >
          {({ id, describedBy, invalid }) => (
            <select
              id={id}
              aria-describedby={describedBy}
              aria-invalid={invalid}
              className="field"
              value={draft.overlap}
              onChange={(event) => onChange({ overlap: event.target.value as Overlap })}
            >
              {Object.entries(OVERLAPS).map(([value, words]) => (
                <option key={value} value={value}>
                  {words}
                </option>
              ))}
            </select>
          )}
        </FieldRow>
        {text("catchUp", "Catch up for", "how late a tick may still fire", { placeholder: "60" })}
        {text("catchUpMax", "Catch up at most", "ticks, after an outage", { placeholder: "1" })}
        {text("jitter", "Jitter", "delays each tick by up to so much", { placeholder: "none" })}
        {text("pauseAfterFailures", "Pause after failures", "in a row", { placeholder: "never" })}
      </div>
    </form>
  );
}
