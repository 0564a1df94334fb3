import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import type { Tick } from "@/api/schedules";
import { TickLine, tell } from "./TickLine";

afterEach(cleanup);

const AT = Date.parse("2026-01-31T12:00:00Z");
const tick = (outcome: Tick["outcome"], minutes: number, more: Partial<Tick> = {}): Tick => ({
  kind: "tick",
  outcome,
  tick: AT + minutes * 60_000,
  last: AT + minutes * 60_000,
  reason: null,
  jobId: null,
  ...more,
});

it("draws the oldest first and says how many of each there were", () => {
  const { container } = render(
    <TickLine ticks={[tick("fired", 2), tick("skipped", 1), tick("missed", 0)]} />,
  );
  const outcomes = [...container.querySelectorAll("rect")].map((bar) => bar.getAttribute("data-outcome"));
  expect(outcomes).toEqual(["missed", "skipped", "fired"]);
  expect(screen.getByRole("img").getAttribute("aria-label")).toBe(
    "The last 3 records of ticks: 1 fired, 1 skipped, 1 missed",
  );
});

it("says where there are none", () => {
  render(<TickLine ticks={[]} />);
  expect(screen.getByText("none yet")).toBeTruthy();
});

it("tells why a tick did not fire, and how long that went on", () => {
  const told = tell(tick("skipped", 0, { reason: "paused", last: AT + 60_000 }));
  expect(told).toMatch(/^skipped \(paused\) · 2026-01-31 .* to 2026-01-31 /);
  expect(tell(tick("fired", 0, { kind: "trigger" }))).toContain("fired, by hand");
});
