import { expect, it } from "vitest";
import { failureShare, rangeOf } from "./breakdown";

it("says nothing about nothing", () => expect(failureShare({ completed: 0, failed: 0 })).toBeNull());
it("is a share of what ended", () => expect(failureShare({ completed: 3, failed: 1 })).toBe(0.25));
it("takes an hour when the URL says nothing sensible", () =>
  expect([rangeOf(undefined), rangeOf("9y"), rangeOf("7d")]).toEqual(["1h", "1h", "7d"]));
