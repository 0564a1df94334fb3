import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import type { Schedule } from "@/api/schedules";
import { ScheduleCard } from "./ScheduleCard";

afterEach(cleanup);

const HOUR = 3_600_000;
const now = Date.now();
const schedule = {
  name: "digest",
  cron: "0 9 * * 1-5",
  everySec: null,
  timezone: "Europe/Berlin",
  type: "report",
  paused: false,
  pausedAt: null,
  pausedByFailures: false,
  orphaned: false,
  app: null,
  nextRunAt: now + 2 * HOUR + 60_000,
  lastRunAt: now - HOUR - 60_000,
  lastJobId: "job-1",
  lastStatus: "failed",
} as Schedule;

const show = (more: Partial<Schedule> = {}, next?: number[]) =>
  render(
    <ScheduleCard
      schedule={{ ...schedule, ...more }}
      next={next}
      title="digest"
      actions={null}
      jobLink={(id, children) => <a href={`#${id}`}>{children}</a>}
      ticks={null}
    />,
  );

it("says when it ticks in words and in its own expression, and how its last job went", () => {
  show({}, [schedule.nextRunAt ?? 0, now + 26 * HOUR]);
  expect(screen.getByText("Monday to Friday at 09:00")).toBeTruthy();
  expect(screen.getByText("0 9 * * 1-5")).toBeTruthy();
  expect(screen.getByText("in 2 h").getAttribute("title")).toMatch(/^\d{4}-/);
  expect(screen.getByText("in 1 d")).toBeTruthy();
  expect(screen.getByRole("link").textContent).toBe("failed");
});

it("marks one that is paused by its failures and one that left the code", () => {
  show({ paused: true, pausedByFailures: true, nextRunAt: null, orphaned: true });
  expect(screen.getByText(/paused after failures/)).toBeTruthy();
  expect(screen.getByText("no longer in code")).toBeTruthy();
  expect(screen.getByText("none while it is paused")).toBeTruthy();
});

it("says that no tick comes any more, and that the last job is not kept", () => {
  show({ nextRunAt: null, lastStatus: null });
  expect(screen.getByText("none: it is over")).toBeTruthy();
  expect(screen.getByText("job not kept")).toBeTruthy();
});
