/** A million made-up jobs: job number `n` is always the same, so that none has to be kept. */

import type { WireJob, WireStatus } from "../src/api/wire.ts";

const TYPES = ["resize_image", "send_mail", "import_orders", "echo", "cpu_intensive", "report.monthly"];
const QUEUES = ["default", "mail", "images", "batch"];
const NAMES = [
  "invoice 2041",
  "thumbnail",
  "nightly import",
  null,
  "weekly digest",
  null,
  "warm the cache",
  null,
];
export const START = Date.now();
export const TOTAL = 1_000_000;

/** A number from 0 to 1 that belongs to `n`. */
export function chance(n: number, salt: number): number {
  let x = (n * 2_654_435_761 + salt * 97_531) >>> 0;
  x = Math.imul(x ^ (x >>> 15), 2_246_822_519) >>> 0;
  x = Math.imul(x ^ (x >>> 13), 3_266_489_917) >>> 0;
  return ((x ^ (x >>> 16)) >>> 0) / 2 ** 32;
}

const pick = <T>(list: readonly T[], at: number): T => list[Math.floor(at * list.length)] as T;

const id = (n: number, at: number) => {
  const time = Math.floor(at).toString(16).padStart(12, "0");
  const tail = Math.floor(chance(n, 9) * 2 ** 32)
    .toString(16)
    .padStart(8, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7${n.toString(16).padStart(3, "0").slice(-3)}-8a1b-${n.toString(16).padStart(4, "0").slice(-4)}${tail}`;
};

const iso = (at: number) => new Date(at).toISOString();

export const overrides = new Map<string, Partial<WireJob>>();
export const submitted: WireJob[] = [];

export function statusOf(n: number, age: number): WireStatus {
  const luck = chance(n, 3);
  if (age < 20_000) return luck < 0.12 ? "running" : luck < 0.5 ? "queued" : "completed";
  if (luck < 0.012) return "failed";
  if (luck < 0.02) return "cancelled";
  if (luck < 0.0215) return "scheduled";
  return luck < 0.0218 ? "blocked" : "completed";
}

/** Job `n`, the newest being 0. */
export function jobAt(index: number): WireJob {
  const own = submitted[submitted.length - 1 - index];
  const n = index - submitted.length;
  const made = own ?? make(n);
  return { ...made, ...overrides.get(made.id) };
}

function make(n: number): WireJob {
  const created = START - n * 400 - chance(n, 1) * 300;
  const status = statusOf(n, START - created);
  const wait = chance(n, 4) ** 3 * 4000 + 3;
  const run = chance(n, 5) ** 4 * 40_000 + 12;
  const started =
    status === "queued" || status === "scheduled" || status === "blocked" ? null : created + wait;
  const ended = started !== null && status !== "running" ? started + run : null;
  const type = pick(TYPES, chance(n, 2));
  const failed = status === "failed";
  return {
    id: id(n, created),
    type,
    name: pick(NAMES, chance(n, 6)),
    queue: type === "send_mail" ? "mail" : type === "resize_image" ? "images" : pick(QUEUES, chance(n, 7)),
    priority: chance(n, 8) < 0.15 ? 0 : chance(n, 8) > 0.9 ? 2 : 1,
    status,
    payload: { order: n, big: 12345678901234567890n.toString(), path: `/data/${n}.png` },
    result: status === "completed" ? { ok: true, took: run } : null,
    error: failed
      ? {
          type: "ValueError",
          message: `cannot parse order ${n}`,
          traceback: `Traceback (most recent call last):\n  File "/srv/app/orders.py", line 41, in parse\n    raise ValueError(f"cannot parse order {n}")\nValueError: cannot parse order ${n}`,
        }
      : null,
    attempt: failed ? 4 : started === null ? 0 : 1,
    max_attempts: 4,
    thread_demand: chance(n, 10) > 0.9 ? 4 : 1,
    timeout_sec: null,
    memory_mb: null,
    worker_id: started === null ? null : `w-${Math.floor(chance(n, 11) * 3) + 1}`,
    created_at: iso(created),
    run_at: iso(status === "scheduled" ? START + 600_000 : created),
    started_at: started === null ? null : iso(started),
    completed_at: ended === null ? null : iso(ended),
    claim_id: n + 1,
    claimed_at: started === null ? null : iso(started),
    threads_granted: started === null ? null : 1,
    on_oversize: "degrade",
    labels: {},
    metadata: {},
    cancel_requested_at: null,
    discarded_at: null,
    crashes: 0,
    queue_time_sec: started === null ? null : wait / 1000,
    execution_time_sec: ended === null ? null : run / 1000,
    total_time_sec: ended === null ? null : (wait + run) / 1000,
    cpu_seconds: ended === null ? null : run / 2000,
    peak_memory_kb: 48_000,
    progress:
      status === "running"
        ? { done: 40, total: 100, message: "resizing", percent: Math.round(chance(n, 12) * 100) }
        : null,
    fingerprint: failed ? "3f2a" : null,
  };
}
