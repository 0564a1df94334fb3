import { describe, expect, it } from "vitest";
import type { WireUpdate } from "@/api/wire";
import { AT, liveJob, stats, update } from "./fixtures";
import {
  INITIAL,
  isNewer,
  JOBS_KEPT,
  type LiveEvent,
  type LiveState,
  rates,
  reduce,
  SECONDS_KEPT,
} from "./state";

const hello = (epoch: string, seq: number): LiveEvent => ({
  kind: "hello",
  id: `${epoch}:${seq}`,
  data: { epoch, seq, version: "1" },
});
const say = (id: string, ms = 0, more: Partial<WireUpdate> = {}): LiveEvent => ({
  kind: "update",
  id,
  data: update(ms, more),
});
const told = (...events: LiveEvent[]): LiveState => reduce(INITIAL, events);

describe("the connection", () => {
  it("is live after hello", () => {
    const state = told(hello("e", 5));
    expect([state.phase, state.position, state.generation]).toEqual(["live", "e:5", 0]);
  });

  it("remembers since when it is down, however often it tries", () => {
    const state = told(
      hello("e", 1),
      { kind: "lost", at: 100 },
      { kind: "failed", at: 200 },
      { kind: "failed", at: 300 },
    );
    expect([state.phase, state.downSince]).toEqual(["unreachable", 100]);
    expect(reduce(state, [hello("e", 1)])).toMatchObject({ phase: "live", downSince: null });
  });

  it("goes on where it was when the same server answers again, and misses nothing", () => {
    const state = told(
      hello("e", 1),
      say("e:2", 0, { submitted: 1 }),
      { kind: "lost", at: 1 },
      hello("e", 9),
    );
    expect(state.position).toBe("e:2");
    expect(state.generation).toBe(0);
    const resumed = reduce(state, [say("e:3", 0, { submitted: 1 }), say("e:9", 0, { submitted: 1 })]);
    expect(resumed.submitted).toBe(3);
  });

  it("doubts everything after another server answered", () => {
    const state = told(hello("e", 1), { kind: "lost", at: 1 }, hello("f", 7));
    expect([state.generation, state.position, state.epoch]).toEqual([1, "f:7", "f"]);
  });

  it("doubts everything after a reset", () =>
    expect(told(hello("e", 1), { kind: "reset", id: "e:40" })).toMatchObject({
      generation: 1,
      position: "e:40",
    }));

  it("needs a token, or finds no stream", () => {
    expect(told({ kind: "unauthorized", at: 1 }).phase).toBe("unauthorized");
    expect(told({ kind: "unsupported" })).toMatchObject({ phase: "unsupported", downSince: null });
  });
});

describe("updates", () => {
  it("that were seen already are not counted twice", () =>
    expect(
      told(hello("e", 0), say("e:1", 0, { submitted: 2 }), say("e:1", 0, { submitted: 2 })).submitted,
    ).toBe(2));

  it("carry numbers, workers and queues; what is absent stays", () => {
    const worker = {
      id: "w",
      name: "w",
      status: "live",
      threads: 4,
      threads_used: 1,
      types: [],
      queues: null,
      labels: {},
      registered_at: "2026-01-31T12:00:00Z",
      last_heartbeat_at: "2026-01-31T12:00:00Z",
      endpoint: null,
      host: null,
      pid: null,
      any_type: false,
    };
    const state = told(
      say("e:1", 0, { stats: stats({ queue_depth: 3 }), workers: [worker] }),
      say("e:2", 0, { stats: stats({ queue_depth: 4 }) }),
    );
    expect(state.stats?.queueDepth).toBe(4);
    expect(state.workers?.[0]?.threadsUsed).toBe(1);
    expect(state.queues).toBeNull();
  });

  it("keep the last state of each job and say which changed", () => {
    const state = told(
      say("e:1", 0, { jobs: [liveJob("a"), liveJob("b")] }),
      say("e:2", 0, { jobs: [liveJob("a", { status: "running" })], more: 3 }),
    );
    expect([...state.jobs.keys()]).toEqual(["b", "a"]);
    expect(state.jobs.get("a")?.status).toBe("running");
    expect(state.changed).toEqual(["a", "b", "a"]);
    expect(state.unseen).toBe(3);
    expect(reduce(state, [say("e:3")]).changed).toEqual([]);
  });

  it("do not grow without end", () => {
    let state = INITIAL;
    for (let n = 0; n < SECONDS_KEPT + 100; n++)
      state = reduce(state, [
        say(`e:${n}`, n * 1000, { jobs: [liveJob(`a${n}`), liveJob(`b${n}`), liveJob(`c${n}`)] }),
      ]);
    expect(state.jobs.size).toBe(JOBS_KEPT);
    expect(state.seconds).toHaveLength(SECONDS_KEPT);
    expect(state.seconds.at(-1)?.at).toBe(AT + (SECONDS_KEPT + 99) * 1000);
  });

  it("of the same second are one", () => {
    const state = told(
      say("e:1", 100, { submitted: 1, stats: stats({ queue_depth: 5 }) }),
      say("e:2", 350, { submitted: 2, stats: stats({ queue_depth: 2 }) }),
      say("e:3", 1100, { submitted: 4 }),
    );
    expect(state.seconds.map(({ submitted, queueDepth }) => [submitted, queueDepth])).toEqual([
      [3, 5],
      [4, 0],
    ]);
  });

  it("with a clock that went back stay in order", () => {
    const state = told(say("e:1", 5000, { submitted: 1 }), say("e:2", 1000, { submitted: 1 }));
    expect(state.seconds).toHaveLength(1);
  });
});

describe("rates", () => {
  it("are of the last whole seconds, quiet ones included", () => {
    const state = told(
      say("e:1", 0, { submitted: 10 }),
      say("e:2", 1000, { submitted: 20 }),
      say("e:3", 5200, { submitted: 99 }),
    );
    expect(rates(state, 4)?.submitted).toBe(5);
  });
  it("are right from the first whole second on, and unknown until then", () => {
    // 40 jobs a second, of which the page sees a quarter of a second at a time, from 0.3 s on.
    let state = INITIAL;
    const seen: (number | undefined)[] = [];
    for (let n = 0; n < 32; n++) {
      state = reduce(state, [say(`e:${n + 1}`, 300 + n * 250, { submitted: 10 })]);
      seen.push(rates(state)?.submitted);
    }
    expect(seen.slice(0, 3)).toEqual([undefined, undefined, undefined]);
    expect(new Set(seen.filter((rate) => rate !== undefined))).toEqual(new Set([40]));
    expect(seen.at(-1)).toBe(40);
  });
  it("begin anew when something was missed", () => {
    const state = told(say("e:1", 0), say("e:2", 3000, { submitted: 9 }), { kind: "reset", id: "e:9" });
    expect(rates(reduce(state, [say("e:10", 9000, { submitted: 9 })]))).toBeNull();
  });
  it("are unknown before the first update", () => expect(rates(INITIAL)).toBeNull());
});

it.each([
  ["e:2", "e:1", true],
  ["e:1", "e:1", false],
  ["e:10", "e:9", true],
  ["f:1", "e:9", true],
  ["a:b:2", "a:b:1", true],
  ["e:1", null, true],
])("%s after %s: %s", (id, position, newer) => expect(isNewer(id, position)).toBe(newer));
