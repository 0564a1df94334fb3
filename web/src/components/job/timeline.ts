/**
 * Where a job's time went, as bars on one axis: waited, ran, backed off. Pure; `now` is the end of what still goes on.
 *
 * The server keeps when an attempt was claimed, started and finished and how long it was told to back off. What lies
 * between follows from it, except for what nobody wrote down: how long a job was over before a person retried it.
 */

import { type Attempt, isFinal, type Job } from "@/api/model";

export type BarKind =
  /** Held until its time: a delay, or the next retry. */
  | "delayed"
  /** Due, and not running. */
  | "waited"
  | "ran"
  | "backed off"
  /** Over, until somebody ran it again. */
  | "over";

export interface Bar {
  kind: BarKind;
  /** Milliseconds since 1970. */
  from: number;
  to: number;
  /** It is still going on. */
  open: boolean;
}

export interface TimelineRow {
  /** 0 for a job that no worker has taken yet. */
  attempt: number;
  claimId: number;
  outcome: string | null;
  workerId: string | null;
  bars: Bar[];
}

export interface Timeline {
  from: number;
  to: number;
  rows: TimelineRow[];
  totals: Record<BarKind, number>;
}

type TimedJob = Pick<Job, "createdAt" | "runAt" | "completedAt" | "status" | "attempts">;

/** Outcomes after which a job goes on by itself. */
const GOES_ON = new Set(["retried", "handed_back", "lost", "snoozed"]);

const OUTCOMES: Record<string, string> = {
  invalid: "failed, not retried",
  handed_back: "handed back",
  snoozed: "snoozed, not charged",
};

/** How an attempt ended, in words for people; null for one that has not begun. */
export const outcomeText = (outcome: string | null): string =>
  outcome === null ? "waiting" : (OUTCOMES[outcome] ?? outcome.replaceAll("_", " "));

export function timeline(job: TimedJob, now: number): Timeline {
  const rows: TimelineRow[] = [];
  const attempts = job.attempts.toSorted((a, b) => a.claimId - b.claimId);
  let at = job.createdAt;
  let before: Attempt | null = null;
  for (const attempt of attempts) {
    const start = attempt.startedAt ?? attempt.claimedAt ?? at;
    const end = attempt.finishedAt ?? Math.max(now, start);
    const due = dueAt(job, before, at, attempts.length === 1);
    const bars = [...gap(before, at, due, start), bar("ran", start, end, attempt.finishedAt === null)];
    rows.push({
      attempt: attempt.attempt,
      claimId: attempt.claimId,
      outcome: attempt.finishedAt === null ? "running" : attempt.outcome,
      workerId: attempt.workerId,
      bars: bars.filter(lasts),
    });
    at = end;
    before = attempt;
  }
  const pending = !isFinal(job.status) && before?.finishedAt !== null;
  if (pending) rows.push(pendingRow(job, before, at, now));
  else if (rows.length === 0) rows.push(endedUnclaimed(job, now));
  return measured(rows, job.createdAt);
}

/** When a job became due again after `at`. */
function dueAt(job: TimedJob, before: Attempt | null, at: number, only: boolean): number {
  if (before) return before.retryDelaySec ? at + before.retryDelaySec * 1000 : at;
  // Later attempts overwrite `run_at`, so the delay of the first is known only while it is the only one.
  return only && job.runAt !== null ? Math.max(at, job.runAt) : at;
}

function gap(before: Attempt | null, from: number, due: number, until: number): Bar[] {
  const middle = Math.min(Math.max(from, due), until);
  if (before && before.retryDelaySec === null && !GOES_ON.has(before.outcome))
    return [bar("over", from, until)];
  return [bar(before ? "backed off" : "delayed", from, middle), bar("waited", middle, until)];
}

function pendingRow(job: TimedJob, before: Attempt | null, at: number, now: number): TimelineRow {
  const until = Math.max(now, at);
  const due = job.runAt === null ? at : Math.max(at, job.runAt);
  const bars = [
    bar(before ? "backed off" : "delayed", at, Math.min(due, until), due > until),
    bar("waited", Math.min(due, until), until, due <= until),
  ];
  return {
    attempt: (before?.attempt ?? 0) + 1,
    claimId: 0,
    outcome: null,
    workerId: null,
    bars: bars.filter(lasts),
  };
}

/** Cancelled before a worker took it. */
function endedUnclaimed(job: TimedJob, now: number): TimelineRow {
  const bars = [bar("waited", job.createdAt, job.completedAt ?? now)];
  return { attempt: 0, claimId: 0, outcome: job.status, workerId: null, bars: bars.filter(lasts) };
}

const bar = (kind: BarKind, from: number, to: number, open = false): Bar => ({ kind, from, to, open });
const lasts = ({ from, to, open, kind }: Bar) => to > from || open || kind === "ran";

function measured(rows: TimelineRow[], from: number): Timeline {
  const totals: Timeline["totals"] = { delayed: 0, waited: 0, ran: 0, "backed off": 0, over: 0 };
  let to = from;
  for (const row of rows) {
    for (const bar of row.bars) {
      totals[bar.kind] += Math.max(0, bar.to - bar.from) / 1000;
      to = Math.max(to, bar.to);
    }
  }
  return { from, to, rows, totals };
}

/** Left edge and width in per cent of the whole. */
export function place(
  { from, to }: { from: number; to: number },
  within: Timeline,
): { left: number; width: number } {
  const span = Math.max(1, within.to - within.from);
  const left = Math.min(100, Math.max(0, ((from - within.from) / span) * 100));
  return { left, width: Math.min(100 - left, (Math.max(0, to - from) / span) * 100) };
}

const NICE = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400];

/** Seconds since the start at which the axis has a mark: round numbers, some four of them. */
export function ticks(spanSec: number, wanted = 4): number[] {
  if (!(spanSec > 0)) return [0];
  const raw = spanSec / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const below = ([1, 2, 5, 10].find((step) => step * power >= raw) ?? 10) * power;
  const step = raw < 1 ? below : (NICE.find((nice) => nice >= raw) ?? Math.ceil(raw / 86_400) * 86_400);
  const marks: number[] = [];
  for (let index = 0; index * step <= spanSec * 1.0001; index++)
    marks.push(Number((index * step).toPrecision(12)));
  return marks;
}
