/** Messages of the stream for tests. */

import type { WireLiveJob, WireUpdate, WireUpdateStats } from "@/api/wire";

export const AT = Date.parse("2026-01-31T12:00:00Z");

export const stats = (more: Partial<WireUpdateStats> = {}): WireUpdateStats => ({
  queue_depth: 0,
  workers: 1,
  jobs_by_status: { queued: 0 },
  success_rate: null,
  threads: 4,
  threads_used: 0,
  dead_letters: 0,
  oldest_queued_age_sec: null,
  wait_p50_sec: null,
  wait_p95_sec: null,
  run_p50_sec: null,
  run_p95_sec: null,
  autoscaler: null,
  ...more,
});

export const liveJob = (id: string, more: Partial<WireLiveJob> = {}): WireLiveJob => ({
  id,
  type: "echo",
  name: null,
  queue: "default",
  priority: 1,
  status: "queued",
  attempt: 0,
  worker_id: null,
  created_at: "2026-01-31T12:00:00Z",
  started_at: null,
  completed_at: null,
  progress: null,
  ...more,
});

/** An update `ms` after the beginning. */
export const update = (ms = 0, more: Partial<WireUpdate> = {}): WireUpdate => ({
  at: new Date(AT + ms).toISOString(),
  period_sec: 0.25,
  submitted: 0,
  completed: 0,
  failed: 0,
  cancelled: 0,
  retried: 0,
  stats: stats(),
  jobs: [],
  more: 0,
  ...more,
});
