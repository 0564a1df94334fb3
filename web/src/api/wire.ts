/** What the server sends, as docs/reference/rest.md has it. Nothing outside `api/` and `live/` knows these shapes. */

export type WireStatus =
  | "queued"
  | "scheduled"
  | "blocked"
  | "running"
  | "completed"
  | "failed"
  | "cancelled";

export interface WireProgress {
  done: number;
  total: number | null;
  message: string | null;
  percent: number | null;
}

export interface WireAttempt {
  attempt: number;
  claim_id: number;
  worker_id: string | null;
  claimed_at: string | null;
  started_at: string | null;
  finished_at: string | null;
  outcome: string;
  charged: boolean;
  error: unknown;
  retry_delay_sec: number | null;
  cpu_seconds: number | null;
  peak_memory_kb: number | null;
}

export interface WireJob {
  id: string;
  type: string;
  name: string | null;
  queue: string;
  priority: number;
  status: WireStatus;
  payload: unknown;
  result: unknown;
  error: unknown;
  attempt: number;
  max_attempts: number;
  thread_demand: number;
  timeout_sec: number | null;
  memory_mb: number | null;
  worker_id: string | null;
  created_at: string;
  run_at: string;
  started_at: string | null;
  completed_at: string | null;
  claim_id: number;
  claimed_at: string | null;
  threads_granted: number | null;
  on_oversize: "degrade" | "wait";
  labels: Record<string, string>;
  metadata: Record<string, string>;
  cancel_requested_at: string | null;
  discarded_at: string | null;
  crashes: number;
  queue_time_sec: number | null;
  execution_time_sec: number | null;
  total_time_sec: number | null;
  cpu_seconds: number | null;
  peak_memory_kb: number | null;
  progress: WireProgress | null;
  fingerprint?: string | null;
  warnings?: string[];
  attempts?: WireAttempt[];
}

export interface WireJobs {
  jobs: WireJob[];
  total: number;
  limit: number;
  offset: number;
  next_cursor: string | null;
  total_capped?: boolean;
}

/** A job as the live stream has it: enough for a row. */
export interface WireLiveJob {
  id: string;
  type: string;
  name: string | null;
  queue: string;
  priority: number;
  status: WireStatus;
  attempt: number;
  worker_id: string | null;
  created_at: string;
  started_at: string | null;
  completed_at: string | null;
  progress: WireProgress | null;
}

export interface WireWorker {
  id: string;
  name: string;
  status: string;
  threads: number;
  threads_used: number;
  types: string[];
  queues: string[] | null;
  labels: Record<string, string>;
  registered_at: string;
  last_heartbeat_at: string;
  endpoint: string | null;
  host: string | null;
  pid: number | null;
}

export interface WireQueue {
  name?: string;
  queue?: string;
  queued: number;
  scheduled: number;
  running: number;
  blocked: number;
  completed: number;
  failed: number;
  cancelled: number;
  paused: boolean;
  paused_at?: string | null;
  oldest_queued_age_sec?: number | null;
}

export interface WireScaling {
  mode: string;
  min_workers: number;
  max_workers: number;
  decision: {
    action: "up" | "stay" | "down";
    workers: number;
    wanted: number;
    queue_depth: number;
    reason: string;
  };
}

export interface WireStats {
  queue_depth: number;
  workers: number;
  jobs_by_status: Partial<Record<WireStatus, number>>;
  success_rate: number | null;
  uptime_sec?: number;
  pending_thread_seconds?: number | null;
  autoscaler?: WireScaling | null;
  threads?: number;
  threads_used?: number;
  dead_letters?: number;
  oldest_queued_age_sec?: number | null;
  wait_p50_sec?: number | null;
  wait_p95_sec?: number | null;
  run_p50_sec?: number | null;
  run_p95_sec?: number | null;
}

export interface WireUpdate {
  at: string;
  period_sec: number;
  submitted: number;
  completed: number;
  failed: number;
  cancelled: number;
  retried: number;
  stats: WireStats;
  jobs: WireLiveJob[];
  more: number;
  workers?: WireWorker[];
  queues?: WireQueue[];
  bulk?: WireBulk[];
}

export interface WireHello {
  epoch: string;
  seq: number;
  version: string;
}

export interface WireWhy {
  job_id: string;
  status: WireStatus;
  code: string;
  summary: string;
  details: string[];
  blockers: { kind: string; id: string; text: string }[];
  position: number | null;
  position_capped: boolean;
  estimate_sec: number | null;
  try: string[];
}

export interface WireJobType {
  type: string;
  description: string | null;
  workers: number;
  built_in: boolean;
  schema: unknown;
  example: unknown;
  run_p50_sec: number | null;
}

export interface WireDeadLetterGroup {
  fingerprint: string;
  type: string;
  error_type: string;
  message: string;
  frame: string | null;
  count: number;
  first_seen_at: string;
  last_seen_at: string;
  sparkline: number[];
  sample_job_id: string;
}

export interface WireDeadLetterGroups {
  groups: WireDeadLetterGroup[];
  total_groups: number;
  total_jobs: number;
}

export type BulkAction = "cancel" | "retry" | "discard";

export interface WireBulk {
  id: string;
  action: BulkAction;
  filter: Record<string, unknown>;
  status: "running" | "done" | "stopped";
  total: number;
  total_capped?: boolean;
  done: number;
  changed: number;
  created_at: string;
  finished_at: string | null;
}

export interface WirePoint {
  at: string;
  submitted: number;
  completed: number;
  failed: number;
  cancelled: number;
  retried: number;
  wait_p50_sec: number | null;
  wait_p95_sec: number | null;
  run_p50_sec: number | null;
  run_p95_sec: number | null;
  queue_depth_max: number | null;
  threads_used_max: number | null;
  threads_max: number | null;
  workers_max: number | null;
  autoscaler_wanted: number | null;
}

export interface WireSeries {
  from: string;
  to: string;
  step_sec: number;
  points: WirePoint[];
}

export interface WireBreakdownRow {
  key: string;
  submitted: number;
  completed: number;
  failed: number;
  cancelled: number;
  retried: number;
  wait_p50_sec: number | null;
  wait_p95_sec: number | null;
  run_p50_sec: number | null;
  run_p95_sec: number | null;
  throughput_per_sec: number;
}

export interface WireBreakdown {
  by: "type" | "queue";
  rows: WireBreakdownRow[];
}

export interface WireLogEntry {
  attempt: number;
  claim_id: number;
  stream: "stdout" | "stderr" | "log" | "stoker";
  time: string;
  text: string;
}

export interface WireLogs {
  entries: WireLogEntry[];
  cut: boolean;
  written_bytes: number;
  position: number;
  more: boolean;
  ended: boolean;
}

export interface WireProblem {
  type: string;
  title: string;
  status: number;
  detail: string;
  request_id: string;
  errors?: { field: string; message: string }[];
}
