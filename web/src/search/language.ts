/**
 * The search language: `status:failed,cancelled type:resize queue:mail priority:0 worker:w1 age:>10m` and free text.
 *
 * A search is words. A word with a known key and a colon narrows the list; everything else is text, looked for at the
 * beginning of ids and anywhere in names. Values with spaces stand in double quotes. What cannot be understood is marked
 * at its place and told; the rest still works.
 */

import { type JobsFilter, STATUSES, type Status } from "@/api/model";

export const KEYS = [
  { key: "status", text: "queued, running, failed, …; several with commas" },
  { key: "type", text: "the job type" },
  { key: "queue", text: "the queue it stands in" },
  { key: "priority", text: "0 high, 1 normal, 2 low" },
  { key: "worker", text: "the worker that has or had it, by id or name" },
  { key: "age", text: ">10m older, <2h younger" },
  { key: "name", text: "exactly this name" },
  { key: "fingerprint", text: "failures of one kind" },
] as const;

export type Key = (typeof KEYS)[number]["key"];

export interface Word {
  /** Where it stands in the text. */
  from: number;
  to: number;
  key: Key | null;
  /** The value without quotes. */
  value: string;
}

export interface Mistake {
  from: number;
  to: number;
  message: string;
}

export interface Search {
  filter: JobsFilter;
  words: Word[];
  mistakes: Mistake[];
}

const isKey = (text: string): text is Key => KEYS.some(({ key }) => key === text);

export function words(text: string): Word[] {
  const found: Word[] = [];
  let at = 0;
  while (at < text.length) {
    if (/\s/.test(text[at] as string)) {
      at++;
      continue;
    }
    const from = at;
    let quoted = false;
    while (at < text.length && (quoted || !/\s/.test(text[at] as string))) {
      if (text[at] === "\\" && quoted) at++;
      else if (text[at] === '"') quoted = !quoted;
      at++;
    }
    at = Math.min(at, text.length);
    found.push(word(text.slice(from, at), from, at));
  }
  return found;
}

function word(raw: string, from: number, to: number): Word {
  const colon = raw.indexOf(":");
  const name = colon > 0 ? raw.slice(0, colon).toLowerCase() : "";
  const key = isKey(name) ? name : null;
  return { from, to, key, value: unquote(key === null ? raw : raw.slice(colon + 1)) };
}

function unquote(raw: string): string {
  return raw.replace(/\\(.)|"/g, (_, escaped: string | undefined) => escaped ?? "");
}

/** A value as it must be written to be read as one. */
export function quote(value: string): string {
  return /[\s"\\]/.test(value) || value === "" ? `"${value.replace(/["\\]/g, "\\$&")}"` : value;
}

export function parse(text: string): Search {
  const search: Search = { filter: {}, words: words(text), mistakes: [] };
  const free: string[] = [];
  const seen = new Set<Key>();
  for (const each of search.words) {
    if (each.key === null) {
      free.push(each.value);
      const suspect = strangeKey(each.value);
      if (suspect) search.mistakes.push({ from: each.from, to: each.to, message: suspect });
      continue;
    }
    const mistake =
      seen.has(each.key) && each.key !== "age"
        ? `${each.key} is there twice; only ${each.key === "status" ? "one list" : "one value"} is possible`
        : apply(search.filter, each.key, each.value);
    seen.add(each.key);
    if (mistake) search.mistakes.push({ from: each.from, to: each.to, message: mistake });
  }
  const rest = free.filter(Boolean).join(" ");
  if (rest) search.filter.text = rest;
  return search;
}

function strangeKey(value: string): string | null {
  const match = /^([a-z_]{2,}):/i.exec(value);
  if (!match) return null;
  return `there is no key ${match[1]}; looked for as text. Keys: ${KEYS.map(({ key }) => key).join(", ")}`;
}

/** Returns what is wrong, or null. */
function apply(filter: JobsFilter, key: Key, value: string): string | null {
  if (value === "") return `${key}: needs a value`;
  if (key === "status") return applyStatus(filter, value);
  if (key === "priority") return applyPriority(filter, value);
  if (key === "age") return applyAge(filter, value);
  filter[key] = value;
  return null;
}

function applyStatus(filter: JobsFilter, value: string): string | null {
  const names = value.toLowerCase().split(",").filter(Boolean);
  const known = names.filter((name): name is Status => (STATUSES as readonly string[]).includes(name));
  if (known.length) filter.status = [...new Set(known)];
  const unknown = names.filter((name) => !(STATUSES as readonly string[]).includes(name));
  return unknown.length ? `there is no status ${unknown.join(", ")}; there are ${STATUSES.join(", ")}` : null;
}

function applyPriority(filter: JobsFilter, value: string): string | null {
  const names: Record<string, number> = { high: 0, normal: 1, low: 2 };
  const priority = names[value.toLowerCase()] ?? (/^\d+$/.test(value) ? Number(value) : Number.NaN);
  if (!(priority >= 0 && priority <= 100)) return "priority is a number from 0 to 100, or high, normal, low";
  filter.priority = priority;
  return null;
}

const AGE = /^([<>]=?)?(\d+(?:\.\d+)?)(s|m|h|d)$/;

function applyAge(filter: JobsFilter, value: string): string | null {
  const match = AGE.exec(value.toLowerCase());
  if (!match) return "age is written as age:>10m or age:<2h (s, m, h, d)";
  const [, sign = ">", number = "", unit = ""] = match;
  if (sign.startsWith(">")) filter.created_before = `${number}${unit}`;
  else filter.created_after = `${number}${unit}`;
  return null;
}

/** A search with a key set to a value, or without it. */
export function withKey(text: string, key: Key, value: string | null): string {
  const kept = words(text)
    .filter((each) => each.key !== key)
    .map((each) => text.slice(each.from, each.to));
  return (value === null ? kept : [...kept, `${key}:${quote(value)}`]).join(" ");
}
