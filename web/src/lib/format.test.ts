import { describe, expect, it } from "vitest";
import { bytes, compact, duration, percent, plural, rate, relative, shortId } from "./format";

describe("duration", () => {
  it.each([
    [0, "0 s"],
    [0.00035, "350 µs"],
    [0.0124, "12.4 ms"],
    [0.9996, "1 s"],
    [1.236, "1.24 s"],
    [59.96, "1 m"],
    [200, "3 m 20 s"],
    [7500, "2 h 5 m"],
    [357_000, "4 d 3 h"],
  ])("%d s is %s", (seconds, text) => expect(duration(seconds)).toBe(text));
});

describe("percent", () => {
  it.each([
    [0, "0 %"],
    [1, "100 %"],
    [0.99999, "99.99 %"],
    [0.00001, "0.01 %"],
    [0.5, "50.0 %"],
  ])("never rounds %d away", (share, text) => expect(percent(share)).toBe(text));
});

describe("relative", () => {
  const now = 1_000_000_000;
  it.each([
    [0, "just now"],
    [12_000, "12 s ago"],
    [-60_000, "in 1 m"],
    [3_600_000 * 5, "5 h ago"],
    [86_400_000 * 3, "3 d ago"],
  ])("%d ms", (ago, text) => expect(relative(now - ago, now)).toBe(text));
});

describe("the rest", () => {
  it("rates", () => expect([0, 0.03, 12.44, 1240].map(rate)).toEqual(["0", "0.03", "12.4", "1,240"]));
  it("large counts", () => expect([9999, 12_345, 1_000_000].map(compact)).toEqual(["9,999", "12.3K", "1M"]));
  it("bytes", () => expect([640, 12_400, 3_100_000].map(bytes)).toEqual(["640 B", "12.4 kB", "3.1 MB"]));
  it("plurals", () => expect([plural(1, "job"), plural(2, "job")]).toEqual(["1 job", "2 jobs"]));
  it("ids by their end", () => expect(shortId("0192f0c1-2345-7abc-8def-0123456789ab")).toBe("…456789ab"));
});
