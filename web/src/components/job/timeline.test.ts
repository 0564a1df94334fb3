import { describe, expect, it } from "vitest";
import type { Attempt, Job } from "@/api/model";
import { place, ticks, timeline } from "./timeline";

const job = (changes: Partial<Job>): Job =>
  ({ createdAt: 1000, runAt: 1000, completedAt: null, status: "queued", attempts: [], ...changes }) as Job;

const attempt = (
  claimId: number,
  start: number,
  end: number | null,
  changes: Partial<Attempt> = {},
): Attempt => ({
  attempt: claimId,
  claimId,
  workerId: "w",
  claimedAt: start - 10,
  startedAt: start,
  finishedAt: end,
  outcome: end === null ? "running" : "completed",
  charged: true,
  error: null,
  retryDelaySec: null,
  cpuSec: null,
  peakMemoryKb: null,
  ...changes,
});

const shape = (made: ReturnType<typeof timeline>) =>
  made.rows.map((row) => row.bars.map((bar) => [bar.kind, bar.from, bar.to, bar.open]));

describe("timeline", () => {
  it("waits until now while nobody has taken it", () =>
    expect(shape(timeline(job({}), 5000))).toEqual([[["waited", 1000, 5000, true]]]));

  it("is delayed until its time", () =>
    expect(shape(timeline(job({ status: "scheduled", runAt: 9000 }), 5000))).toEqual([
      [["delayed", 1000, 5000, true]],
    ]));

  it("splits delay, wait and run", () => {
    const done = job({ status: "completed", runAt: 2000, attempts: [attempt(1, 3000, 7000)] });
    expect(shape(timeline(done, 99_000))).toEqual([
      [
        ["delayed", 1000, 2000, false],
        ["waited", 2000, 3000, false],
        ["ran", 3000, 7000, false],
      ],
    ]);
  });

  it("backs off between attempts and runs until now", () => {
    const failedOnce = attempt(1, 1500, 2000, { outcome: "retried", retryDelaySec: 2 });
    const made = timeline(job({ status: "running", attempts: [failedOnce, attempt(2, 5000, null)] }), 8000);
    expect(shape(made)).toEqual([
      [
        ["waited", 1000, 1500, false],
        ["ran", 1500, 2000, false],
      ],
      [
        ["backed off", 2000, 4000, false],
        ["waited", 4000, 5000, false],
        ["ran", 5000, 8000, true],
      ],
    ]);
    expect(made.totals).toMatchObject({ waited: 1.5, ran: 3.5, "backed off": 2 });
  });

  it("backs off until its next attempt", () => {
    const failedOnce = attempt(1, 1500, 2000, { outcome: "retried", retryDelaySec: 2 });
    const made = timeline(job({ status: "scheduled", runAt: 4000, attempts: [failedOnce] }), 3000);
    expect(shape(made)[1]).toEqual([["backed off", 2000, 3000, true]]);
    expect(made.rows[1]?.attempt).toBe(2);
  });

  it("does not call it waiting while it was over", () => {
    const made = timeline(
      job({
        status: "completed",
        attempts: [attempt(1, 1500, 2000, { outcome: "failed" }), attempt(2, 60_000, 61_000)],
      }),
      99_000,
    );
    expect(shape(made)[1]?.[0]).toEqual(["over", 2000, 60_000, false]);
  });

  it("puts attempts in the order of their claims", () => {
    const made = timeline(
      job({ status: "completed", attempts: [attempt(2, 5000, 6000), attempt(1, 2000, 3000)] }),
      0,
    );
    expect(made.rows.map((row) => row.claimId)).toEqual([1, 2]);
  });

  it("keeps a run that took no time", () => {
    const made = timeline(job({ status: "completed", attempts: [attempt(1, 2000, 2000)] }), 0);
    expect(shape(made)[0]?.at(-1)).toEqual(["ran", 2000, 2000, false]);
  });

  it("ends with a job that was cancelled before it began", () =>
    expect(shape(timeline(job({ status: "cancelled", completedAt: 4000 }), 9000))).toEqual([
      [["waited", 1000, 4000, false]],
    ]));
});

describe("place", () => {
  const whole = { from: 1000, to: 3000, rows: [], totals: {} } as unknown as ReturnType<typeof timeline>;
  it("is in per cent", () => expect(place({ from: 1500, to: 2500 }, whole)).toEqual({ left: 25, width: 50 }));
  it("never leaves the axis", () =>
    expect(place({ from: 0, to: 9000 }, whole)).toEqual({ left: 0, width: 100 }));
});

describe("ticks", () => {
  it.each([
    [0, [0]],
    [0.01, [0, 0.005, 0.01]],
    [10, [0, 5, 10]],
    [100, [0, 30, 60, 90]],
    [4000, [0, 1800, 3600]],
  ])("%d s", (span, marks) => expect(ticks(span)).toEqual(marks));
});
