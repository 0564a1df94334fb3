import { describe, expect, it } from "vitest";
import type { JobRow } from "@/api/model";
import { byWorker, cellsOf, KINDS, kindsOf } from "./cells";

const job = (id: string, threads: number | null, startedAt = 0): JobRow =>
  ({ id, threads, startedAt, createdAt: 0, workerId: "w" }) as JobRow;

const shape = (threads: number, threadsUsed: number, jobs: JobRow[]) =>
  cellsOf({ threads, threadsUsed }, jobs).map((cell) => [cell.job?.id ?? cell.state, cell.threads]);

describe("cellsOf", () => {
  it("is as wide as the threads a job holds", () =>
    expect(shape(4, 3, [job("a", 2), job("b", 1)])).toEqual([
      ["a", 2],
      ["b", 1],
      ["free", 1],
    ]));
  it("says busy where the job is not known", () =>
    expect(shape(3, 2, [job("a", 1)])).toEqual([
      ["a", 1],
      ["busy", 1],
      ["free", 1],
    ]));
  it("never has more cells than threads", () =>
    expect(shape(2, 2, [job("a", 1, 1), job("b", 4, 2), job("c", 1, 3)])).toEqual([
      ["a", 1],
      ["b", 1],
    ]));
  it("keeps the order in which they began", () =>
    expect(shape(2, 2, [job("late", null, 9), job("early", null, 1)])).toEqual([
      ["early", 1],
      ["late", 1],
    ]));
});

describe("kindsOf", () => {
  it("tells up to eight types apart", () => {
    const kinds = kindsOf(["a", "b", "c", "d", "e", "f", "g", "h"]);
    expect(new Set(kinds.values()).size).toBe(KINDS);
    expect(Math.min(...kinds.values())).toBe(1);
    expect(Math.max(...kinds.values())).toBe(KINDS);
  });
  it("goes on with more", () => expect(kindsOf(Array.from({ length: 30 }, (_, n) => `t${n}`)).size).toBe(30));
});

it("groups by worker", () =>
  expect(
    [...byWorker([job("a", 1), { ...job("b", 1), workerId: null }])].map(([id, rows]) => [id, rows.length]),
  ).toEqual([["w", 1]]));
