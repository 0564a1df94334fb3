import { describe, expect, it } from "vitest";
import { served } from "@/components/workers/served";

const seven = ["a", "b", "c", "d", "e", "f", "g"];

describe("the types of a worker", () => {
  it.each([
    [["a", "b"], false, "a, b"],
    [seven, false, "a, b, c, d, e, f and 1 other"],
    [[], true, "any that no other worker names"],
    [["a"], true, "a, and any that no other worker names"],
    [[], false, "none"],
  ])("%j, any type: %s", (types, anyType, words) => expect(served({ types, anyType })).toBe(words));
});
