import { describe, expect, it } from "vitest";
import { isolated, SCALES, type Unit } from "./scale";

/** The marks of an axis up to `top`, at the first allowed distance that leaves at most four of them. */
function axis(unit: Unit, top: number): string[] {
  const { steps, marks } = SCALES[unit];
  const step = steps.find((each) => top / each <= 4) ?? 1;
  const splits = Array.from({ length: Math.floor(top / step) + 1 }, (_, index) =>
    Number((index * step).toPrecision(12)),
  );
  return marks(splits);
}

describe("the marks of an axis", () => {
  it.each<[Unit, number, string[]]>([
    ["count", 1.12, ["0", "1"]],
    ["count", 2.24, ["0", "1", "2"]],
    ["count", 9, ["0", "5"]],
    ["count", 45_000, ["0", "20K", "40K"]],
    ["rate", 168, ["0", "50", "100", "150"]],
    ["rate", 1.12, ["0", "0.5", "1.0"]],
    ["rate", 0.4, ["0", "0.1", "0.2", "0.3", "0.4"]],
    ["rate", 0.16, ["0", "0.05", "0.10", "0.15"]],
    ["duration", 0.5, ["0 ms", "200 ms", "400 ms"]],
    ["duration", 1.6, ["0 s", "0.5 s", "1.0 s", "1.5 s"]],
    ["duration", 0.0004, ["0 µs", "100 µs", "200 µs", "300 µs", "400 µs"]],
    ["duration", 40, ["0 s", "10 s", "20 s", "30 s", "40 s"]],
    ["duration", 280, ["0", "2 m", "4 m"]],
    ["duration", 10_000, ["0", "1 h", "2 h"]],
  ])("%s up to %s", (unit, top, marks) => expect(axis(unit, top)).toEqual(marks));

  it("are all different, and of one number of digits", () => {
    for (const unit of ["count", "rate", "duration"] as const)
      for (const top of [0.003, 0.07, 1, 1.12, 3, 7.7, 56, 168, 999, 5000, 70_000]) {
        const marks = axis(unit, top);
        expect(new Set(marks).size).toBe(marks.length);
        const digits = marks.slice(1).map((mark) => /\.(\d+)/.exec(mark)?.[1]?.length ?? 0);
        if (!marks.some((mark) => /[KMhmd]$/.test(mark))) expect(new Set(digits).size).toBeLessThan(2);
      }
  });
});

describe("isolated points", () => {
  it.each([
    [[null, 3, null], [1]],
    [
      [3, null, 4, 5, null, 6],
      [0, 5],
    ],
    [[3], [0]],
    [[1, 2, 3], []],
    [[null, null], []],
    [[undefined, 1, undefined], [1]],
  ])("%j", (values, places) => expect(isolated(values)).toEqual(places));
});
