/** The charts' points: what the history has, and after it what the stream said since. Pure. */

import type { Point, Series } from "@/api/model";
import type { Rates, Second } from "@/live/state";

const highest = (a: number | null, b: number | null) => (a === null ? b : b === null ? a : Math.max(a, b));

/** Seconds of the stream, summed up in steps. */
export function bucket(seconds: readonly Second[], stepSec: number): Point[] {
  const points: Point[] = [];
  for (const second of seconds) {
    const at = Math.floor(second.at / (stepSec * 1000)) * stepSec * 1000;
    const last = points.at(-1);
    const same = last?.at === at ? last : undefined;
    const point: Point = {
      at,
      submitted: (same?.submitted ?? 0) + second.submitted,
      completed: (same?.completed ?? 0) + second.completed,
      failed: (same?.failed ?? 0) + second.failed,
      cancelled: (same?.cancelled ?? 0) + second.cancelled,
      retried: (same?.retried ?? 0) + second.retried,
      waitP50: second.waitP50,
      waitP95: second.waitP95,
      runP50: second.runP50,
      runP95: second.runP95,
      queueDepth: highest(same?.queueDepth ?? null, second.queueDepth),
      threadsUsed: highest(same?.threadsUsed ?? null, second.threadsUsed),
      threads: second.threads,
      workers: second.workers,
      wanted: second.wanted,
    };
    if (same) points[points.length - 1] = point;
    else points.push(point);
  }
  return points;
}

/**
 * One list of both. Steps that the stream saw from their beginning are its own; the one in which it began is whichever
 * has seen more. Without a history it is the stream alone.
 */
export function merge(history: Series | null, seconds: readonly Second[], stepSec: number): Point[] {
  const live = bucket(seconds, stepSec);
  const first = live[0];
  if (!history) return live;
  if (!first) return history.points;
  const before = history.points.filter((point) => point.at < first.at);
  const at = history.points.find((point) => point.at === first.at);
  const fuller = at && at.submitted + at.completed > first.submitted + first.completed ? at : first;
  // Steps between the end of the history and the stream stay a gap rather than becoming a line.
  return [...before, fuller, ...live.slice(1)];
}

/** How many jobs ended since a moment, and how many of them well; null where none ended. */
export function endedSince(points: readonly Point[], from: number): { ended: number; share: number | null } {
  let completed = 0;
  let failed = 0;
  for (const point of points) {
    if (point.at < from) continue;
    completed += point.completed;
    failed += point.failed;
  }
  const ended = completed + failed;
  return { ended, share: ended ? completed / ended : null };
}

/** Coordinators write the history every few seconds; a step is complete only some time after it is over. */
export const WRITTEN_MS = 5000;

/** The rates of the last complete step of the history, for when the stream has just begun. */
export function latestRates(history: Series | null, now: number): Rates | null {
  const last = history?.points.findLast((point) => point.at + history.stepSec * 1000 + WRITTEN_MS <= now);
  if (!history || !last) return null;
  const { stepSec } = history;
  return {
    submitted: last.submitted / stepSec,
    completed: last.completed / stepSec,
    failed: last.failed / stepSec,
  };
}

/** Counts become rates: of the step that is under way only what has passed of it counts. */
export function perSecond(points: readonly Point[], stepSec: number, now: number) {
  return (value: (point: Point) => number) =>
    points.map((point) => {
      const passed = Math.max(1, Math.min(stepSec, (now - point.at) / 1000));
      return value(point) / passed;
    });
}
