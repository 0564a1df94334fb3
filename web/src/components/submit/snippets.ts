/** The same submission from a shell or a program. Pure. */

import { formatExact } from "@/api/json";
import type { JobSpec } from "@/api/model";

/** For a POSIX shell: whatever is inside stays what it is. */
export const shellQuote = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;

export function curl(spec: JobSpec, origin: string, withToken: boolean): string {
  const lines = [
    `curl -X POST ${shellQuote(`${origin}/jobs`)}`,
    ...(withToken ? [`  -H "Authorization: Bearer $STOKER_TOKEN"`] : []),
    "  -H 'Content-Type: application/json'",
    `  -d ${shellQuote(formatExact(spec))}`,
  ];
  return lines.join(" \\\n");
}

const OPTIONS = [
  ["queue", "--queue"],
  ["name", "--name"],
  ["priority", "--priority"],
  ["thread_demand", "--threads"],
  ["timeout_sec", "--timeout"],
  ["memory_mb", "--memory-mb"],
  ["delay_sec", "--delay"],
  ["max_attempts", "--max-attempts"],
  ["unique_key", "--unique-key"],
  ["on_conflict", "--on-conflict"],
  ["unique_until", "--unique-until"],
  ["expires_in_sec", "--expires-in"],
  ["deadline_sec", "--deadline"],
  ["soft_timeout_sec", "--soft-timeout"],
] as const satisfies readonly (readonly [keyof JobSpec, string])[];

export function cli(spec: JobSpec, origin: string): string {
  const words = ["stoker submit", shellQuote(spec.type), shellQuote(formatExact(spec.payload))];
  for (const [field, option] of OPTIONS) {
    const value = spec[field];
    if (value !== undefined && value !== null) words.push(`${option} ${shellQuote(String(value))}`);
  }
  if (origin !== "http://127.0.0.1:8080") words.push(`--url ${shellQuote(origin)}`);
  return words.join(" ");
}

export function python(spec: JobSpec, origin: string): string {
  const { type, payload, ...options } = spec;
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  const args = [
    pythonValue(type),
    pythonValue(payload),
    ...given.map(([name, value]) => `${name}=${pythonValue(value)}`),
  ];
  return [
    "from stoker import Stoker",
    "",
    `app = Stoker(${pythonValue(origin)})`,
    `job = app.submit(${args.join(", ")})`,
    "print(job.result(timeout=60))",
  ].join("\n");
}

/** JSON differs from Python in three words; text and numbers are written alike. */
export function pythonValue(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(pythonValue).join(", ")}]`;
  const isPlain = typeof value === "object" && Object.getPrototypeOf(value) === Object.prototype;
  if (isPlain)
    return `{${Object.entries(value)
      .map(([key, item]) => `${JSON.stringify(key)}: ${pythonValue(item)}`)
      .join(", ")}}`;
  return formatExact(value);
}
