import { describe, expect, it } from "vitest";
import type { JobRow, JobsPage } from "@/api/model";
import { PAGE_SIZE } from "@/api/queries";
import { extentOf } from "./useJobWindow";

const page = (rows: number, total: number, totalCapped = false): JobsPage => ({
  rows: Array.from({ length: rows }, () => ({}) as JobRow),
  total,
  totalCapped,
  offset: 0,
  nextCursor: null,
});
const NOTHING = { count: 0, total: 0, totalCapped: false };

describe("extentOf", () => {
  it("is the total where that is exact", () =>
    expect(extentOf(NOTHING, new Map([[0, page(PAGE_SIZE, 1_000_000)]])).count).toBe(1_000_000));

  it("shrinks with the list", () =>
    expect(extentOf({ count: 50, total: 50, totalCapped: false }, new Map([[0, page(3, 3)]])).count).toBe(3));

  it("remembers while pages are on their way", () =>
    expect(extentOf({ count: 50, total: 50, totalCapped: false }, new Map([[0, undefined]])).count).toBe(50));

  it("goes on behind a capped total as long as pages are full", () => {
    const before = { count: 10_000, total: 10_000, totalCapped: true };
    expect(extentOf(before, new Map([[99, page(PAGE_SIZE, 10_000, true)]])).count).toBe(10_100);
    expect(extentOf({ ...before, count: 10_100 }, new Map([[100, page(7, 10_000, true)]])).count).toBe(
      10_007,
    );
  });
});
