import { describe, expect, it } from "vitest";
import type { Point, Series } from "@/api/model";
import type { Second } from "@/live/state";
import { bucket, endedSince, latestRates, merge, perSecond } from "./series";

const second = (at: number, submitted: number, queueDepth = 0): Second => ({
  at: at * 1000,
  submitted,
  completed: 0,
  failed: 0,
  cancelled: 0,
  retried: 0,
  queueDepth,
  threadsUsed: null,
  threads: null,
  workers: 1,
  wanted: null,
  waitP50: null,
  waitP95: null,
  runP50: null,
  runP95: null,
});

const point = (at: number, submitted: number): Point => ({
  ...(bucket([second(at, submitted)], 1)[0] as Point),
  at: at * 1000,
});

const history = (...points: Point[]): Series => ({ from: 0, to: 0, stepSec: 10, points });

describe("bucket", () => {
  it("adds counts and keeps the highest gauge", () => {
    const points = bucket([second(10, 1, 5), second(11, 2, 9), second(19, 3, 1), second(20, 4, 2)], 10);
    expect(points.map(({ at, submitted, queueDepth }) => [at, submitted, queueDepth])).toEqual([
      [10_000, 6, 9],
      [20_000, 4, 2],
    ]);
  });
});

describe("merge", () => {
  const submitted = (points: Point[]) => points.map((each) => [each.at / 1000, each.submitted]);

  it("is the stream alone without a history", () =>
    expect(submitted(merge(null, [second(11, 1)], 10))).toEqual([[10, 1]]));

  it("is the history alone before the stream", () =>
    expect(submitted(merge(history(point(0, 7)), [], 10))).toEqual([[0, 7]]));

  it("goes on from the history, taking the fuller of the step where they meet", () => {
    const both = merge(history(point(0, 7), point(10, 5), point(20, 1)), [second(18, 2), second(25, 9)], 10);
    expect(submitted(both)).toEqual([
      [0, 7],
      [10, 5],
      [20, 9],
    ]);
  });
});

it("the share of jobs that ended well is of the chosen range alone", () => {
  const ended = (at: number, completed: number, failed: number) => ({ ...point(at, 0), completed, failed });
  const points = [ended(0, 0, 50), ended(10, 8, 2), ended(20, 1, 1)];
  expect(endedSince(points, 10_000)).toEqual({ ended: 12, share: 0.75 });
  expect(endedSince(points, 0).share).toBeCloseTo(9 / 62);
  expect(endedSince(points, 30_000)).toEqual({ ended: 0, share: null });
});

it("rates of the history are those of the last step that is complete", () => {
  const past = history(point(0, 20), point(10, 40), point(20, 3));
  expect(latestRates(past, 26_000)?.submitted).toBe(4);
  expect(latestRates(past, 24_000)?.submitted).toBe(2);
  expect(latestRates(past, 9_000)).toBeNull();
  expect(latestRates(null, 9_000)).toBeNull();
});

it("a step under way is divided by what has passed of it", () => {
  const rates = perSecond([point(0, 20), point(10, 8)], 10, 14_000)((each) => each.submitted);
  expect(rates).toEqual([2, 2]);
});
