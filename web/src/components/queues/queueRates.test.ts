import { describe, expect, it } from "vitest";
import type { Queue } from "@/api/model";
import { KEPT_MS, ratesOf, type Sample, sampleOf, TREND, withSample } from "./queueRates";

const queue = (name: string, counts: Partial<Queue["counts"]>): Queue => ({
  name,
  counts: {
    queued: 0,
    running: 0,
    scheduled: 0,
    blocked: 0,
    completed: 0,
    failed: 0,
    cancelled: 0,
    ...counts,
  },
  paused: false,
  pausedAt: null,
  oldestQueuedAgeSec: null,
});

const history = (...samples: [number, Partial<Queue["counts"]>][]) =>
  samples.reduce<readonly Sample[]>(
    (known, [at, counts]) => withSample(known, sampleOf(at, [queue("q", counts)])),
    [],
  );

describe("ratesOf", () => {
  it("needs a second", () => {
    expect(ratesOf([], "q")).toBeNull();
    expect(ratesOf(history([0, {}], [500, { completed: 9 }]), "q")).toBeNull();
  });
  it("counts what came and what ended", () => {
    const rates = ratesOf(history([0, { queued: 5 }], [4000, { queued: 1, completed: 8, failed: 4 }]), "q");
    expect(rates).toMatchObject({ submitted: 2, ended: 3 });
    expect(rates?.trend.slice(-4)).toEqual([3, 3, 3, 3]);
    expect(rates?.trend).toHaveLength(TREND);
  });
  it("does not go below zero when old jobs are removed", () =>
    expect(ratesOf(history([0, { completed: 900 }], [2000, { completed: 10 }]), "q")).toMatchObject({
      submitted: 0,
      ended: 0,
    }));
  it("looks at the last ten seconds only", () =>
    expect(
      ratesOf(history([0, {}], [20_000, { completed: 1000 }], [30_000, { completed: 1000 }]), "q")?.ended,
    ).toBe(0));
  it("knows a queue that is new", () =>
    expect(ratesOf([sampleOf(0, []), sampleOf(2000, [queue("q", { queued: 4 })])], "q")?.submitted).toBe(2));
});

describe("withSample", () => {
  it("keeps one sample per second and a minute of them", () => {
    const many = history(...Array.from({ length: 400 }, (_, n): [number, object] => [n * 250, {}]));
    expect(many.length).toBeLessThanOrEqual(KEPT_MS / 1000 + 2);
  });
  it("starts over when the clock goes back", () => expect(history([5000, {}], [1000, {}])).toHaveLength(1));
});
