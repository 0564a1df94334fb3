import { renderHook } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { keyNames, keyOf, useShortcuts } from "./shortcuts";

const key = (key: string, more: Partial<KeyboardEvent> = {}) =>
  keyOf({ key, ctrlKey: false, metaKey: false, shiftKey: false, altKey: false, ...more });

describe("keyOf", () => {
  it.each([
    [key("j"), "j"],
    [key("X", { shiftKey: true }), "shift+x"],
    [key("?", { shiftKey: true }), "?"],
    [key("k", { metaKey: true }), "mod+k"],
    [key("ArrowDown", { shiftKey: true }), "shift+arrowdown"],
  ])("%s is %s", (found, wanted) => expect(found).toBe(wanted));
});

describe("useShortcuts", () => {
  const press = (key: string, target: EventTarget = document.body) =>
    target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  afterEach(() => document.body.replaceChildren());

  it("runs keys and sequences, and stops with the component", () => {
    const j = vi.fn();
    const gj = vi.fn();
    const { unmount } = renderHook(() =>
      useShortcuts("Test", [
        { keys: "j", text: "next", run: j },
        { keys: "g j", text: "jobs", run: gj },
      ]),
    );
    press("j");
    press("g");
    press("j");
    expect([j.mock.calls.length, gj.mock.calls.length]).toEqual([1, 1]);
    unmount();
    press("j");
    expect(j).toHaveBeenCalledTimes(1);
  });

  it("leaves those alone who type", () => {
    const run = vi.fn();
    renderHook(() => useShortcuts("Test", [{ keys: "c", text: "cancel", run }]));
    const input = document.body.appendChild(document.createElement("input"));
    press("c", input);
    expect(run).not.toHaveBeenCalled();
  });
});

it("names keys", () => expect(keyNames("g j")).toEqual([["G"], ["J"]]));
