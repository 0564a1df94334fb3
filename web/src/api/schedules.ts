/** Schedules: their UI types, the calls, and what pages fetch of them. */

import { queryOptions } from "@tanstack/react-query";
import { request, segment } from "./client";
import * as convert from "./convert";
import type { Job, Status } from "./model";
import type {
  WireJob,
  WireSchedule,
  WireScheduleBody,
  WireSchedules,
  WireTick,
  WireTicks,
  WireTimes,
} from "./wire";

export interface Schedule {
  name: string;
  cron: string | null;
  everySec: number | null;
  timezone: string;
  /** The type of its jobs. */
  type: string;
  paused: boolean;
  pausedAt: number | null;
  /** It was paused because its jobs failed one after the other. */
  pausedByFailures: boolean;
  /** Its app no longer declares it. */
  orphaned: boolean;
  app: string | null;
  overlap: WireSchedule["overlap"];
  updatedAt: number;
  nextRunAt: number | null;
  lastRunAt: number | null;
  lastJobId: string | null;
  /** Null when that job is not kept any more. */
  lastStatus: Status | null;
  /** What a `PUT` would have to say to leave it as it is. */
  body: ScheduleBody;
}

export type ScheduleBody = WireScheduleBody;
export type Overlap = WireSchedule["overlap"];

/** What became of a tick, or of all ticks from `tick` to `last`. */
export interface Tick {
  kind: WireTick["kind"];
  outcome: WireTick["outcome"];
  tick: number;
  last: number;
  reason: string | null;
  jobId: string | null;
}

export interface SchedulesPage {
  schedules: Schedule[];
  nextCursor: string | null;
}

/** The fields that say when a schedule ticks. */
export interface When {
  cron?: string;
  every_sec?: number;
  timezone: string;
}

export function schedule(wire: WireSchedule): Schedule {
  const job = wire.job as ScheduleBody["job"];
  return {
    name: wire.name,
    cron: wire.cron,
    everySec: wire.every_sec,
    timezone: wire.timezone,
    type: job.type ?? "echo",
    paused: wire.paused,
    pausedAt: convert.timeOrNull(wire.paused_at),
    pausedByFailures: wire.pause_reason === "failures",
    orphaned: wire.orphaned,
    app: wire.app,
    overlap: wire.overlap,
    updatedAt: convert.time(wire.updated_at),
    nextRunAt: convert.timeOrNull(wire.next_run_at),
    lastRunAt: convert.timeOrNull(wire.last_run_at),
    lastJobId: wire.last_job_id,
    lastStatus: wire.last_status as Status | null,
    body: {
      cron: wire.cron,
      every_sec: wire.every_sec,
      timezone: wire.timezone,
      overlap: wire.overlap,
      catch_up_sec: wire.catch_up_sec,
      catch_up_max: wire.catch_up_max,
      jitter_sec: wire.jitter_sec,
      start_at: wire.start_at,
      end_at: wire.end_at,
      pause_after_failures: wire.pause_after_failures,
      job,
    },
  };
}

export function tick(wire: WireTick): Tick {
  return {
    kind: wire.kind,
    outcome: wire.outcome,
    tick: convert.time(wire.tick),
    last: convert.time(wire.last),
    reason: wire.reason,
    jobId: wire.job_id,
  };
}

type Signal = AbortSignal | undefined;

const at = (name: string, rest = "") => `/schedules/${segment(name)}${rest}`;
const times = (wire: WireTimes): number[] => wire.times.map(convert.time);

export async function listSchedules(limit: number, signal?: Signal): Promise<SchedulesPage> {
  const page = await request<WireSchedules>("/schedules", { params: { limit }, signal });
  return { schedules: page.schedules.map(schedule), nextCursor: page.next_cursor };
}

/** One, with the numbers in its payload as they were written. */
export const getSchedule = async (name: string, signal?: Signal): Promise<Schedule> =>
  schedule(await request<WireSchedule>(at(name), { signal, exact: true }));

export const putSchedule = async (name: string, body: ScheduleBody): Promise<Schedule> =>
  schedule(await request<WireSchedule>(at(name), { method: "PUT", body, exact: true }));

export const deleteSchedule = async (name: string): Promise<Schedule> =>
  schedule(await request<WireSchedule>(at(name), { method: "DELETE" }));

export const setSchedulePaused = async (name: string, paused: boolean): Promise<Schedule> =>
  schedule(await request<WireSchedule>(at(name, paused ? "/pause" : "/resume"), { method: "POST" }));

export const triggerSchedule = async (name: string): Promise<Job> =>
  convert.job(await request<WireJob>(at(name, "/trigger"), { method: "POST", exact: true }));

const getNext = async (name: string, count: number, signal?: Signal): Promise<number[]> =>
  times(await request<WireTimes>(at(name, "/next"), { params: { count }, signal }));

const getTicks = async (name: string, limit: number, signal?: Signal): Promise<Tick[]> =>
  (await request<WireTicks>(at(name, "/ticks"), { params: { limit }, signal })).ticks.map(tick);

const getPreview = async (when: When, count: number, signal?: Signal): Promise<number[]> =>
  times(await request<WireTimes>("/schedules/preview", { params: { ...when, count }, signal }));

const ALL = ["schedules"] as const;
export const scheduleKeys = { all: ALL };

/** The stream says nothing about schedules, so they are looked at again every few seconds while they are shown. */
const AGAIN_MS = 4000;

export const schedulesQuery = (limit: number) =>
  queryOptions({
    queryKey: [...ALL, "list", limit],
    queryFn: ({ signal }) => listSchedules(limit, signal),
    refetchInterval: AGAIN_MS,
    placeholderData: (before) => before,
  });

export const scheduleQuery = (name: string) =>
  queryOptions({
    queryKey: [...ALL, "one", name],
    queryFn: ({ signal }) => getSchedule(name, signal),
    refetchInterval: AGAIN_MS,
  });

/** Asked again when a tick has passed or its times were changed: then the key is another one. */
export const nextQuery = ({ name, nextRunAt, updatedAt }: Schedule, count: number) =>
  queryOptions({
    queryKey: [...ALL, "next", name, count, nextRunAt, updatedAt],
    queryFn: ({ signal }) => getNext(name, count, signal),
    placeholderData: (before) => before,
    gcTime: 20_000,
  });

export const ticksQuery = ({ name, nextRunAt, lastRunAt, lastJobId, updatedAt }: Schedule, limit: number) =>
  queryOptions({
    queryKey: [...ALL, "ticks", name, limit, nextRunAt, lastRunAt, lastJobId, updatedAt],
    queryFn: ({ signal }) => getTicks(name, limit, signal),
    placeholderData: (before) => before,
    gcTime: 20_000,
  });

/** When an expression would tick; refused with what is wrong with which field. */
export const previewQuery = (when: When | null, count: number) =>
  queryOptions({
    queryKey: [...ALL, "preview", when, count],
    queryFn: ({ signal }) => getPreview(when ?? { timezone: "UTC" }, count, signal),
    enabled: when !== null,
    retry: false,
    gcTime: 20_000,
  });
