/** What may come next in a search: keys first, then values that are known to exist. Pure. */

import { PRIORITY_NAMES, STATUSES } from "@/api/model";
import { KEYS, type Key, quote } from "./language";

export interface Known {
  types: readonly string[];
  queues: readonly string[];
  workers: readonly string[];
}

export interface Completion {
  /** What is replaced. */
  from: number;
  to: number;
  options: { insert: string; text: string; detail: string }[];
}

const AGES = [">10m", ">1h", ">1d", "<10m", "<1h", "<1d"];
const MOST = 8;

/** The completion at the caret, or null when there is nothing to say. */
export function complete(text: string, caret: number, known: Known): Completion | null {
  const from = wordStart(text, caret);
  const typed = text.slice(from, caret);
  const colon = typed.indexOf(":");
  if (colon < 0) return keys(typed, from, caret);
  const key = KEYS.find(({ key }) => key === typed.slice(0, colon).toLowerCase())?.key;
  if (!key) return null;
  return values(key, typed.slice(colon + 1), from + colon + 1, caret, known);
}

function wordStart(text: string, caret: number): number {
  let start = 0;
  let quoted = false;
  for (let at = 0; at < caret; at++) {
    if (text[at] === '"') quoted = !quoted;
    else if (!quoted && /\s/.test(text[at] as string)) start = at + 1;
  }
  return start;
}

function keys(typed: string, from: number, to: number): Completion | null {
  const lower = typed.toLowerCase();
  const options = KEYS.filter(({ key }) => key.startsWith(lower) && key !== lower).map(({ key, text }) => ({
    insert: `${key}:`,
    text: `${key}:`,
    detail: text,
  }));
  return options.length ? { from, to, options } : null;
}

function values(key: Key, typed: string, from: number, to: number, known: Known): Completion | null {
  // Of a list, only what comes after the last comma is being typed.
  const start = key === "status" ? typed.lastIndexOf(",") + 1 : 0;
  const taken = new Set(typed.slice(0, start).split(","));
  const part = typed.slice(start).replaceAll('"', "").toLowerCase();
  const options = candidates(key, known)
    .filter(
      (value) => value.toLowerCase().includes(part) && !taken.has(value) && value.toLowerCase() !== part,
    )
    .sort((a, b) => Number(b.toLowerCase().startsWith(part)) - Number(a.toLowerCase().startsWith(part)))
    .slice(0, MOST)
    .map((value) => ({ insert: `${quote(value)} `, text: value, detail: key }));
  return options.length ? { from: from + start, to, options } : null;
}

function candidates(key: Key, known: Known): readonly string[] {
  switch (key) {
    case "status":
      return STATUSES;
    case "type":
      return known.types;
    case "queue":
      return known.queues;
    case "worker":
      return known.workers;
    case "priority":
      return PRIORITY_NAMES;
    case "age":
      return AGES;
    default:
      return [];
  }
}

/** The text after an option was taken, and where the caret is then. */
export function take(text: string, completion: Completion, insert: string): { text: string; caret: number } {
  const rest = text.slice(completion.to).replace(/^ /, insert.endsWith(" ") ? "" : " ");
  return { text: text.slice(0, completion.from) + insert + rest, caret: completion.from + insert.length };
}
