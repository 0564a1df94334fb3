/** Jobs as files. Everything that a job has is in the JSON; the CSV has a column for each field. */

import { formatExact } from "@/api/json";

const COLUMNS = [
  "id",
  "type",
  "name",
  "queue",
  "priority",
  "status",
  "attempt",
  "max_attempts",
  "thread_demand",
  "worker_id",
  "created_at",
  "run_at",
  "started_at",
  "completed_at",
  "queue_time_sec",
  "execution_time_sec",
  "total_time_sec",
  "payload",
  "result",
  "error",
] as const;

/**
 * A spreadsheet must not take a job's text for a formula, so what begins like one gets an apostrophe before it. Numbers
 * are numbers.
 */
export function csvCell(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "number" || typeof value === "bigint" || typeof value === "boolean")
    return String(value);
  const raw = typeof value === "string" ? value : formatExact(value);
  const text = /^[=+\-@\t\r]/.test(raw) ? `'${raw}` : raw;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

type Fields = Readonly<Record<string, unknown>>;

export const csvHead = (): string => `${COLUMNS.join(",")}\r\n`;

export const csvRow = (job: Fields): string =>
  `${COLUMNS.map((column) => csvCell(job[column])).join(",")}\r\n`;

export function toCsv(jobs: readonly Fields[]): string {
  return csvHead() + jobs.map(csvRow).join("");
}

export function toJson(jobs: readonly Fields[]): string {
  return `${formatExact(jobs, 2)}\n`;
}
