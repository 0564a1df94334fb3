import { describe, expect, it } from "vitest";
import {
  type Geometry,
  heightPx,
  isCornered,
  MAX_PX,
  moved,
  placeOf,
  reveal,
  rowTop,
  settled,
  visible,
} from "./scroll";

const small: Geometry = { count: 1000, rowPx: 32, viewPx: 640 };
const million: Geometry = { count: 1_000_000, rowPx: 32, viewPx: 640 };
const START = { scrollTop: 0, shift: 0 };

describe("a short list", () => {
  it("scrolls as ever", () => {
    expect(heightPx(small)).toBe(32_000);
    const place = moved(small, START, 3200);
    expect(place).toEqual({ scrollTop: 3200, shift: 0 });
    expect(visible(small, place)).toEqual({ first: 100, end: 120 });
    expect(rowTop(small, place, 100)).toBe(3200);
  });

  it("may be empty or shorter than the view", () => {
    expect(visible({ ...small, count: 0 }, START)).toEqual({ first: 0, end: 0 });
    expect(visible({ ...small, count: 3 }, START, 10)).toEqual({ first: 0, end: 3 });
    expect(placeOf({ ...small, count: 3 }, 50)).toEqual(START);
  });
});

describe("a million rows", () => {
  const end = MAX_PX - million.viewPx;

  it("fits into what a browser can do", () => expect(heightPx(million)).toBe(MAX_PX));

  it("has its last row at the end of the bar", () => {
    const place = moved(million, START, end);
    const range = visible(million, place);
    expect(range.end).toBe(1_000_000);
    expect(rowTop(million, place, 999_999)).toBeCloseTo(MAX_PX - 32, 3);
  });

  it("goes to the middle when the bar is dragged there", () =>
    expect(visible(million, moved(million, START, end / 2)).first).toBeCloseTo(499_990, -1));

  it("moves pixel by pixel under the wheel", () => {
    let place = placeOf(million, 16_000_000);
    const before = visible(million, place).first;
    for (let turn = 0; turn < 10; turn++) place = moved(million, place, place.scrollTop + 96);
    expect(visible(million, place).first - before).toBe(30);
  });

  it("settles without moving a row", () => {
    let place = placeOf(million, 16_000_000);
    for (let turn = 0; turn < 50; turn++) place = moved(million, place, place.scrollTop + 100);
    const rested = settled(million, place);
    expect(rested.scrollTop + rested.shift).toBeCloseTo(place.scrollTop + place.shift, 6);
    expect(rested.scrollTop).not.toBe(place.scrollTop);
  });

  it("notices an end that is not one", () => {
    const place = { scrollTop: 10, shift: 900 };
    expect(isCornered(million, place)).toBe(true);
    expect(isCornered(million, settled(million, place))).toBe(false);
  });

  it("reaches every row by name", () => {
    for (const index of [0, 1, 12_345, 500_000, 999_998, 999_999]) {
      const place = placeOf(million, reveal(million, START, index));
      const { first, end } = visible(million, place);
      expect(first <= index && index < end).toBe(true);
    }
  });
});
