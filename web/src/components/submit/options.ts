/** Everything about a job but its type and payload, as typed; what is empty is left to the type's defaults. Pure. */

import { type JobSpec, type JobType, priorityName } from "@/api/model";

export interface Options {
  name: string;
  queue: string;
  priority: string;
  threads: string;
  timeout: string;
  memory: string;
  delay: string;
  attempts: string;
  uniqueKey: string;
  onConflict: string;
  uniqueUntil: string;
  expires: string;
  deadline: string;
  softTimeout: string;
}

export const NO_OPTIONS: Options = {
  name: "",
  queue: "",
  priority: "",
  threads: "",
  timeout: "",
  memory: "",
  delay: "",
  attempts: "",
  uniqueKey: "",
  onConflict: "",
  uniqueUntil: "",
  expires: "",
  deadline: "",
  softTimeout: "",
};

/** Typed where a limit should be none although the type has one. */
export const NONE = "none";

/** What an empty field means: what the workers of the type announced, else what holds for every job. */
export function defaultsOf(type: JobType | undefined): Options {
  const defaults = type?.defaults ?? {};
  const text = (value: number | null | undefined, otherwise: string) =>
    value === null || value === undefined ? otherwise : String(value);
  return {
    name: "",
    queue: defaults.queue ?? "default",
    priority: priorityName(defaults.priority ?? 1),
    threads: text(defaults.thread_demand, "1"),
    timeout: text(defaults.timeout_sec, NONE),
    memory: text(defaults.memory_mb, NONE),
    delay: NONE,
    attempts: text(defaults.max_attempts, "4"),
    uniqueKey: NONE,
    onConflict: defaults.on_conflict ?? "return",
    uniqueUntil: defaults.unique_until ?? "finished",
    expires: text(defaults.expires_in_sec, NONE),
    deadline: text(defaults.deadline_sec, NONE),
    softTimeout: text(defaults.soft_timeout_sec, NONE),
  };
}

type OptionFields = Omit<JobSpec, "type" | "payload">;

export interface ReadOptions {
  fields: OptionFields;
  mistakes: Partial<Record<keyof Options, string>>;
}

const UNITS: Record<string, number> = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86_400 };

/** `90`, `1.5h`, `10m`: seconds unless it says otherwise. Null when it is none. */
export function seconds(text: string): number | null {
  const match = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?$/.exec(text.trim());
  return match ? Number(match[1]) * (UNITS[match[2] ?? "s"] ?? 1) : null;
}

export function readOptions(options: Options): ReadOptions {
  const read: ReadOptions = { fields: {}, mistakes: {} };
  const { fields, mistakes } = read;
  if (options.name) fields.name = options.name;
  if (options.queue) fields.queue = options.queue;
  const whole = (key: keyof Options, low: number, high: number): number | undefined => {
    const text = options[key].trim();
    if (!text) return undefined;
    const value = Number(text);
    if (Number.isInteger(value) && value >= low && value <= high) return value;
    mistakes[key] = `a whole number from ${low} to ${high}`;
    return undefined;
  };
  const length = (key: keyof Options, least: number): number | undefined => {
    const text = options[key].trim();
    if (!text) return undefined;
    const value = seconds(text);
    if (value !== null && value >= least) return value;
    mistakes[key] = "seconds, or 10m, 2h, 1d";
    return undefined;
  };
  const isNone = (key: keyof Options) => options[key].trim().toLowerCase() === NONE;
  const priority = whole("priority", 0, 100);
  if (priority !== undefined) fields.priority = priority;
  const threads = whole("threads", 1, 1024);
  if (threads !== undefined) fields.thread_demand = threads;
  const timeout = isNone("timeout") ? null : length("timeout", 0.001);
  if (timeout !== undefined) fields.timeout_sec = timeout;
  const memory = isNone("memory") ? null : whole("memory", 1, 16_777_216);
  if (memory !== undefined) fields.memory_mb = memory;
  const delay = length("delay", 0);
  if (delay) fields.delay_sec = delay;
  const attempts = whole("attempts", 1, 100);
  if (attempts !== undefined) fields.max_attempts = attempts;
  if (options.uniqueKey) fields.unique_key = options.uniqueKey;
  if (options.onConflict) fields.on_conflict = options.onConflict as OptionFields["on_conflict"];
  if (options.uniqueUntil) fields.unique_until = options.uniqueUntil as OptionFields["unique_until"];
  for (const key of ["onConflict", "uniqueUntil"] as const) {
    if (options[key] && !options.uniqueKey) mistakes[key] = "needs a unique key";
  }
  const expires = isNone("expires") ? null : length("expires", 0.001);
  if (expires !== undefined) fields.expires_in_sec = expires;
  const deadline = isNone("deadline") ? null : length("deadline", 0.001);
  if (deadline !== undefined) fields.deadline_sec = deadline;
  const softTimeout = isNone("softTimeout") ? null : length("softTimeout", 0.001);
  if (softTimeout !== undefined) fields.soft_timeout_sec = softTimeout;
  return read;
}
