/** A schedule as it is typed into the form, and what is sent of it. Pure. */

import { formatExact, parseExact } from "@/api/json";
import type { Overlap, Schedule, ScheduleBody, When } from "@/api/schedules";
import { NEEDED } from "@/components/submit/fields";
import { seconds } from "@/components/submit/options";

export type By = "Cron" | "Interval";

export interface Draft {
  name: string;
  by: By;
  cron: string;
  every: string;
  timezone: string;
  type: string;
  payload: string;
  overlap: Overlap;
  catchUp: string;
  catchUpMax: string;
  jitter: string;
  pauseAfterFailures: string;
}

export type Field = Exclude<keyof Draft, "by">;
export type Mistakes = Partial<Record<Field, string>>;

export const NEW: Draft = {
  name: "",
  by: "Cron",
  cron: "",
  every: "",
  timezone: "UTC",
  type: "",
  payload: "",
  overlap: "allow",
  catchUp: "",
  catchUpMax: "",
  jitter: "",
  pauseAfterFailures: "",
};

/** The form for a schedule that is there. */
export function draftOf({ name, body }: Pick<Schedule, "name" | "body">): Draft {
  const text = (value: number | null | undefined) =>
    value === null || value === undefined ? "" : String(value);
  return {
    name,
    by: body.every_sec === null || body.every_sec === undefined ? "Cron" : "Interval",
    cron: body.cron ?? "",
    every: text(body.every_sec),
    timezone: body.timezone ?? "UTC",
    type: body.job.type ?? "",
    payload: isNothing(body.job.payload) ? "" : formatExact(body.job.payload, 2),
    overlap: body.overlap ?? "allow",
    catchUp: text(body.catch_up_sec),
    catchUpMax: text(body.catch_up_max),
    jitter: body.jitter_sec ? text(body.jitter_sec) : "",
    pauseAfterFailures: text(body.pause_after_failures),
  };
}

const isNothing = (value: unknown) => value === null || value === undefined;

/** What says when it ticks; null while there is nothing to ask the server about. */
export function whenOf({ by, cron, every, timezone }: Draft): When | null {
  const zone = timezone.trim() || "UTC";
  if (by === "Cron") return cron.trim() ? { cron: cron.trim(), timezone: zone } : null;
  const length = seconds(every);
  return length === null ? null : { every_sec: length, timezone: zone };
}

export interface Read {
  body: ScheduleBody;
  mistakes: Mistakes;
}

/** The body of the `PUT`. What the form does not show stays as it is in `before`. */
export function read(draft: Draft, before: ScheduleBody | null): Read {
  const mistakes: Mistakes = {};
  const body: ScheduleBody = { ...before, job: { ...before?.job } };
  if (!draft.name.trim()) mistakes.name = NEEDED;
  body.cron = draft.by === "Cron" ? draft.cron.trim() : null;
  if (body.cron === "") mistakes.cron = NEEDED;
  body.every_sec = draft.by === "Interval" ? seconds(draft.every) : null;
  if (draft.by === "Interval" && body.every_sec === null)
    mistakes.every = draft.every.trim() ? LENGTH : NEEDED;
  body.timezone = draft.timezone.trim() || "UTC";
  body.job.type = draft.type.trim();
  if (!body.job.type) mistakes.type = NEEDED;
  try {
    body.job.payload = draft.payload.trim() === "" ? null : parseExact(draft.payload);
  } catch (error) {
    mistakes.payload = error instanceof Error ? error.message : "not JSON";
  }
  body.overlap = draft.overlap;
  const length = (field: "catchUp" | "jitter", otherwise: number): number => {
    if (!draft[field].trim()) return otherwise;
    const value = seconds(draft[field]);
    if (value === null) mistakes[field] = LENGTH;
    return value ?? otherwise;
  };
  const whole = (field: "catchUpMax" | "pauseAfterFailures"): number | null => {
    const text = draft[field].trim();
    if (!text) return null;
    if (!/^\d+$/.test(text)) mistakes[field] = "a whole number";
    return Number(text);
  };
  body.catch_up_sec = length("catchUp", 60);
  body.catch_up_max = whole("catchUpMax") ?? 1;
  body.jitter_sec = length("jitter", 0);
  body.pause_after_failures = whole("pauseAfterFailures");
  return { body, mistakes };
}

const LENGTH = "seconds, or 10m, 2h, 1d";

const FIELDS: Record<string, Field> = {
  name: "name",
  cron: "cron",
  every_sec: "every",
  timezone: "timezone",
  "job.type": "type",
  "job.payload": "payload",
  job: "payload",
  overlap: "overlap",
  catch_up_sec: "catchUp",
  catch_up_max: "catchUpMax",
  jitter_sec: "jitter",
  pause_after_failures: "pauseAfterFailures",
};

export interface Refused {
  /** At their fields. */
  mistakes: Mistakes;
  /** What concerns nothing that the form shows, in words. */
  rest: string[];
}

/** What the server said about fields, at the form's own; `by` says which of the two expressions is shown. */
export function refused(fields: Readonly<Record<string, string>>, by: By): Refused {
  const found: Refused = { mistakes: {}, rest: [] };
  for (const [name, message] of Object.entries(fields)) {
    // With neither or both given, the server names one of the two: the one that is shown has the mistake.
    const known = FIELDS[name];
    const field = known === "cron" || known === "every" ? (by === "Cron" ? "cron" : "every") : known;
    if (field === undefined) found.rest.push(`${name} ${message}`);
    else found.mistakes[field] ??= message;
  }
  return found;
}
