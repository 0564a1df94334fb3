/** A job that waits as it is typed into the form, and what is to change of it. Pure. */

import { formatExact, parseExact } from "@/api/json";
import { isRetrying, type Job, type JobEdit } from "@/api/model";
import { NONE, seconds } from "@/components/submit/options";

export interface EditDraft {
  priority: string;
  queue: string;
  /** As an `<input type="datetime-local">` has it; empty means now. */
  runAt: string;
  attempts: string;
  timeout: string;
  payload: string;
  metadata: string;
}

export type EditMistakes = Partial<Record<keyof EditDraft, string>>;

export function editDraft(job: Job): EditDraft {
  const waits = job.runAt !== null && (job.status === "scheduled" || isRetrying(job));
  return {
    priority: String(job.priority),
    queue: job.queue,
    runAt: waits && job.runAt !== null ? localTime(job.runAt) : "",
    attempts: job.maxAttempts === null ? "" : String(job.maxAttempts),
    timeout: job.timeoutSec === null ? "" : String(job.timeoutSec),
    payload: formatExact(job.payload, 2),
    metadata: Object.keys(job.metadata).length ? formatExact(job.metadata, 2) : "",
  };
}

/** 2026-01-31T12:00:00, by the visitor's clock. */
export function localTime(at: number): string {
  const shifted = new Date(at - new Date(at).getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, 19);
}

export interface ReadEdit {
  /** Only what differs. */
  edit: JobEdit;
  mistakes: EditMistakes;
}

export function readEdit(draft: EditDraft, before: EditDraft): ReadEdit {
  const edit: JobEdit = {};
  const mistakes: EditMistakes = {};
  const changed = (field: keyof EditDraft) => draft[field].trim() !== before[field].trim();
  const whole = (field: "priority" | "attempts", low: number, high: number): number | null => {
    const text = draft[field].trim();
    if (!text) return null;
    const value = Number(text);
    if (!Number.isInteger(value) || value < low || value > high)
      mistakes[field] = `a whole number from ${low} to ${high}`;
    return value;
  };
  const json = (field: "payload" | "metadata"): unknown => {
    if (draft[field].trim() === "") return null;
    try {
      return parseExact(draft[field]);
    } catch (error) {
      mistakes[field] = error instanceof Error ? error.message : "not JSON";
      return null;
    }
  };
  if (changed("priority")) edit.priority = whole("priority", 0, 100);
  if (changed("queue")) edit.queue = draft.queue.trim() || null;
  if (changed("runAt")) {
    const at = draft.runAt.trim();
    const time = Date.parse(at);
    if (at && Number.isNaN(time)) mistakes.runAt = "a date and a time";
    else edit.run_at = at ? new Date(time).toISOString() : null;
  }
  if (changed("attempts")) edit.max_attempts = whole("attempts", 1, 100);
  if (changed("timeout")) {
    const text = draft.timeout.trim().toLowerCase();
    const value = text === "" || text === NONE ? null : seconds(text);
    if (value === null && text !== "" && text !== NONE) mistakes.timeout = "seconds, or 10m, 2h, 1d";
    else edit.timeout_sec = value;
  }
  if (changed("payload")) edit.payload = json("payload");
  if (changed("metadata")) {
    const value = json("metadata");
    if (isPairs(value)) edit.metadata = value;
    else mistakes.metadata ??= 'names and texts: {"customer": "42"}';
  }
  return { edit, mistakes };
}

function isPairs(value: unknown): value is Record<string, string> | null {
  if (value === null) return true;
  if (typeof value !== "object" || Array.isArray(value)) return false;
  return Object.values(value).every((each) => typeof each === "string");
}

const FIELDS: Record<string, keyof EditDraft> = {
  priority: "priority",
  queue: "queue",
  run_at: "runAt",
  max_attempts: "attempts",
  timeout_sec: "timeout",
  payload: "payload",
  metadata: "metadata",
};

/** What the server said about fields, at the form's own; `metadata.x` belongs to `metadata`. */
export function refusedEdit(fields: Readonly<Record<string, string>>): EditMistakes {
  const mistakes: EditMistakes = {};
  for (const [name, message] of Object.entries(fields)) {
    const field = FIELDS[/^\w+/.exec(name)?.[0] ?? ""];
    if (field) mistakes[field] ??= message;
  }
  return mistakes;
}
