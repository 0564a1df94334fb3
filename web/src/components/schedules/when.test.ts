import { expect, it } from "vitest";
import { cronInWords, inWords, inZone } from "./when";

it.each([
  ["* * * * *", "every minute"],
  ["*/15 * * * *", "every 15 minutes"],
  ["0 * * * *", "every hour"],
  ["30 * * * *", "every hour at minute 30"],
  ["0 9 * * *", "every day at 09:00"],
  ["@daily", "every day at 00:00"],
  ["5 17 * * 1-5", "Monday to Friday at 17:05"],
  ["0 8 * * SAT,sun", "Saturday and Sunday at 08:00"],
  ["0 8 * * 1,3,5", "Monday, Wednesday and Friday at 08:00"],
  ["0 0 * * 7", "every Sunday at 00:00"],
  ["15 6 1 * *", "on day 1 of every month at 06:15"],
])("says %s in words", (cron, words) => expect(cronInWords(cron)).toBe(words));

it.each([
  "*/7 * * * *",
  "0 9 1 * 1",
  "0 9 * 1 *",
  "0 9 L * *",
  "0 9 * * FRI#2",
  "0 9-17 * * *",
  "nonsense",
  "",
])("leaves %s as it is, because words would not be exact", (cron) => expect(cronInWords(cron)).toBeNull());

it("says an interval", () => expect(inWords({ cron: null, everySec: 900 })).toBe("every 15 m"));

it("shows a time by the clocks of the schedule's zone", () => {
  const at = Date.parse("2026-01-19T08:00:00Z");
  expect(inZone(at, "Europe/Berlin")).toBe("Mon, 19 Jan 2026, 09:00:00");
  expect(inZone(at, "Nowhere/Land")).toMatch(/^2026-01-19 /);
});
