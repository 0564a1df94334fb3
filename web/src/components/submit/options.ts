/** Everything about a job but its type and payload, as typed. Pure. */

import type { JobSpec } from "@/api/model";

export interface Options {
  name: string;
  queue: string;
  priority: string;
  threads: string;
  timeout: string;
  delay: string;
  attempts: string;
}

export const NO_OPTIONS: Options = {
  name: "",
  queue: "",
  priority: "1",
  threads: "",
  timeout: "",
  delay: "",
  attempts: "",
};

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
  if (options.queue && options.queue !== "default") fields.queue = options.queue;
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
  const priority = whole("priority", 0, 100);
  if (priority !== undefined && priority !== 1) fields.priority = priority;
  const threads = whole("threads", 1, 1024);
  if (threads !== undefined && threads !== 1) fields.thread_demand = threads;
  const timeout = length("timeout", 0.001);
  if (timeout !== undefined) fields.timeout_sec = timeout;
  const delay = length("delay", 0);
  if (delay) fields.delay_sec = delay;
  const attempts = whole("attempts", 1, 100);
  if (attempts !== undefined) fields.max_attempts = attempts;
  return read;
}
