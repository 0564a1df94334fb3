import { expect, it } from "vitest";
import type { ScheduleBody } from "@/api/schedules";
import { draftOf, NEW, read, refused, whenOf } from "./draft";

const body: ScheduleBody = {
  cron: "0 9 * * 1-5",
  every_sec: null,
  timezone: "Europe/Berlin",
  overlap: "skip",
  catch_up_sec: 3600,
  catch_up_max: 2,
  jitter_sec: 5,
  start_at: "2026-01-01T00:00:00Z",
  end_at: null,
  pause_after_failures: 3,
  job: { type: "report", payload: { big: 12345678901234567890n }, queue: "mail", max_attempts: 2 },
};

it("sends a schedule that was opened and not changed as it is, with what the form does not show", () =>
  expect(read(draftOf({ name: "digest", body }), body)).toEqual({ body, mistakes: {} }));

it("changes from an expression to an interval", () => {
  const draft = { ...draftOf({ name: "digest", body }), by: "Interval" as const, every: "15m" };
  expect(read(draft, body).body).toMatchObject({ cron: null, every_sec: 900 });
});

it("says what is needed", () =>
  expect(Object.keys(read(NEW, null).mistakes).sort()).toEqual(["cron", "name", "type"]));

it("says what cannot be read", () => {
  const draft = { ...NEW, name: "n", type: "t", by: "Interval" as const, every: "soon" };
  const { mistakes } = read({ ...draft, payload: "{", catchUp: "x", catchUpMax: "1.5" }, null);
  expect(Object.keys(mistakes).sort()).toEqual(["catchUp", "catchUpMax", "every", "payload"]);
});

it("asks for a preview only of what is typed", () => {
  expect(whenOf(NEW)).toBeNull();
  expect(whenOf({ ...NEW, cron: " @daily " })).toEqual({ cron: "@daily", timezone: "UTC" });
  expect(whenOf({ ...NEW, by: "Interval", every: "2m", timezone: "" })).toEqual({
    every_sec: 120,
    timezone: "UTC",
  });
});

it("puts what the server refused at its field, and tells the rest", () => {
  const said = { every_sec: "must be at least 1", "job.payload": "is too large", end_at: "is over" };
  expect(refused(said, "Interval")).toEqual({
    mistakes: { every: "must be at least 1", payload: "is too large" },
    rest: ["end_at is over"],
  });
  expect(refused({ cron: "or every_sec is needed" }, "Interval").mistakes).toEqual({
    every: "or every_sec is needed",
  });
});
