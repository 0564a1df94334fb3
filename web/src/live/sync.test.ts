import { QueryClient } from "@tanstack/react-query";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { liveJobRow } from "@/api/convert";
import type { JobRow, JobsPage } from "@/api/model";
import { keys } from "@/api/queries";
import { liveJob, stats, update } from "./fixtures";
import type { LiveEvent } from "./state";
import { LiveStore } from "./store";
import { paced, patchPage, syncQueries, throttle } from "./sync";

const row = (id: string): JobRow => ({ ...liveJobRow(liveJob(id)), maxAttempts: 4 });
const page = (...ids: string[]): JobsPage => ({
  rows: ids.map(row),
  total: ids.length,
  totalCapped: false,
  offset: 0,
  nextCursor: null,
});

describe("patchPage", () => {
  it("is the same page when nothing of it changed", () => {
    const before = page("a");
    expect(patchPage(before, new Map([["b", row("b")]]))).toBe(before);
  });
  it("has what the stream said, and keeps what it did not", () => {
    const live = liveJobRow(liveJob("a", { status: "running", attempt: 1 }));
    expect(patchPage(page("a", "b"), new Map([["a", live]])).rows[0]).toMatchObject({
      status: "running",
      maxAttempts: 4,
    });
  });
});

describe("throttle", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });
  it("runs at once, then once per time with what was said last", () => {
    const run = vi.fn();
    const call = throttle(run, 100);
    call(1);
    call(2);
    call(3);
    expect(run.mock.calls).toEqual([[1]]);
    vi.advanceTimersByTime(100);
    expect(run.mock.calls).toEqual([[1], [3]]);
    vi.advanceTimersByTime(1000);
    expect(run).toHaveBeenCalledTimes(2);
  });
});

describe("paced", () => {
  it("lets a run end before the next, and forgets no call", async () => {
    vi.useFakeTimers();
    const ends: (() => void)[] = [];
    const run = vi.fn(() => new Promise<void>((resolve) => ends.push(resolve)));
    const call = paced(run, 100);
    call();
    call();
    await vi.advanceTimersByTimeAsync(5000);
    expect(run).toHaveBeenCalledTimes(1);
    ends[0]?.();
    await vi.advanceTimersByTimeAsync(0);
    expect(run).toHaveBeenCalledTimes(2);
    ends[1]?.();
    await vi.advanceTimersByTimeAsync(5000);
    expect(run).toHaveBeenCalledTimes(2);
    call();
    expect(run).toHaveBeenCalledTimes(3);
    vi.useRealTimers();
  });
});

describe("syncQueries", () => {
  const setup = () => {
    const store = new LiveStore();
    const client = new QueryClient();
    const stop = syncQueries(store, client);
    const say = (...events: LiveEvent[]) => {
      for (const event of events) store.emit(event);
      store.flush();
    };
    return { client, say, stop };
  };
  const stale = (client: QueryClient, key: readonly unknown[]) => client.getQueryState(key)?.isInvalidated;

  it("writes numbers and rows into what was fetched", () => {
    const { client, say, stop } = setup();
    client.setQueryData(keys.jobsPage({}, 0), page("a"));
    say({
      kind: "update",
      id: "e:1",
      data: update(0, { stats: stats({ queue_depth: 7 }), jobs: [liveJob("a", { status: "failed" })] }),
    });
    expect(client.getQueryData(keys.stats)).toMatchObject({ queueDepth: 7 });
    expect(client.getQueryData<JobsPage>(keys.jobsPage({}, 0))?.rows[0]?.status).toBe("failed");
    stop();
  });

  it("doubts the job that changed, and all of them when it cannot know", () => {
    const { client, say, stop } = setup();
    client.setQueryData(keys.job("a"), {});
    client.setQueryData(keys.job("b"), {});
    say({ kind: "update", id: "e:1", data: update(0, { jobs: [liveJob("a")] }) });
    expect([stale(client, keys.job("a")), stale(client, keys.job("b"))]).toEqual([true, false]);
    stop();
  });

  it("doubts everything when the server is another one", () => {
    const { client, say, stop } = setup();
    client.setQueryData(keys.types, []);
    const hello = (epoch: string): LiveEvent => ({
      kind: "hello",
      id: `${epoch}:0`,
      data: { epoch, seq: 0, version: "1" },
    });
    say(hello("e"));
    expect(stale(client, keys.types)).toBe(false);
    say(hello("f"));
    expect(stale(client, keys.types)).toBe(true);
    stop();
  });
});
