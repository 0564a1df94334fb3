import { type FormEvent, useEffect, useMemo, useRef, useState } from "react";
import { formatExact, parseExact } from "@/api/json";
import type { JobSpec, JobType } from "@/api/model";
import { Button } from "@/components/Button";
import { Panel } from "@/components/Panel";
import { RangePicker } from "@/components/RangePicker";
import { AdvancedFields } from "./AdvancedFields";
import { build, fieldsOf, initials, NEEDED, spread, type Typed, tell } from "./fields";
import { JsonInput } from "./JsonInput";
import { OptionFields } from "./OptionFields";
import { NO_OPTIONS, type Options, readOptions } from "./options";
import { SchemaFields } from "./SchemaFields";
import { Snippets } from "./Snippets";
import { TypePicker } from "./TypePicker";

export interface SubmitStart {
  type: string;
  /** Undefined: the type's example. */
  payload: unknown;
  options: Partial<Options>;
}

interface SubmitFormProps {
  types: readonly JobType[];
  queues: readonly string[];
  start: SubmitStart;
  origin: string;
  withToken: boolean;
  busy: boolean;
  onType: (type: string) => void;
  onSubmit: (spec: JobSpec) => void;
}

type Mode = "Fields" | "JSON";
const MODES = ["Fields", "JSON"] as const;

/** A job to be: its type, its arguments as fields or as JSON, and everything else about it. */
export function SubmitForm({
  types,
  queues,
  start,
  origin,
  withToken,
  busy,
  onType,
  onSubmit,
}: SubmitFormProps) {
  const [type, setType] = useState(start.type);
  const [options, setOptions] = useState<Options>({ ...NO_OPTIONS, ...start.options });
  const [draft, setDraft] = useState(() => draftOf(find(types, start.type), start.payload));
  /** How often somebody tried to send it. */
  const [tried, setTried] = useState(0);
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    if (tried > 0) form.current?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus();
  }, [tried]);
  const known = find(types, type);
  const fields = useMemo(() => fieldsOf(known?.schema ?? null), [known]);
  const mode: Mode = fields === null ? "JSON" : draft.mode;

  const payload = useMemo((): { value: unknown; mistakes: Record<string, string>; json?: string } => {
    if (mode === "Fields" && fields) {
      const built = build(fields, draft.typed);
      return { value: built.payload, mistakes: built.mistakes };
    }
    if (draft.json.trim() === "") return { value: null, mistakes: {} };
    try {
      return { value: parseExact(draft.json), mistakes: {} };
    } catch (error) {
      return { value: null, mistakes: {}, json: error instanceof Error ? error.message : "not JSON" };
    }
  }, [mode, fields, draft]);
  const read = useMemo(() => readOptions(options), [options]);
  const typeMistake = type.trim() === "" ? NEEDED : undefined;
  const wanting = tell({ type: typeMistake, JSON: payload.json, ...payload.mistakes, ...read.mistakes });
  const spec: JobSpec | null =
    wanting === "" ? { type: type.trim(), payload: payload.value, ...read.fields } : null;

  const changeType = (next: string) => {
    setType(next);
    onType(next);
    const found = find(types, next);
    if (!found) return;
    setDraft(draftOf(found, undefined));
    setTried(0);
  };
  const changeMode = (next: Mode) => {
    if (next === "JSON") {
      const built = fields ? build(fields, draft.typed).payload : {};
      setDraft({ ...draft, mode: next, json: formatExact(built, 2) });
      return;
    }
    const typed = fields && payload.json === undefined ? spread(fields, payload.value) : null;
    setDraft({ ...draft, mode: next, typed: typed ?? draft.typed });
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (spec) onSubmit(spec);
    else setTried(tried + 1);
  };
  // What is merely not filled in yet is told only after somebody tried to send it.
  const told = Object.fromEntries(
    Object.entries(payload.mistakes).filter(([, mistake]) => tried > 0 || mistake !== NEEDED),
  );
  return (
    <form
      ref={form}
      onSubmit={submit}
      noValidate
      className="grid items-start gap-3 sm:gap-4 xl:grid-cols-[minmax(0,3fr)_minmax(0,2fr)]"
    >
      <div className="flex min-w-0 flex-col gap-3 sm:gap-4">
        <Panel title="What to run">
          <TypePicker types={types} value={type} mistake={typeMistake} onChange={changeType} />
        </Panel>
        <Panel
          title="Payload"
          actions={
            fields && <RangePicker label="Enter as" choices={MODES} value={mode} onChange={changeMode} />
          }
        >
          {mode === "Fields" && fields ? (
            <SchemaFields
              fields={fields}
              typed={draft.typed}
              mistakes={told}
              onChange={(name, text) => setDraft({ ...draft, typed: { ...draft.typed, [name]: text } })}
            />
          ) : (
            <JsonInput
              label="JSON"
              value={draft.json}
              mistake={payload.json}
              onChange={(json) => setDraft({ ...draft, json })}
            />
          )}
        </Panel>
        <Panel title="How to run it">
          <OptionFields
            type={known}
            options={options}
            mistakes={read.mistakes}
            queues={queues}
            onChange={(change) => setOptions({ ...options, ...change })}
          />
          <AdvancedFields
            type={known}
            options={options}
            mistakes={read.mistakes}
            onChange={(change) => setOptions({ ...options, ...change })}
          />
        </Panel>
        <div className="flex items-center gap-3">
          <Button type="submit" tone="primary" icon="submit" busy={busy}>
            Submit job
          </Button>
          {tried > 0 && wanting && (
            <span role="alert" className="wrap-any text-bad">
              Not sent. {wanting}
            </span>
          )}
        </div>
      </div>
      <Snippets spec={spec} wanting={wanting} origin={origin} withToken={withToken} />
    </form>
  );
}

const find = (types: readonly JobType[], name: string) => types.find(({ type }) => type === name);

interface Draft {
  mode: Mode;
  typed: Typed;
  json: string;
}

/** What stands in the form at first: what was given, else the type's example. */
function draftOf(type: JobType | undefined, given: unknown): Draft {
  const payload = given === undefined ? (type?.example ?? null) : given;
  const fields = fieldsOf(type?.schema ?? null);
  const typed = fields ? spread(fields, payload ?? {}) : null;
  // What was sent once can be sent again, also when the fields would not take it: an empty text, say.
  const fits = fields && typed && (given === undefined || !Object.keys(build(fields, typed).mistakes).length);
  return {
    mode: fits ? "Fields" : "JSON",
    typed: { ...(fields ? initials(fields) : {}), ...typed },
    json: payload === null ? "" : formatExact(payload, 2),
  };
}
