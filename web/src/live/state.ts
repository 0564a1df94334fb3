/**
 * What the pages know from the live stream, and how each message changes it. Pure: the connection, the other tabs and
 * the clock are elsewhere.
 *
 * The stream has one position, `epoch:seq`. Within an epoch, what was missed is sent again after a reconnect, so numbers
 * may simply be added up. When the epoch changes or the server says `reset`, something was missed for good: `generation`
 * is counted up and whoever holds fetched data fetches it again.
 */

import * as convert from "@/api/convert";
import type { Bulk, JobRow, Queue, Stats, Worker } from "@/api/model";
import type { WireHello, WireUpdate } from "@/api/wire";

export type Phase =
  /** Not yet heard of the server. */
  | "connecting"
  | "live"
  /** Lost a moment ago; trying again. */
  | "reconnecting"
  /** Tried again and failed. */
  | "unreachable"
  /** Waits for a token. */
  | "unauthorized"
  /** The server has no event stream: pages poll. */
  | "unsupported";

/** One second of the recent past. */
export interface Second {
  /** Milliseconds since 1970, at the start of the second. */
  at: number;
  submitted: number;
  completed: number;
  failed: number;
  cancelled: number;
  retried: number;
  queueDepth: number;
  threadsUsed: number | null;
  threads: number | null;
  workers: number;
  wanted: number | null;
  waitP50: number | null;
  waitP95: number | null;
  runP50: number | null;
  runP95: number | null;
}

export interface LiveState {
  phase: Phase;
  /** When the connection was lost; null while it is up. */
  downSince: number | null;
  epoch: string | null;
  /** `EPOCH:SEQ` of the last message: where to go on. */
  position: string | null;
  version: string | null;
  /** Counts how often everything fetched became doubtful. */
  generation: number;
  /** The server's time of the last update. */
  updatedAt: number | null;
  stats: Stats | null;
  workers: Worker[] | null;
  queues: Queue[] | null;
  bulk: Readonly<Record<string, Bulk>>;
  /** Jobs in the order of their last change, the latest last; bounded. */
  jobs: ReadonlyMap<string, JobRow>;
  /** Ids changed by the last batch of messages. */
  changed: readonly string[];
  /** Counts changes that came without their jobs, as there were too many. */
  unseen: number;
  /** Jobs submitted since the page was opened. */
  submitted: number;
  /** From when on nothing was missed, by the server's clock; null until the first update. */
  watchedFrom: number | null;
  /** The last fifteen minutes or less, oldest first. */
  seconds: readonly Second[];
}

export const JOBS_KEPT = 1000;
export const SECONDS_KEPT = 15 * 60;

export const INITIAL: LiveState = {
  phase: "connecting",
  downSince: null,
  epoch: null,
  position: null,
  version: null,
  generation: 0,
  updatedAt: null,
  stats: null,
  workers: null,
  queues: null,
  bulk: {},
  jobs: new Map(),
  changed: [],
  unseen: 0,
  submitted: 0,
  watchedFrom: null,
  seconds: [],
};

export type LiveEvent =
  | { kind: "hello"; id: string | null; data: WireHello }
  | { kind: "reset"; id: string | null }
  | { kind: "update"; id: string | null; data: WireUpdate }
  | { kind: "lost"; at: number }
  | { kind: "failed"; at: number }
  | { kind: "unauthorized"; at: number }
  | { kind: "unsupported" };

/** All events of one render, in order. */
export function reduce(state: LiveState, events: readonly LiveEvent[]): LiveState {
  if (events.length === 0) return state;
  return events.reduce(step, { ...state, changed: [] });
}

export function step(state: LiveState, event: LiveEvent): LiveState {
  switch (event.kind) {
    case "hello":
      return hello(state, event.id, event.data);
    case "reset":
      return {
        ...state,
        generation: state.generation + 1,
        position: event.id ?? state.position,
        watchedFrom: null,
      };
    case "update":
      return update(state, event.id, event.data);
    case "lost":
      return { ...state, phase: "reconnecting", downSince: state.downSince ?? event.at };
    case "failed":
      return { ...state, phase: "unreachable", downSince: state.downSince ?? event.at };
    case "unauthorized":
      return { ...state, phase: "unauthorized", downSince: state.downSince ?? event.at };
    case "unsupported":
      return { ...state, phase: "unsupported", downSince: null };
  }
}

function hello(state: LiveState, id: string | null, data: WireHello): LiveState {
  const other = state.epoch !== null && state.epoch !== data.epoch;
  return {
    ...state,
    phase: "live",
    downSince: null,
    epoch: data.epoch,
    // In the same epoch we go on where we were: what we missed comes next.
    position: other || state.position === null ? id : state.position,
    version: data.version,
    generation: other ? state.generation + 1 : state.generation,
    watchedFrom: other ? null : state.watchedFrom,
  };
}

function update(state: LiveState, id: string | null, data: WireUpdate): LiveState {
  if (id !== null && !isNewer(id, state.position)) return state;
  const at = convert.time(data.at);
  const stats = convert.stats(data.stats);
  const rows = data.jobs.map(convert.liveJobRow);
  return {
    ...state,
    phase: "live",
    downSince: null,
    position: id ?? state.position,
    updatedAt: at,
    stats: { ...stats, uptimeSec: stats.uptimeSec ?? state.stats?.uptimeSec ?? null },
    workers: data.workers?.map(convert.worker) ?? state.workers,
    queues: data.queues?.map(convert.queue) ?? state.queues,
    bulk: data.bulk ? withBulk(state.bulk, data.bulk.map(convert.bulk)) : state.bulk,
    jobs: rows.length ? withJobs(state.jobs, rows) : state.jobs,
    changed: rows.length ? [...state.changed, ...rows.map((row) => row.id)] : state.changed,
    unseen: state.unseen + data.more,
    submitted: state.submitted + data.submitted,
    watchedFrom: state.watchedFrom ?? at,
    seconds: withSecond(state.seconds, at, data, stats),
  };
}

/** Whether a message comes after a position; across epochs it always does. */
export function isNewer(id: string, position: string | null): boolean {
  if (position === null) return true;
  const [epoch, seq] = split(id);
  const [lastEpoch, lastSeq] = split(position);
  return epoch !== lastEpoch || seq > lastSeq;
}

function split(position: string): [string, number] {
  const colon = position.lastIndexOf(":");
  return [position.slice(0, colon), Number(position.slice(colon + 1))];
}

function withBulk(known: LiveState["bulk"], changed: Bulk[]): LiveState["bulk"] {
  return { ...known, ...Object.fromEntries(changed.map((bulk) => [bulk.id, bulk])) };
}

function withJobs(known: ReadonlyMap<string, JobRow>, rows: JobRow[]): ReadonlyMap<string, JobRow> {
  const jobs = new Map(known);
  for (const row of rows) {
    const before = jobs.get(row.id);
    jobs.delete(row.id);
    jobs.set(row.id, before ? convert.mergeRow(before, row) : row);
  }
  for (const id of jobs.keys()) {
    if (jobs.size <= JOBS_KEPT) break;
    jobs.delete(id);
  }
  return jobs;
}

const highest = (a: number | null, b: number | null) => (a === null ? b : b === null ? a : Math.max(a, b));

function withSecond(
  seconds: readonly Second[],
  at: number,
  data: WireUpdate,
  stats: Stats,
): readonly Second[] {
  const start = Math.floor(at / 1000) * 1000;
  const last = seconds.at(-1);
  const same = last !== undefined && last.at >= start ? last : null;
  const second: Second = {
    at: same?.at ?? start,
    submitted: (same?.submitted ?? 0) + data.submitted,
    completed: (same?.completed ?? 0) + data.completed,
    failed: (same?.failed ?? 0) + data.failed,
    cancelled: (same?.cancelled ?? 0) + data.cancelled,
    retried: (same?.retried ?? 0) + data.retried,
    queueDepth: Math.max(same?.queueDepth ?? 0, stats.queueDepth),
    threadsUsed: highest(same?.threadsUsed ?? null, stats.threadsUsed),
    threads: stats.threads,
    workers: stats.workers,
    wanted: stats.scaling?.decision.wanted ?? null,
    waitP50: stats.waitP50,
    waitP95: stats.waitP95,
    runP50: stats.runP50,
    runP95: stats.runP95,
  };
  const kept = same ? seconds.slice(0, -1) : seconds.slice(-(SECONDS_KEPT - 1));
  return [...kept, second];
}

export interface Rates {
  submitted: number;
  completed: number;
  failed: number;
}

/**
 * Per second, over the last whole seconds before the last update; quiet seconds count as none. Seconds that we
 * did not watch from their beginning do not count at all: right after a load there are fewer to go by, and none at first.
 */
export function rates(state: LiveState, overSec = 5): Rates | null {
  if (state.updatedAt === null || state.watchedFrom === null) return null;
  const end = Math.floor(state.updatedAt / 1000) * 1000;
  const start = Math.max(end - overSec * 1000, Math.floor(state.watchedFrom / 1000) * 1000 + 1000);
  const watchedSec = (end - start) / 1000;
  if (watchedSec < 1) return null;
  const sum: Rates = { submitted: 0, completed: 0, failed: 0 };
  for (let index = state.seconds.length - 1; index >= 0; index--) {
    const second = state.seconds[index];
    if (!second || second.at < start) break;
    if (second.at >= end) continue;
    sum.submitted += second.submitted;
    sum.completed += second.completed;
    sum.failed += second.failed;
  }
  return {
    submitted: sum.submitted / watchedSec,
    completed: sum.completed / watchedSec,
    failed: sum.failed / watchedSec,
  };
}
