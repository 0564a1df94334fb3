import { describe, expect, it } from "vitest";
import type { JobRow } from "@/api/model";
import { extend, isSelected, NONE, selectAll, toggle } from "./selection";

const row = (id: string) => ({ id }) as JobRow;

describe("selection", () => {
  it("toggles one and remembers where a range begins", () => {
    const one = toggle(NONE, row("a"), 4);
    expect([isSelected(one, "a"), isSelected(one, "b"), one.anchor]).toEqual([true, false, 4]);
    expect(toggle(one, row("a"), 4).rows.size).toBe(0);
  });

  it("adds a range and keeps its anchor", () => {
    const range = extend(toggle(NONE, row("a"), 0), [row("a"), row("b"), row("c")]);
    expect([...range.rows.keys()]).toEqual(["a", "b", "c"]);
    expect(range.anchor).toBe(0);
  });

  it("all is all, until something else is chosen", () => {
    const all = selectAll(NONE);
    expect(isSelected(all, "anything")).toBe(true);
    expect(toggle(all, row("a"), 1).all).toBe(false);
  });
});
