/**
 * How a search is written: `status:failed,cancelled type:resize queue:mail priority:high worker:w1 age:>10m` and free text.
 *
 * What a search means is for the server to say: it gets the text as it was typed, and refuses it as a whole when there is a
 * word that it does not understand. Here it is only taken apart into words, for completion and for the tabs.
 */

import { STATUSES, type Status } from "@/api/model";

export const KEYS = [
  { key: "status", text: "queued, running, failed, …; several with commas" },
  { key: "type", text: "the job type" },
  { key: "queue", text: "the queue it stands in" },
  { key: "priority", text: "high, normal, low, or a number from 0 to 100" },
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

/** The statuses that a search names, for the tabs; what is no status is none of them. */
export function statusesIn(text: string): Status[] {
  const named = words(text)
    .filter((each) => each.key === "status")
    .flatMap((each) => each.value.toLowerCase().split(","));
  return STATUSES.filter((status) => named.includes(status));
}

/** A search with a key set to a value, or without it. */
export function withKey(text: string, key: Key, value: string | null): string {
  const kept = words(text)
    .filter((each) => each.key !== key)
    .map((each) => text.slice(each.from, each.to));
  return (value === null ? kept : [...kept, `${key}:${quote(value)}`]).join(" ");
}
