import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { liveJob, update } from "./fixtures";
import { LiveStore } from "./store";

const say = (seq: number, submitted = 1) => ({
  kind: "update" as const,
  id: `e:${seq}`,
  data: update(0, { submitted, jobs: [liveJob(`j${seq}`)] }),
});

describe("LiveStore", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it("renders at most four times a second and loses nothing", () => {
    const store = new LiveStore();
    const seen: number[] = [];
    store.subscribe((state) => seen.push(state.submitted));
    for (let n = 1; n <= 1000; n++) {
      store.emit(say(n));
      vi.advanceTimersByTime(1);
    }
    vi.advanceTimersByTime(300);
    expect(seen.length).toBeLessThanOrEqual(6);
    expect(seen.at(-1)).toBe(1000);
  });

  it("does not keep a first message waiting", () => {
    const store = new LiveStore();
    store.emit(say(1));
    vi.advanceTimersByTime(0);
    expect(store.state.submitted).toBe(1);
  });

  it("takes over what another tab knows, and then what came meanwhile", () => {
    const leader = new LiveStore();
    leader.emit(say(1, 5));
    leader.flush();
    const follower = new LiveStore();
    follower.emit(say(1, 5));
    follower.emit(say(2, 1));
    follower.adopt(leader.state);
    follower.flush();
    expect(follower.state.submitted).toBe(6);
    follower.adopt(leader.state);
    expect(follower.state.submitted).toBe(6);
  });
});
