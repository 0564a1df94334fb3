import { describe, expect, it } from "vitest";
import type { DeadLetterGroup } from "@/api/model";
import { canaryState, held, isNew, piecesOf, sorted } from "./groups";

const group = (fingerprint: string, changes: Partial<DeadLetterGroup> = {}): DeadLetterGroup => ({
  fingerprint,
  type: "t",
  errorType: "E",
  message: "m",
  frame: null,
  count: 1,
  firstSeenAt: 0,
  lastSeenAt: 0,
  sparkline: [],
  sampleJobId: "j",
  ...changes,
});
const names = (groups: DeadLetterGroup[]) => groups.map(({ fingerprint }) => fingerprint).join("");

describe("piecesOf", () => {
  it.each([
    ["plain", ["plain"]],
    ["order <n> of <path>", ["order ", "[n]", " of ", "[path]"]],
    ["<id>", ["[id]"]],
    ["a < b and c > d", ["a < b and c > d"]],
    ["<script>alert(1)</script>", ["<script>alert(1)</script>"]],
    ["", []],
  ])("%j", (message, shown) =>
    expect(piecesOf(message).map((piece) => (piece.hole ? `[${piece.text}]` : piece.text))).toEqual(shown),
  );
});

describe("order", () => {
  const groups = [
    group("a", { count: 1, lastSeenAt: 3 }),
    group("b", { count: 9, lastSeenAt: 1 }),
    group("c", { count: 9, lastSeenAt: 2 }),
  ];
  it("by what was seen last", () => expect(names(sorted(groups, "latest"))).toBe("acb"));
  it("by how many, the latest first among equals", () => expect(names(sorted(groups, "most"))).toBe("cba"));
});

describe("held", () => {
  const shown = [group("b"), group("a")];
  it("stays in its order, with what is true now", () => {
    const { list, newer } = held(shown, [group("a", { lastSeenAt: 9, count: 7 }), group("b")]);
    expect(list.map(({ group }) => [group.fingerprint, group.count])).toEqual([
      ["b", 1],
      ["a", 7],
    ]);
    expect(newer).toBe(0);
  });
  it("counts what came, and keeps the place of what went", () => {
    const { list, newer } = held(shown, [group("c"), group("a"), group("d")]);
    expect(list.map(({ group, gone }) => [group.fingerprint, gone])).toEqual([
      ["b", true],
      ["a", false],
    ]);
    expect(newer).toBe(2);
  });
});

it("is new for ten minutes", () =>
  expect([
    isNew(group("a", { firstSeenAt: 0 }), 599_000),
    isNew(group("a", { firstSeenAt: 0 }), 601_000),
  ]).toEqual([true, false]));

describe("canaryState", () => {
  it.each([
    ["queued", 0, "waiting"],
    ["running", 1, "running"],
    ["completed", 1, "passed"],
    ["failed", 4, "failed"],
    ["scheduled", 1, "failed"],
    ["scheduled", 0, "waiting"],
    ["cancelled", 0, "failed"],
  ] as const)("%s after %d attempts is %s", (status, attempt, state) =>
    expect(canaryState(status, attempt)).toBe(state),
  );
});
