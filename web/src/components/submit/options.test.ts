import { expect, it } from "vitest";
import { NO_OPTIONS, readOptions, seconds } from "./options";

it.each([
  ["90", 90],
  ["1.5h", 5400],
  ["10 m", 600],
  ["250ms", 0.25],
  ["soon", null],
  ["-1", null],
])("%s", (text, value) => expect(seconds(text)).toBe(value));

it("says nothing about what was left as it is", () =>
  expect(readOptions(NO_OPTIONS)).toEqual({ fields: {}, mistakes: {} }));

it("reads all of them", () =>
  expect(
    readOptions({
      name: "n",
      queue: "mail",
      priority: "0",
      threads: "4",
      timeout: "1m",
      delay: "2h",
      attempts: "5",
    }).fields,
  ).toEqual({
    name: "n",
    queue: "mail",
    priority: 0,
    thread_demand: 4,
    timeout_sec: 60,
    delay_sec: 7200,
    max_attempts: 5,
  }));

it("tells what cannot be", () => {
  const { mistakes } = readOptions({
    ...NO_OPTIONS,
    priority: "101",
    threads: "0",
    timeout: "x",
    attempts: "1.5",
  });
  expect(Object.keys(mistakes).sort()).toEqual(["attempts", "priority", "threads", "timeout"]);
});
