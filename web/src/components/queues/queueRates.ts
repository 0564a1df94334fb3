/**
 * How fast jobs come into each queue and leave it, from the counts that the stream sends. Pure: a history goes in with
 * each sample and a new one comes out. Old jobs are removed from time to time, so counts may fall; that is no rate.
 */

import type { Queue } from "@/api/model";

export interface Sample {
  /** Milliseconds since 1970. */
  at: number;
  totals: ReadonlyMap<string, { submitted: number; ended: number }>;
}

export interface Rates {
  /** Per second, over the last few. */
  submitted: number;
  ended: number;
  /** Ended per second, one value for each of the last seconds, oldest first. */
  trend: number[];
}

export const KEPT_MS = 60_000;
const OVER_MS = 10_000;
export const TREND = 30;

export function sampleOf(at: number, queues: readonly Queue[]): Sample {
  const totals = queues.map(({ name, counts }) => {
    const ended = counts.completed + counts.failed + counts.cancelled;
    const submitted = ended + counts.queued + counts.running + counts.scheduled + counts.blocked;
    return [name, { submitted, ended }] as const;
  });
  return { at, totals: new Map(totals) };
}

/** One sample per second at most; the latest of a second stands for it. */
export function withSample(history: readonly Sample[], sample: Sample): readonly Sample[] {
  const last = history.at(-1);
  if (last && sample.at < last.at) return [sample];
  const second = (at: number) => Math.floor(at / 1000);
  const kept =
    last && second(last.at) === second(sample.at) && history.length > 1 ? history.slice(0, -1) : history;
  return [...kept.filter(({ at }) => at >= sample.at - KEPT_MS), sample];
}

export function ratesOf(history: readonly Sample[], queue: string): Rates | null {
  const last = history.at(-1);
  const first = history.find(({ at }) => last !== undefined && at >= last.at - OVER_MS);
  if (!last || !first || last.at - first.at < 1000) return null;
  const sec = (last.at - first.at) / 1000;
  return {
    submitted: grown(first, last, queue, "submitted") / sec,
    ended: grown(first, last, queue, "ended") / sec,
    trend: trendOf(history, queue, last.at),
  };
}

function grown(from: Sample, to: Sample, queue: string, what: "submitted" | "ended"): number {
  const now = to.totals.get(queue)?.[what] ?? 0;
  return Math.max(0, now - (from.totals.get(queue)?.[what] ?? 0));
}

/** What was counted between two samples lies evenly between them. */
function trendOf(history: readonly Sample[], queue: string, end: number): number[] {
  const trend = Array<number>(TREND).fill(0);
  for (let index = 1; index < history.length; index++) {
    const [from, to] = [history[index - 1] as Sample, history[index] as Sample];
    const perSec = grown(from, to, queue, "ended") / Math.max(0.001, (to.at - from.at) / 1000);
    const first = Math.max(0, TREND - Math.ceil((end - from.at) / 1000));
    const past = TREND - Math.floor((end - to.at) / 1000);
    for (let slot = first; slot < past && slot < TREND; slot++) trend[slot] = perSec;
  }
  return trend;
}
