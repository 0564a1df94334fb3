// A complete Stoker worker in Node 18 or later, without packages: `node worker.mjs`.
//
// It speaks plain HTTP (docs/reference/worker-protocol.md): register, lease, heartbeat, report. Up to THREADS jobs run side by
// side; on SIGINT and SIGTERM it finishes what runs, then leaves.

const url = process.env.STOKER_API_URL ?? "http://127.0.0.1:8080";
const threads = Number(process.env.THREADS ?? 4);
const headers = { "content-type": "application/json" };
if (process.env.STOKER_TOKEN) headers.authorization = `Bearer ${process.env.STOKER_TOKEN}`;

// What this worker can do: a job type and a function from the payload to the result.
const tasks = {
  shout: (text) => String(text).toUpperCase(),
  pause: async ({ seconds }, signal) => {
    await new Promise((resolve, reject) => {
      setTimeout(resolve, seconds * 1000);
      signal.addEventListener("abort", () => reject(signal.reason));
    });
    return { slept: seconds };
  },
};

const running = new Map(); // "id claim" -> {job, abort}
let leaving = false;
const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

async function post(path, body = {}, signal) {
  const answer = await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body), signal });
  if (!answer.ok) throw Object.assign(new Error(`${path}: ${answer.status} ${await answer.text()}`), { status: answer.status });
  return answer.json();
}

// A report is repeated until it arrives: the claim makes a repeat harmless.
async function report(session, job, outcome) {
  const reports = [{ id: job.id, claim_id: job.claim_id, ...outcome }];
  for (;;) {
    try {
      return await post(`/workers/${session}/report`, { reports });
    } catch (error) {
      if (error.status && error.status < 500) return console.error("refused:", error.message);
      await sleep(1);
    }
  }
}
async function run(session, job) {
  const abort = new AbortController();
  const key = `${job.id} ${job.claim_id}`;
  running.set(key, { job, abort });
  const limit = job.timeout_sec && setTimeout(() => abort.abort(new Error("timed out")), job.timeout_sec * 1000);
  try {
    const result = await tasks[job.type](job.payload, abort.signal);
    await report(session, job, { outcome: "completed", result: result ?? null });
  } catch (error) {
    if (abort.signal.reason === "cancelled") await report(session, job, { outcome: "cancelled" });
    else if (abort.signal.reason !== "revoked")
      await report(session, job, { outcome: "failed", error: { type: error.name, message: error.message, traceback: error.stack } });
  } finally {
    clearTimeout(limit);
    running.delete(key);
  }
}

async function beat(session, seconds, lost) {
  while (!lost.signal.aborted) {
    await sleep(seconds);
    try {
      const held = [...running.values()].map(({ job }) => ({ id: job.id, claim_id: job.claim_id }));
      const news = await post(`/workers/${session}/heartbeat`, { held });
      for (const why of ["cancel", "revoked"])
        for (const claim of news[why]) running.get(`${claim.id} ${claim.claim_id}`)?.abort.abort(why === "cancel" ? "cancelled" : why);
      if (news.drain) leaving = true;
    } catch (error) {
      if (error.status === 404) lost.abort();
    }
  }
}

for (const name of ["SIGINT", "SIGTERM"]) process.on(name, () => (leaving = true));
while (!leaving) {
  const lost = new AbortController(); // fires when the coordinator has given this session up
  try {
    const hello = { name: `node-${process.pid}`, threads, types: Object.keys(tasks), queues: process.env.QUEUES?.split(",") };
    const { id, heartbeat_interval_sec } = await post("/workers", hello);
    console.log(`registered as ${id} for ${hello.types}`);
    beat(id, heartbeat_interval_sec, lost);
    while (!leaving && !lost.signal.aborted) {
      const room = threads - running.size;
      if (room === 0) await sleep(0.05);
      else for (const job of (await post(`/workers/${id}/lease?wait=2&max=${room}`, {}, lost.signal)).jobs) run(id, job);
    }
    if (lost.signal.aborted) for (const { abort } of running.values()) abort.abort("revoked");
    while (running.size) await sleep(0.05);
  } catch (error) {
    console.error(error.message);
    await sleep(1);
  }
  lost.abort();
}
process.exit(0);
