/** What the pages show. Times are milliseconds since 1970, durations seconds; names as everywhere in Stoker. */

import type {
  BulkAction,
  WireJobDefaults,
  WireJobEdit,
  WireJobSpec,
  WireProgress,
  WireScaling,
  WireStatus,
} from "./wire";

export type Status = WireStatus;
export type Progress = WireProgress;
export type { BulkAction };

export const STATUSES: readonly Status[] = [
  "queued",
  "running",
  "scheduled",
  "blocked",
  "completed",
  "failed",
  "cancelled",
];

/** Priorities that have a name, by their number; the others are written as numbers. */
export const PRIORITY_NAMES: readonly string[] = ["high", "normal", "low"];
export const priorityName = (priority: number): string => PRIORITY_NAMES[priority] ?? String(priority);

export const isFinal = (status: Status) =>
  status === "completed" || status === "failed" || status === "cancelled";
/** It waits, so it can be changed. */
export const canEdit = (status: Status) =>
  status === "queued" || status === "scheduled" || status === "blocked";
export const canCancel = (status: Status) => !isFinal(status);
/** The server takes a waiting retry as well: it then runs now. */
export const canRetry = (status: Status) => status === "failed" || status === "cancelled";

/** Scheduled for another attempt, after one that failed; what was merely delayed has had none. */
export const isRetrying = ({ status, attempt }: Pick<JobRow, "status" | "attempt">): boolean =>
  status === "scheduled" && attempt > 0;

/** A row of a list. */
export interface JobRow {
  id: string;
  type: string;
  name: string | null;
  queue: string;
  priority: number;
  status: Status;
  attempt: number;
  maxAttempts: number | null;
  threads: number | null;
  workerId: string | null;
  createdAt: number;
  runAt: number | null;
  startedAt: number | null;
  completedAt: number | null;
  cancelRequestedAt: number | null;
  queueSec: number | null;
  runSec: number | null;
  progress: Progress | null;
  /** How it failed, or failed last: the type of the error and what it said; null where it did not. */
  failure: { type: string | null; message: string } | null;
}

export interface Attempt {
  attempt: number;
  claimId: number;
  workerId: string | null;
  claimedAt: number | null;
  startedAt: number | null;
  finishedAt: number | null;
  outcome: string;
  charged: boolean;
  error: JobError | null;
  retryDelaySec: number | null;
  cpuSec: number | null;
  peakMemoryKb: number | null;
}

export interface JobError {
  type: string | null;
  message: string;
  traceback: string | null;
  /** As it was sent, for what is not told above. */
  raw: unknown;
}

/** The optional features that a job uses; null where it does not. */
export interface Extras {
  uniqueKey: string | null;
  uniqueUntil: string | null;
  expiresAt: number | null;
  deadlineAt: number | null;
  softTimeoutSec: number | null;
  /** The job's own rules for retries, as they were sent. */
  retry: Record<string, unknown> | null;
  snoozes: number | null;
  keepSec: number | null;
  notifyUrl: string | null;
  /** The schedule that made it, and the tick that it is for. */
  schedule: string | null;
  scheduledFor: number | null;
}

export interface Job extends JobRow {
  payload: unknown;
  result: unknown;
  error: JobError | null;
  timeoutSec: number | null;
  memoryMb: number | null;
  threadDemand: number;
  threadsGranted: number | null;
  claimId: number;
  claimedAt: number | null;
  onOversize: "degrade" | "wait";
  labels: Record<string, string>;
  metadata: Record<string, string>;
  discardedAt: number | null;
  crashes: number;
  totalSec: number | null;
  cpuSec: number | null;
  peakMemoryKb: number | null;
  fingerprint: string | null;
  warnings: string[];
  attempts: Attempt[];
  extras: Extras;
}

/** A dead letter: the row of a job and what it said when it failed. */
export interface DeadLetter extends JobRow {
  message: string;
}

export interface JobsPage {
  rows: JobRow[];
  total: number;
  totalCapped: boolean;
  offset: number;
  nextCursor: string | null;
}

export interface Worker {
  id: string;
  name: string;
  status: string;
  threads: number;
  threadsUsed: number;
  types: string[];
  /** Takes every type that no worker of the last minute names, besides `types`. */
  anyType: boolean;
  queues: string[] | null;
  labels: Record<string, string>;
  registeredAt: number;
  lastHeartbeatAt: number;
  endpoint: string | null;
  host: string | null;
  pid: number | null;
}

export interface Queue {
  name: string;
  counts: Record<Status, number>;
  paused: boolean;
  pausedAt: number | null;
  oldestQueuedAgeSec: number | null;
}

export type Scaling = WireScaling;

export interface Stats {
  queueDepth: number;
  counts: Record<Status, number>;
  workers: number;
  threads: number | null;
  threadsUsed: number | null;
  successRate: number | null;
  deadLetters: number | null;
  oldestQueuedAgeSec: number | null;
  waitP50: number | null;
  waitP95: number | null;
  runP50: number | null;
  runP95: number | null;
  uptimeSec: number | null;
  scaling: Scaling | null;
}

export interface Why {
  code: string;
  summary: string;
  details: string[];
  blockers: { kind: string; id: string; text: string }[];
  position: number | null;
  positionCapped: boolean;
  estimateSec: number | null;
  commands: string[];
}

export interface JobType {
  type: string;
  description: string | null;
  workers: number;
  builtIn: boolean;
  schema: JsonSchema | null;
  example: unknown;
  runP50: number | null;
  /** What its jobs get where a submission does not say, as its worker announced it. */
  defaults: WireJobDefaults;
}

/** As much of JSON Schema as a form needs. */
export interface JsonSchema {
  type?: string | string[];
  title?: string;
  description?: string;
  properties?: Record<string, JsonSchema>;
  required?: string[];
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  examples?: unknown[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  minLength?: number;
  maxLength?: number;
  items?: JsonSchema;
  anyOf?: JsonSchema[];
  oneOf?: JsonSchema[];
  allOf?: JsonSchema[];
  additionalProperties?: boolean | JsonSchema;
  $ref?: string;
  $defs?: Record<string, JsonSchema>;
  format?: string;
}

export interface DeadLetterGroup {
  fingerprint: string;
  type: string;
  errorType: string;
  message: string;
  frame: string | null;
  count: number;
  firstSeenAt: number;
  lastSeenAt: number;
  sparkline: number[];
  sampleJobId: string;
}

export interface DeadLetterGroups {
  groups: DeadLetterGroup[];
  totalGroups: number;
  totalJobs: number;
}

export interface Bulk {
  id: string;
  action: BulkAction;
  filter: Record<string, unknown>;
  status: "running" | "done" | "stopped";
  total: number;
  totalCapped: boolean;
  done: number;
  changed: number;
  createdAt: number;
  finishedAt: number | null;
}

/** One step of a time series. Counts are of the step, gauges the highest in it. */
export interface Point {
  at: number;
  submitted: number;
  completed: number;
  failed: number;
  cancelled: number;
  retried: number;
  waitP50: number | null;
  waitP95: number | null;
  runP50: number | null;
  runP95: number | null;
  queueDepth: number | null;
  threadsUsed: number | null;
  threads: number | null;
  workers: number | null;
  wanted: number | null;
}

export interface Series {
  from: number;
  to: number;
  stepSec: number;
  points: Point[];
}

export interface BreakdownRow {
  key: string;
  submitted: number;
  completed: number;
  failed: number;
  cancelled: number;
  retried: number;
  waitP50: number | null;
  waitP95: number | null;
  runP50: number | null;
  runP95: number | null;
  perSec: number;
}

export interface LogEntry {
  attempt: number;
  claimId: number;
  stream: "stdout" | "stderr" | "log" | "stoker";
  time: number;
  text: string;
}

export interface Logs {
  entries: LogEntry[];
  cut: boolean;
  writtenBytes: number;
  position: number;
  more: boolean;
  ended: boolean;
}

/** Which jobs: the names of `GET /jobs` and of a bulk filter. Everything given must match. */
export interface JobsFilter {
  /** A search as it was typed, which the server reads; instead of all others. */
  q?: string;
  status?: Status[];
  type?: string;
  queue?: string;
  priority?: number;
  worker?: string;
  name?: string;
  text?: string;
  created_after?: string;
  created_before?: string;
  fingerprint?: string;
}

/** What a submitter says about a job; the server has a default for the type and the payload, the forms have none. */
export type JobSpec = WireJobSpec & Required<Pick<WireJobSpec, "type" | "payload">>;

/** What is to change of a job that waits; a field that is not there stays, null clears. */
export type JobEdit = Partial<WireJobEdit>;
