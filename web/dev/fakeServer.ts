/**
 * The API without a server, for work on the pages: `npm run dev:fake`. A million jobs, three workers, a stream that
 * never rests. It knows the shapes and nothing else; what is true is decided by the real one.
 */

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Plugin } from "vite";
import type {
  WireBulk,
  WireJob,
  WirePoint,
  WireQueue,
  WireStats,
  WireUpdateStats,
  WireWorker,
} from "../src/api/wire.ts";
import { chance, jobAt, overrides, START, submitted, TOTAL } from "./fakeJobs.ts";

const EPOCH = START.toString(36);
const iso = (at = Date.now()) => new Date(at).toISOString();
let seq = 0;
const bulks = new Map<string, WireBulk>();
const paused = new Set<string>();
const drained = new Set<string>();

function stats(): WireStats & WireUpdateStats {
  const t = Date.now() / 1000;
  const used = Math.round(6 + 4 * Math.sin(t / 7));
  return {
    queue_depth: Math.round(180 + 140 * Math.sin(t / 20) + 30 * Math.random()),
    paused_depth: 0,
    workers: 3,
    jobs_by_status: {
      queued: 182,
      running: used,
      scheduled: 1504,
      blocked: 310,
      completed: 977_812,
      failed: 12_043,
      cancelled: 8002,
    },
    jobs_total: TOTAL,
    success_rate: 0.9878,
    success_rate_pct: 98.78,
    uptime_sec: t - START / 1000,
    uptime_seconds: t - START / 1000,
    threads: 12,
    threads_used: used,
    pending_thread_seconds: 61.9,
    dead_letters: 37,
    oldest_queued_age_sec: 2.4 + Math.random(),
    wait_p50_sec: 0.021 + 0.01 * Math.random(),
    wait_p95_sec: 0.9 + 0.3 * Math.random(),
    run_p50_sec: 0.34 + 0.02 * Math.random(),
    run_p95_sec: 2.1 + 0.3 * Math.random(),
    autoscaler: {
      mode: "advise",
      min_workers: 1,
      max_workers: 6,
      decision: {
        action: "up",
        workers: 3,
        wanted: 4,
        queue_depth: 182,
        reason: "queue depth 182 is above 10",
      },
    },
  };
}

const workers = () =>
  [1, 2, 3].map(
    (n): WireWorker => ({
      id: `w-${n}`,
      name: `stoker-${n}`,
      status: drained.has(`w-${n}`) ? "draining" : "live",
      threads: 4,
      threads_used: Math.floor(Math.random() * 5),
      types: ["echo", "resize_image", "send_mail"],
      queues: n === 3 ? ["mail"] : null,
      labels: n === 3 ? { zone: "eu" } : {},
      registered_at: iso(START - n * 5_000_000),
      last_heartbeat_at: iso(Date.now() - Math.random() * 4000),
      endpoint: null,
      host: "worker-host",
      pid: 4000 + n,
      any_type: false,
    }),
  );

const queues = (): WireQueue[] =>
  ["default", "mail", "images", "batch"].map((name, n) => ({
    queue: name,
    name,
    queued: Math.floor(60 * Math.random()) + n * 10,
    scheduled: n * 300,
    running: n + 1,
    blocked: n * 40,
    completed: 240_000 + n * 3000,
    failed: 3000 + n,
    cancelled: 2000,
    paused: paused.has(name),
    paused_at: paused.has(name) ? iso() : null,
    oldest_queued_age_sec: 1.2 * n,
  }));

const string = { type: "string" };
const TYPES = [
  {
    type: "resize_image",
    description: "Resize a picture.",
    workers: 3,
    built_in: true,
    schema: {
      type: "object",
      required: ["image", "width", "height"],
      properties: {
        image: { ...string, description: "PNG or JPEG, in base64." },
        width: { type: "integer", minimum: 1, maximum: 10_000, default: 320 },
        height: { type: "integer", minimum: 1, maximum: 10_000, default: 200 },
        format: { enum: ["png", "jpeg"], default: "png" },
        keep_ratio: { type: "boolean", default: true },
      },
    },
    example: { image: "iVBORw0KGgo…", width: 320, height: 200 },
    run_p50_sec: 0.12,
  },
  {
    type: "send_mail",
    description: "Send a message to one address.",
    workers: 2,
    built_in: false,
    schema: {
      type: "object",
      required: ["to"],
      properties: {
        to: { ...string, format: "email" },
        subject: string,
        tags: { type: "array", items: string },
      },
    },
    example: { to: "ada@example.com", subject: "hello" },
    run_p50_sec: 0.4,
  },
  {
    type: "echo",
    description: "Answers with its payload.",
    workers: 3,
    built_in: true,
    schema: null,
    example: "hello",
    run_p50_sec: 0.001,
  },
  {
    type: "report.monthly",
    description: null,
    workers: 0,
    built_in: false,
    schema: { type: "object", properties: { month: string } },
    example: null,
    run_p50_sec: null,
  },
];

/** A search as single parameters, as far as they are told apart by spaces and colons. */
function spelledOut(query: URLSearchParams): URLSearchParams {
  const spelled = new URLSearchParams(query);
  for (const word of (query.get("q") ?? "").split(/\s+/).filter(Boolean)) {
    const [key = "", value] = word.split(/:(.*)/);
    if (value === undefined) spelled.set("text", key);
    else spelled.set(key, value);
  }
  return spelled;
}

function page(given: URLSearchParams) {
  const query = spelledOut(given);
  const limit = Number(query.get("limit") ?? 50);
  const offset = Number(query.get("cursor") ?? query.get("offset") ?? 0);
  const status = query.get("status")?.split(",");
  const matches = (job: WireJob) =>
    (!status || status.includes(job.status)) &&
    (!query.get("type") || job.type === query.get("type")) &&
    (!query.get("queue") || job.queue === query.get("queue")) &&
    (!query.get("worker") || job.worker_id === query.get("worker")) &&
    (!query.get("priority") || job.priority === Number(query.get("priority"))) &&
    (!query.get("text") ||
      job.id.startsWith(query.get("text") ?? "") ||
      job.name?.includes(query.get("text") ?? ""));
  const filtered = ["status", "type", "queue", "worker", "priority", "text"].some((key) => query.get(key));
  if (!filtered) {
    const jobs = Array.from({ length: Math.max(0, Math.min(limit, TOTAL - offset)) }, (_, n) =>
      jobAt(offset + n),
    );
    return { jobs, total: TOTAL + submitted.length, limit, offset, next_cursor: String(offset + limit) };
  }
  const found: WireJob[] = [];
  let seen = 0;
  for (let n = 0; n < 40_000 && seen < 10_000; n++) {
    const job = jobAt(n);
    if (!matches(job)) continue;
    if (seen >= offset && found.length < limit) found.push(job);
    seen++;
  }
  const next_cursor = seen > offset + limit ? String(offset + limit) : null;
  return { jobs: found, total: seen, limit, offset, next_cursor, total_capped: seen >= 10_000 };
}

function find(id: string): WireJob | null {
  for (let n = 0; n < 5000; n++) {
    const job = jobAt(n);
    if (job.id === id) return job;
  }
  return null;
}

function series(query: URLSearchParams) {
  const ago: Record<string, number> = { "15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800 };
  const span = ago[query.get("from") ?? "15m"] ?? 900;
  const step = Number(query.get("step")) || (span <= 1800 ? 10 : span <= 21_600 ? 60 : 300);
  const to = Math.floor(Date.now() / 1000 / step) * step;
  const points = Array.from({ length: Math.floor(span / step) }, (_, n): WirePoint => {
    const at = to - span + n * step;
    const wave = 40 + 25 * Math.sin(at / 90) + 10 * chance(at, 1);
    return {
      at: iso(at * 1000),
      submitted: Math.round(wave * step),
      completed: Math.round((wave - 1 + 3 * chance(at, 2)) * step),
      failed: Math.round(chance(at, 3) ** 4 * 3 * step),
      cancelled: 0,
      retried: Math.round(chance(at, 4) * step),
      wait_p50_sec: 0.02 + 0.01 * chance(at, 5),
      wait_p95_sec: 0.7 + 0.5 * chance(at, 6),
      run_p50_sec: 0.33 + 0.05 * chance(at, 7),
      run_p95_sec: 1.9 + 0.6 * chance(at, 8),
      queue_depth_max: Math.round(180 + 140 * Math.sin(at / 20) + 30 * chance(at, 9)),
      threads_used_max: Math.round(6 + 4 * Math.sin(at / 70)),
      threads_max: at % 400 < 200 ? 12 : 8,
      workers_max: at % 400 < 200 ? 3 : 2,
      autoscaler_wanted: at % 400 < 150 ? 4 : 2,
    };
  });
  return { from: iso((to - span) * 1000), to: iso(to * 1000), step_sec: step, points };
}

const breakdown = (query: URLSearchParams) => ({
  by: query.get("by"),
  rows: (query.get("by") === "queue"
    ? ["default", "mail", "images", "batch"]
    : TYPES.map(({ type }) => type)
  ).map((key, n) => ({
    key,
    submitted: 12_000 - n * 1800,
    completed: 11_900 - n * 1800,
    failed: n * 31,
    cancelled: 2,
    retried: n * 12,
    wait_p50_sec: 0.02 * (n + 1),
    wait_p95_sec: 0.8 * (n + 1),
    run_p50_sec: 0.3 * (n + 1),
    run_p95_sec: 1.9 * (n + 1),
    throughput_per_sec: 13 - n * 2,
  })),
});

const groups = () => ({
  groups: ["cannot parse order <n>", "connection refused by <host>", "no such file: <path>"].map(
    (message, n) => ({
      fingerprint: `fp${n}`,
      type: ["import_orders", "send_mail", "resize_image"][n],
      error_type: ["ValueError", "ConnectionRefusedError", "FileNotFoundError"][n],
      message,
      frame: n === 2 ? null : "orders.py:41 in parse",
      count: 24 - n * 9,
      first_seen_at: iso(START - 86_400_000),
      last_seen_at: iso(START - n * 400_000),
      sparkline: Array.from({ length: 24 }, (_, hour) => Math.round(chance(hour, n) ** 2 * 6)),
      sample_job_id: jobAt(80 + n).id,
    }),
  ),
  total_groups: 3,
  total_jobs: 37,
  counted_at: iso(START),
});

function update() {
  const n = Math.floor(4 + 10 * Math.random());
  const jobs = Array.from({ length: 6 }, () => jobAt(Math.floor(Math.random() * 60)));
  for (const job of jobs) {
    if (job.status === "queued")
      overrides.set(job.id, { status: "running", started_at: iso(), worker_id: "w-1" });
    else if (job.status === "running")
      overrides.set(job.id, {
        ...overrides.get(job.id),
        status: "completed",
        completed_at: iso(),
        progress: null,
      });
  }
  for (const bulk of bulks.values()) {
    if (bulk.status !== "running") continue;
    const done = Math.min(bulk.total, bulk.done + 250);
    bulks.set(bulk.id, {
      ...bulk,
      done,
      changed: Math.round(done * 0.98),
      status: done === bulk.total ? "done" : "running",
      finished_at: done === bulk.total ? iso() : null,
    });
  }
  return {
    at: iso(),
    period_sec: 0.25,
    submitted: n,
    completed: n - 1,
    failed: Math.random() < 0.05 ? 1 : 0,
    cancelled: 0,
    retried: 0,
    stats: stats(),
    jobs: jobs.map((job) => ({ ...job, ...overrides.get(job.id) })),
    more: 0,
    workers: workers(),
    queues: queues(),
    bulk: [...bulks.values()],
  };
}

function events(response: ServerResponse, after: string | undefined) {
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  const send = (event: string, data: unknown) =>
    response.write(`event: ${event}\nid: ${EPOCH}:${seq}\ndata: ${JSON.stringify(data)}\n\n`);
  send("hello", { epoch: EPOCH, seq, version: "0.0.0-fake" });
  if (after && !after.startsWith(EPOCH)) send("reset", { reason: "another epoch" });
  const timer = setInterval(() => {
    seq++;
    send("update", update());
  }, 250);
  response.on("close", () => clearInterval(timer));
}

type Handler = (match: RegExpMatchArray, query: URLSearchParams, body: unknown) => unknown;

function act(id: string, change: (job: WireJob) => Partial<WireJob>): unknown {
  const job = find(id);
  if (job) overrides.set(id, { ...overrides.get(id), ...change(job) });
  return job && find(id);
}

const startBulk = (body: unknown): WireBulk => {
  const { action, filter } = body as WireBulk;
  const bulk: WireBulk = {
    id: `bulk-${bulks.size + 1}`,
    action,
    filter,
    status: "running",
    total: 8000,
    total_capped: false,
    done: 0,
    changed: 0,
    created_at: iso(),
    finished_at: null,
  };
  bulks.set(bulk.id, bulk);
  return bulk;
};

function submit(body: unknown): WireJob {
  const made = { ...jobAt(0), ...(body as Partial<WireJob>) };
  const now = Date.now();
  const job: WireJob = {
    ...made,
    id: `${now
      .toString(16)
      .padStart(12, "0")
      .replace(/^(.{8})/, "$1-")}-7000-8000-00000000${submitted.length.toString(16).padStart(4, "0")}`,
    status: "queued",
    created_at: iso(now),
    run_at: iso(now),
    started_at: null,
    completed_at: null,
    worker_id: null,
    result: null,
    error: null,
    attempt: 0,
  };
  submitted.push(job);
  return job;
}

const ROUTES: [string, RegExp, Handler][] = [
  ["GET", /^\/stats$/, stats],
  ["GET", /^\/jobs$/, (_, query) => page(query)],
  ["POST", /^\/jobs$/, (_, __, body) => submit(body)],
  ["GET", /^\/jobs\/([^/]+)$/, ([, id]) => find(id ?? "")],
  [
    "POST",
    /^\/jobs\/([^/]+)\/cancel$/,
    ([, id]) => act(id ?? "", () => ({ status: "cancelled", completed_at: iso() })),
  ],
  [
    "POST",
    /^\/jobs\/([^/]+)\/retry$/,
    ([, id]) => act(id ?? "", () => ({ status: "queued", completed_at: null })),
  ],
  [
    "GET",
    /^\/jobs\/([^/]+)\/logs$/,
    () => ({
      entries: [
        { attempt: 1, claim_id: 1, stream: "stdout", time: iso(), text: "\u001b[32mok\u001b[0m working\n" },
      ],
      cut: false,
      written_bytes: 20,
      position: 1,
      more: false,
      ended: true,
    }),
  ],
  [
    "GET",
    /^\/jobs\/([^/]+)\/why$/,
    ([, id]) => ({
      job_id: id,
      status: "queued",
      code: "waiting_in_line",
      summary: "It waits for its turn.",
      details: ["3 jobs of the same priority stand before it."],
      blockers: [{ kind: "threads", id: "default", text: "all 12 threads are busy" }],
      position: 3,
      position_capped: false,
      estimate_sec: 1.2,
      try: ["stoker worker --threads 4"],
    }),
  ],
  ["GET", /^\/workers$/, () => ({ workers: workers() })],
  [
    "POST",
    /^\/workers\/([^/]+)\/drain$/,
    ([, id]) => {
      drained.add(id ?? "");
      return workers().find((worker) => worker.id === id);
    },
  ],
  ["GET", /^\/queues$/, () => ({ queues: queues() })],
  [
    "POST",
    /^\/queues\/([^/]+)\/pause$/,
    ([, name]) => {
      paused.add(name ?? "");
      return queues().find((queue) => queue.name === name);
    },
  ],
  [
    "POST",
    /^\/queues\/([^/]+)\/resume$/,
    ([, name]) => {
      paused.delete(name ?? "");
      return queues().find((queue) => queue.name === name);
    },
  ],
  ["GET", /^\/types$/, () => ({ types: TYPES })],
  ["GET", /^\/dlq\/groups$/, groups],
  [
    "GET",
    /^\/dlq$/,
    (_, query) => page(new URLSearchParams({ ...Object.fromEntries(query), status: "failed" })),
  ],
  ["POST", /^\/dlq\/(replay|discard)$/, () => ({ count: 12 })],
  ["POST", /^\/bulk$/, (_, __, body) => startBulk(body)],
  ["GET", /^\/bulk\/([^/]+)$/, ([, id]) => bulks.get(id ?? "")],
  [
    "POST",
    /^\/bulk\/([^/]+)\/stop$/,
    ([, id]) => {
      const bulk = bulks.get(id ?? "");
      if (bulk) bulks.set(bulk.id, { ...bulk, status: "stopped", finished_at: iso() });
      return bulks.get(id ?? "");
    },
  ],
  ["GET", /^\/series$/, (_, query) => series(query)],
  ["GET", /^\/series\/breakdown$/, (_, query) => breakdown(query)],
];

async function bodyOf(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString();
  return text ? JSON.parse(text) : null;
}

async function answer(request: IncomingMessage, response: ServerResponse, next: () => void) {
  const url = new URL(request.url ?? "/", "http://fake");
  if (url.pathname === "/events")
    return events(response, request.headers["last-event-id"] as string | undefined);
  for (const [method, path, handler] of ROUTES) {
    const match = url.pathname.match(path);
    if (!match || method !== request.method) continue;
    const found = handler(match, url.searchParams, await bodyOf(request));
    const problem = {
      type: "urn:stoker:problem:not-found",
      title: "There is no such thing",
      status: 404,
      detail: `No such thing: ${url.pathname}`,
      request_id: "fake",
    };
    response.writeHead(found ? (method === "POST" ? 202 : 200) : 404, { "content-type": "application/json" });
    response.end(JSON.stringify(found ?? problem));
    return;
  }
  next();
}

export function fakeServer(): Plugin {
  return {
    name: "stoker-fake",
    configureServer: ({ middlewares }) => {
      middlewares.use((request, response, next) => void answer(request, response, next));
    },
    configurePreviewServer: ({ middlewares }) => {
      middlewares.use((request, response, next) => void answer(request, response, next));
    },
  };
}
