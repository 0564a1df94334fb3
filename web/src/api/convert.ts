/** From what the server sends to what the pages show; the only place where the two meet. */

import type {
  Attempt,
  BreakdownRow,
  Bulk,
  DeadLetter,
  DeadLetterGroup,
  DeadLetterGroups,
  Extras,
  Job,
  JobError,
  JobRow,
  JobsFilter,
  JobsPage,
  JobType,
  JsonSchema,
  LogEntry,
  Logs,
  Point,
  Queue,
  Series,
  Stats,
  Status,
  Why,
  Worker,
} from "./model";
import type {
  WireAttempt,
  WireBreakdownRow,
  WireBulk,
  WireDeadLetterGroup,
  WireDeadLetterGroups,
  WireJob,
  WireJobs,
  WireJobType,
  WireLiveJob,
  WireLogEntry,
  WireLogs,
  WirePoint,
  WireQueue,
  WireSeries,
  WireStats,
  WireStatus,
  WireUpdateStats,
  WireWhy,
  WireWorker,
} from "./wire";

export const time = (text: string): number => Date.parse(text);
export const timeOrNull = (text: string | null): number | null => (text === null ? null : Date.parse(text));

const seconds = (from: number | null, to: number | null): number | null =>
  from === null || to === null ? null : Math.max(0, (to - from) / 1000);

export function counts(by: Partial<Record<WireStatus, number>>): Record<Status, number> {
  return {
    queued: by.queued ?? 0,
    running: by.running ?? 0,
    scheduled: by.scheduled ?? 0,
    blocked: by.blocked ?? 0,
    completed: by.completed ?? 0,
    failed: by.failed ?? 0,
    cancelled: by.cancelled ?? 0,
  };
}

export function jobRow(wire: WireJob): JobRow {
  return {
    id: wire.id,
    type: wire.type,
    name: wire.name,
    queue: wire.queue,
    priority: wire.priority,
    status: wire.status,
    attempt: wire.attempt,
    maxAttempts: wire.max_attempts,
    threads: wire.threads_granted ?? wire.thread_demand,
    workerId: wire.worker_id,
    createdAt: time(wire.created_at),
    runAt: timeOrNull(wire.run_at),
    startedAt: timeOrNull(wire.started_at),
    completedAt: timeOrNull(wire.completed_at),
    cancelRequestedAt: timeOrNull(wire.cancel_requested_at),
    queueSec: wire.queue_time_sec,
    runSec: wire.execution_time_sec,
    progress: wire.progress,
    failure: failureOf(wire),
  };
}

/** What the stream does not carry is null, and is kept from the row that it meets. */
export function liveJobRow(wire: WireLiveJob): JobRow {
  const startedAt = timeOrNull(wire.started_at);
  const completedAt = timeOrNull(wire.completed_at);
  return {
    id: wire.id,
    type: wire.type,
    name: wire.name,
    queue: wire.queue,
    priority: wire.priority,
    status: wire.status,
    attempt: wire.attempt,
    maxAttempts: null,
    threads: null,
    workerId: wire.worker_id,
    createdAt: time(wire.created_at),
    runAt: null,
    startedAt,
    completedAt,
    cancelRequestedAt: null,
    queueSec: null,
    runSec: seconds(startedAt, completedAt),
    progress: wire.progress,
    failure: null,
  };
}

/** A row after what the stream said about it. */
export function mergeRow(row: JobRow, live: JobRow): JobRow {
  return {
    ...live,
    maxAttempts: live.maxAttempts ?? row.maxAttempts,
    threads: live.threads ?? row.threads,
    runAt: live.runAt ?? row.runAt,
    cancelRequestedAt: live.cancelRequestedAt ?? row.cancelRequestedAt,
    queueSec: row.queueSec ?? seconds(row.runAt, live.startedAt),
    failure: live.status === "completed" ? null : (live.failure ?? row.failure),
  };
}

function failureOf(wire: WireJob): JobRow["failure"] {
  const error = wire.status === "completed" ? null : jobError(wire.error);
  return error && { type: error.type, message: error.message };
}

export function jobError(error: unknown): JobError | null {
  if (error === null || error === undefined) return null;
  if (typeof error !== "object") return { type: null, message: String(error), traceback: null, raw: error };
  const fields = error as Record<string, unknown>;
  const text = (key: string) => (typeof fields[key] === "string" ? (fields[key] as string) : null);
  return {
    type: text("type"),
    message: text("message") ?? text("detail") ?? "",
    traceback: text("traceback"),
    raw: error,
  };
}

export function attempt(wire: WireAttempt): Attempt {
  return {
    attempt: wire.attempt,
    claimId: wire.claim_id,
    workerId: wire.worker_id,
    claimedAt: timeOrNull(wire.claimed_at),
    startedAt: timeOrNull(wire.started_at),
    finishedAt: timeOrNull(wire.finished_at),
    outcome: wire.outcome,
    charged: wire.charged,
    error: jobError(wire.error),
    retryDelaySec: wire.retry_delay_sec,
    cpuSec: wire.cpu_seconds,
    peakMemoryKb: wire.peak_memory_kb,
  };
}

export function extras(wire: WireJob): Extras {
  return {
    uniqueKey: wire.unique_key ?? null,
    uniqueUntil: wire.unique_until ?? null,
    expiresAt: timeOrNull(wire.expires_at ?? null),
    deadlineAt: timeOrNull(wire.deadline_at ?? null),
    softTimeoutSec: wire.soft_timeout_sec ?? null,
    retry: (wire.retry ?? null) as Extras["retry"],
    snoozes: wire.snoozes ?? null,
    keepSec: wire.keep_sec ?? null,
    notifyUrl: wire.notify_url ?? null,
    schedule: wire.schedule ?? null,
    scheduledFor: timeOrNull(wire.scheduled_for ?? null),
  };
}

export function job(wire: WireJob): Job {
  return {
    ...jobRow(wire),
    payload: wire.payload,
    result: wire.result,
    error: jobError(wire.error),
    timeoutSec: wire.timeout_sec,
    memoryMb: wire.memory_mb,
    threadDemand: wire.thread_demand,
    threadsGranted: wire.threads_granted,
    claimId: wire.claim_id,
    claimedAt: timeOrNull(wire.claimed_at),
    onOversize: wire.on_oversize,
    labels: wire.labels,
    metadata: wire.metadata,
    discardedAt: timeOrNull(wire.discarded_at),
    crashes: wire.crashes,
    totalSec: wire.total_time_sec,
    cpuSec: wire.cpu_seconds,
    peakMemoryKb: wire.peak_memory_kb,
    fingerprint: wire.fingerprint,
    warnings: wire.warnings ?? [],
    attempts: (wire.attempts ?? []).map(attempt),
    extras: extras(wire),
  };
}

export function jobsPage(wire: WireJobs): JobsPage {
  return {
    rows: wire.jobs.map(jobRow),
    total: wire.total,
    totalCapped: wire.total_capped ?? false,
    offset: wire.offset,
    nextCursor: wire.next_cursor,
  };
}

export function worker(wire: WireWorker): Worker {
  return {
    id: wire.id,
    name: wire.name,
    status: wire.status,
    threads: wire.threads,
    threadsUsed: wire.threads_used,
    types: wire.types,
    anyType: wire.any_type ?? false,
    queues: wire.queues,
    labels: wire.labels,
    registeredAt: time(wire.registered_at),
    lastHeartbeatAt: time(wire.last_heartbeat_at),
    endpoint: wire.endpoint,
    host: wire.host,
    pid: wire.pid,
  };
}

export function queue(wire: WireQueue): Queue {
  return {
    name: wire.name,
    counts: counts(wire),
    paused: wire.paused,
    pausedAt: timeOrNull(wire.paused_at),
    oldestQueuedAgeSec: wire.oldest_queued_age_sec,
  };
}

type Either<A, B> = (A & Partial<B>) | (B & Partial<A>);

/** The numbers of `/stats` or of an update: some are in one of them only. */
export function stats(wire: Either<WireStats, WireUpdateStats>): Stats {
  return {
    queueDepth: wire.queue_depth,
    counts: counts(wire.jobs_by_status),
    workers: wire.workers,
    threads: wire.threads,
    threadsUsed: wire.threads_used,
    successRate: wire.success_rate,
    deadLetters: wire.dead_letters ?? null,
    oldestQueuedAgeSec: wire.oldest_queued_age_sec ?? null,
    waitP50: wire.wait_p50_sec ?? null,
    waitP95: wire.wait_p95_sec ?? null,
    runP50: wire.run_p50_sec ?? null,
    runP95: wire.run_p95_sec ?? null,
    uptimeSec: wire.uptime_sec ?? null,
    scaling: wire.autoscaler,
  };
}

export function why(wire: WireWhy): Why {
  return {
    code: wire.code,
    summary: wire.summary,
    details: wire.details,
    blockers: wire.blockers,
    position: wire.position,
    positionCapped: wire.position_capped,
    estimateSec: wire.estimate_sec,
    commands: wire.try,
  };
}

export function jobType(wire: WireJobType): JobType {
  return {
    type: wire.type,
    description: wire.description,
    workers: wire.workers,
    builtIn: wire.built_in,
    schema: wire.schema as JsonSchema | null,
    example: wire.example,
    runP50: wire.run_p50_sec,
    defaults: wire.defaults,
  };
}

export const deadLetter = (wire: WireJob): DeadLetter => ({
  ...jobRow(wire),
  message: jobError(wire.error)?.message ?? "",
});

export function deadLetterGroup(wire: WireDeadLetterGroup): DeadLetterGroup {
  return {
    fingerprint: wire.fingerprint,
    type: wire.type,
    errorType: wire.error_type,
    message: wire.message,
    frame: wire.frame,
    count: wire.count,
    firstSeenAt: time(wire.first_seen_at),
    lastSeenAt: time(wire.last_seen_at),
    sparkline: wire.sparkline,
    sampleJobId: wire.sample_job_id,
  };
}

export function deadLetterGroups(wire: WireDeadLetterGroups): DeadLetterGroups {
  return {
    groups: wire.groups.map(deadLetterGroup),
    totalGroups: wire.total_groups,
    totalJobs: wire.total_jobs,
  };
}

export function bulk(wire: WireBulk): Bulk {
  return {
    id: wire.id,
    action: wire.action,
    filter: wire.filter,
    status: wire.status,
    total: wire.total,
    totalCapped: wire.total_capped,
    done: wire.done,
    changed: wire.changed,
    createdAt: time(wire.created_at),
    finishedAt: timeOrNull(wire.finished_at),
  };
}

export function point(wire: WirePoint): Point {
  return {
    at: time(wire.at),
    submitted: wire.submitted,
    completed: wire.completed,
    failed: wire.failed,
    cancelled: wire.cancelled,
    retried: wire.retried,
    waitP50: wire.wait_p50_sec,
    waitP95: wire.wait_p95_sec,
    runP50: wire.run_p50_sec,
    runP95: wire.run_p95_sec,
    queueDepth: wire.queue_depth_max,
    threadsUsed: wire.threads_used_max,
    threads: wire.threads_max,
    workers: wire.workers_max,
    wanted: wire.autoscaler_wanted,
  };
}

export function series(wire: WireSeries): Series {
  return {
    from: time(wire.from),
    to: time(wire.to),
    stepSec: wire.step_sec,
    points: wire.points.map(point),
  };
}

export function breakdownRow(wire: WireBreakdownRow): BreakdownRow {
  return {
    key: wire.key,
    submitted: wire.submitted,
    completed: wire.completed,
    failed: wire.failed,
    cancelled: wire.cancelled,
    retried: wire.retried,
    waitP50: wire.wait_p50_sec,
    waitP95: wire.wait_p95_sec,
    runP50: wire.run_p50_sec,
    runP95: wire.run_p95_sec,
    perSec: wire.throughput_per_sec,
  };
}

export function logEntry(wire: WireLogEntry): LogEntry {
  return {
    attempt: wire.attempt,
    claimId: wire.claim_id,
    stream: wire.stream,
    time: time(wire.time),
    text: wire.text,
  };
}

export function logs(wire: WireLogs): Logs {
  return {
    entries: wire.entries.map(logEntry),
    cut: wire.cut,
    writtenBytes: wire.written_bytes,
    position: wire.position,
    more: wire.more,
    ended: wire.ended,
  };
}

type FilterValue = string | number | undefined;

/** A filter as query parameters; `status` is a list, separated by commas. */
export function filterParams(filter: JobsFilter): Record<string, FilterValue> {
  const { status, ...rest } = filter;
  return { ...rest, status: status?.length ? status.join(",") : undefined };
}

/** A filter as the body of a bulk operation has it. */
export function filterBody(filter: JobsFilter): Record<string, FilterValue> {
  return Object.fromEntries(Object.entries(filterParams(filter)).filter(([, value]) => value !== undefined));
}
