/**
 * Keys and options of what pages fetch. While the stream is up nothing polls; see `live/sync.ts`. Schedules, of which the
 * stream does not tell, are in `schedules.ts`.
 */

import { queryOptions } from "@tanstack/react-query";
import * as api from "./endpoints";
import type { JobsFilter } from "./model";

export const PAGE_SIZE = 100;

export const keys = {
  stats: ["stats"] as const,
  jobs: ["jobs"] as const,
  jobsPage: (filter: JobsFilter, page: number) => ["jobs", "page", filter, page] as const,
  jobsTop: (filter: JobsFilter, limit: number) => ["jobs", "top", filter, limit] as const,
  job: (id: string) => ["job", id] as const,
  why: (id: string) => ["job", id, "why"] as const,
  logs: (id: string) => ["job", id, "logs"] as const,
  workers: ["workers"] as const,
  queues: ["queues"] as const,
  types: ["types"] as const,
  deadLetters: ["dead-letters"] as const,
  deadLetterGroups: ["dead-letters", "groups"] as const,
  bulk: (id: string) => ["bulk", id] as const,
  series: (options: api.SeriesOptions) => ["series", options] as const,
  breakdown: (by: "type" | "queue", from: string) => ["series", "breakdown", by, from] as const,
};

export const statsQuery = () =>
  queryOptions({ queryKey: keys.stats, queryFn: ({ signal }) => api.getStats(signal) });

/** Rows `page * PAGE_SIZE` and on of a list. Kept for a short while only: a million jobs do not fit in a page. */
export const jobsPageQuery = (filter: JobsFilter, page: number) =>
  queryOptions({
    queryKey: keys.jobsPage(filter, page),
    queryFn: ({ signal }) => api.listJobs(filter, { limit: PAGE_SIZE, offset: page * PAGE_SIZE }, signal),
    gcTime: 20_000,
  });

export const jobsTopQuery = (filter: JobsFilter, limit: number) =>
  queryOptions({
    queryKey: keys.jobsTop(filter, limit),
    queryFn: ({ signal }) => api.listJobs(filter, { limit }, signal),
  });

export const jobQuery = (id: string) =>
  queryOptions({ queryKey: keys.job(id), queryFn: ({ signal }) => api.getJob(id, signal) });

export const whyQuery = (id: string) =>
  queryOptions({ queryKey: keys.why(id), queryFn: ({ signal }) => api.getWhy(id, signal) });

export const workersQuery = () =>
  queryOptions({ queryKey: keys.workers, queryFn: ({ signal }) => api.listWorkers(signal) });

export const queuesQuery = () =>
  queryOptions({ queryKey: keys.queues, queryFn: ({ signal }) => api.listQueues(signal) });

export const typesQuery = () =>
  queryOptions({
    queryKey: keys.types,
    queryFn: ({ signal }) => api.listTypes(signal),
    staleTime: 60_000,
  });

export const deadLetterGroupsQuery = (limit = 100) =>
  queryOptions({
    queryKey: [...keys.deadLetterGroups, limit],
    queryFn: ({ signal }) => api.listDeadLetterGroups(limit, signal),
  });

export const bulkQuery = (id: string) =>
  queryOptions({ queryKey: keys.bulk(id), queryFn: ({ signal }) => api.getBulk(id, signal) });

export const seriesQuery = (options: api.SeriesOptions) =>
  queryOptions({ queryKey: keys.series(options), queryFn: ({ signal }) => api.getSeries(options, signal) });

export const breakdownQuery = (by: "type" | "queue", from: string) =>
  queryOptions({
    queryKey: keys.breakdown(by, from),
    queryFn: ({ signal }) => api.getBreakdown(by, { from }, signal),
  });
