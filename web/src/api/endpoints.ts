/** Every call that the dashboard makes, in UI types. */

import { open, type Params, request, segment } from "./client";
import * as convert from "./convert";
import type {
  BreakdownRow,
  Bulk,
  BulkAction,
  DeadLetter,
  DeadLetterGroups,
  Job,
  JobEdit,
  JobSpec,
  JobsFilter,
  JobsPage,
  JobType,
  Logs,
  Queue,
  Series,
  Stats,
  Why,
  Worker,
} from "./model";
import type {
  WireBreakdown,
  WireBulk,
  WireCount,
  WireDeadLetterChoice,
  WireDeadLetterGroups,
  WireJob,
  WireJobs,
  WireJobTypes,
  WireLogs,
  WireQueue,
  WireQueues,
  WireSeries,
  WireStats,
  WireWhy,
  WireWorker,
  WireWorkers,
} from "./wire";

type Signal = AbortSignal | undefined;

export const getStats = async (signal?: Signal): Promise<Stats> =>
  convert.stats(await request<WireStats>("/stats", { signal }));

export interface PageOptions {
  limit?: number;
  offset?: number;
  cursor?: string;
}

/** Answers that a page of a list is put together from, at most: each of them looks at a bounded number of jobs. */
const ANSWERS_MOST = 20;

export async function listJobs(filter: JobsFilter, page: PageOptions, signal?: Signal): Promise<JobsPage> {
  const ask = async (options: PageOptions): Promise<JobsPage> => {
    const params = { ...convert.filterParams(filter), ...options, summary: 1 };
    return convert.jobsPage(await request<WireJobs>("/jobs", { params, signal }));
  };
  let found = await ask(page);
  const limit = page.limit ?? found.rows.length;
  for (let answers = 1; answers < ANSWERS_MOST && found.nextCursor && found.rows.length < limit; answers++) {
    const next = await ask({ limit: limit - found.rows.length, cursor: found.nextCursor });
    found = { ...found, rows: [...found.rows, ...next.rows], nextCursor: next.nextCursor };
  }
  return found;
}

/** Pages with everything in them, as they were sent: for export. */
export async function exportPage(
  filter: JobsFilter,
  limit: number,
  cursor: string | null,
  signal?: Signal,
): Promise<{ jobs: WireJob[]; nextCursor: string | null }> {
  const params = { ...convert.filterParams(filter), limit, cursor };
  const page = await request<WireJobs>("/jobs", { params, signal, exact: true });
  return { jobs: page.jobs, nextCursor: page.next_cursor };
}

export const getRawJob = (id: string, signal?: Signal): Promise<WireJob> =>
  request<WireJob>(`/jobs/${segment(id)}`, { signal, exact: true });

export const getJob = async (id: string, signal?: Signal): Promise<Job> =>
  convert.job(await getRawJob(id, signal));

export const submitJob = async (spec: JobSpec, idempotencyKey?: string): Promise<Job> =>
  convert.job(
    await request<WireJob>("/jobs", {
      method: "POST",
      body: spec,
      exact: true,
      headers: idempotencyKey ? { "idempotency-key": idempotencyKey } : {},
    }),
  );

const act = async (path: string): Promise<Job> =>
  convert.job(await request<WireJob>(path, { method: "POST", exact: true }));

export const cancelJob = (id: string) => act(`/jobs/${segment(id)}/cancel`);
export const retryJob = (id: string) => act(`/jobs/${segment(id)}/retry`);

/** Changes a job that waits; 409 once it has started. */
export const editJob = async (id: string, edit: JobEdit): Promise<Job> =>
  convert.job(await request<WireJob>(`/jobs/${segment(id)}`, { method: "PATCH", body: edit, exact: true }));

export const getWhy = async (id: string, signal?: Signal): Promise<Why> =>
  convert.why(await request<WireWhy>(`/jobs/${segment(id)}/why`, { signal }));

export const getLogs = async (id: string, params: Params = {}, signal?: Signal): Promise<Logs> =>
  convert.logs(
    await request<WireLogs>(`/jobs/${segment(id)}/logs`, { params: { ...params, format: "json" }, signal }),
  );

/** A job as it changes: server-sent events `job` and `end`. */
export const followJob = (id: string, signal: AbortSignal): Promise<Response> =>
  open(`/jobs/${segment(id)}/events`, { signal, headers: { accept: "text/event-stream" } });

export const listWorkers = async (signal?: Signal): Promise<Worker[]> =>
  (await request<WireWorkers>("/workers", { signal })).workers.map(convert.worker);

export const drainWorker = async (id: string): Promise<Worker> =>
  convert.worker(await request<WireWorker>(`/workers/${segment(id)}/drain`, { method: "POST" }));

export const listQueues = async (signal?: Signal): Promise<Queue[]> =>
  (await request<WireQueues>("/queues", { signal })).queues.map(convert.queue);

export const setQueuePaused = async (name: string, paused: boolean): Promise<Queue> => {
  const path = `/queues/${segment(name)}/${paused ? "pause" : "resume"}`;
  return convert.queue(await request<WireQueue>(path, { method: "POST" }));
};

export const listTypes = async (signal?: Signal): Promise<JobType[]> =>
  (await request<WireJobTypes>("/types", { signal })).types.map(convert.jobType);

export const listDeadLetterGroups = async (limit = 100, signal?: Signal): Promise<DeadLetterGroups> =>
  convert.deadLetterGroups(await request<WireDeadLetterGroups>("/dlq/groups", { params: { limit }, signal }));

export async function listDeadLetters(
  filter: JobsFilter,
  page: PageOptions,
  signal?: Signal,
): Promise<DeadLetter[]> {
  const params = { ...convert.filterParams(filter), ...page };
  return (await request<WireJobs>("/dlq", { params, signal })).jobs.map(convert.deadLetter);
}

export type DeadLetterChoice = WireDeadLetterChoice;

export const changeDeadLetters = async (
  action: "replay" | "discard",
  choice: DeadLetterChoice,
): Promise<number> => (await request<WireCount>(`/dlq/${action}`, { method: "POST", body: choice })).count;

export const startBulk = async (action: BulkAction, filter: JobsFilter): Promise<Bulk> =>
  convert.bulk(
    await request<WireBulk>("/bulk", {
      method: "POST",
      body: { action, filter: convert.filterBody(filter) },
    }),
  );

export const getBulk = async (id: string, signal?: Signal): Promise<Bulk> =>
  convert.bulk(await request<WireBulk>(`/bulk/${segment(id)}`, { signal }));

export const stopBulk = async (id: string): Promise<Bulk> =>
  convert.bulk(await request<WireBulk>(`/bulk/${segment(id)}/stop`, { method: "POST" }));

export interface SeriesOptions {
  from?: string;
  to?: string;
  step?: number;
  queue?: string;
  type?: string;
}

export const getSeries = async (options: SeriesOptions, signal?: Signal): Promise<Series> =>
  convert.series(await request<WireSeries>("/series", { params: { ...options }, signal }));

export const getBreakdown = async (
  by: "type" | "queue",
  options: { from?: string; to?: string },
  signal?: Signal,
): Promise<BreakdownRow[]> =>
  (await request<WireBreakdown>("/series/breakdown", { params: { ...options, by }, signal })).rows.map(
    convert.breakdownRow,
  );
