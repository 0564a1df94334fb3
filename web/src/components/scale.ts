/** How the values of a chart are written, and where its axis has marks: one unit and one number of digits on an axis. Pure. */

import { compact, duration, rate } from "@/lib/format";

export type Unit = "count" | "rate" | "duration";

interface Scale {
  /** A single value, as the legend tells it. */
  format: (value: number) => string;
  /** Distances that marks may have, ascending. */
  steps: number[];
  /** The marks of an axis. */
  marks: (splits: readonly number[]) => string[];
}

const powers = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, index) => 10 ** (from + index));
const DECIMAL = powers(-6, 12).flatMap((power) =>
  [1, 2, 5].map((step) => Number((step * power).toPrecision(1))),
);
const WHOLE = DECIMAL.filter((step) => step >= 1);
/** Beyond a minute, marks stand at round minutes, hours and days. */
const TIMES = [60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200];
const DAYS = WHOLE.map((step) => step * 86_400);

/** Digits behind the point that a step needs: 0.05 has two, 20 has none. */
function digits(step: number): number {
  return step >= 1 || step <= 0 ? 0 : Math.min(6, Math.ceil(-Math.log10(step) - 1e-9));
}

const stepOf = (splits: readonly number[]) =>
  splits.length > 1 ? Number(((splits[1] as number) - (splits[0] as number)).toPrecision(6)) : 0;

function decimals(splits: readonly number[], unit = ""): string[] {
  const wanted = digits(stepOf(splits));
  return splits.map((value) =>
    value === 0 ? `0${unit}` : `${value >= 10_000 ? compact(value) : value.toFixed(wanted)}${unit}`,
  );
}

/** In the unit that suits the top of the axis; 500 ms and 1.5 s do not stand beside each other. */
function durations(splits: readonly number[]): string[] {
  const top = splits.at(-1) ?? 0;
  if (top < 0.001)
    return decimals(
      splits.map((value) => value * 1e6),
      " µs",
    );
  if (top < 1)
    return decimals(
      splits.map((value) => Number((value * 1000).toPrecision(6))),
      " ms",
    );
  if (top < 60 || stepOf(splits) % 60 !== 0) return decimals(splits, " s");
  return splits.map((value) => (value === 0 ? "0" : duration(value)));
}

export const SCALES: Record<Unit, Scale> = {
  // There is no half worker: marks between whole numbers would be rounded to the same one.
  count: { format: compact, steps: WHOLE, marks: (splits) => decimals(splits) },
  rate: { format: rate, steps: DECIMAL, marks: (splits) => decimals(splits) },
  duration: {
    format: duration,
    steps: [...DECIMAL.filter((step) => step < 60), ...TIMES, ...DAYS],
    marks: durations,
  },
};

/** The places of values that have none beside them: no line leads to them, so they are drawn as points. */
export function isolated(values: readonly (number | null | undefined)[]): number[] {
  const missing = (index: number) => values[index] === null || values[index] === undefined;
  return values.flatMap((_, index) =>
    !missing(index) && missing(index - 1) && missing(index + 1) ? [index] : [],
  );
}
