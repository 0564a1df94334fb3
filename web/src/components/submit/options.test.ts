import { expect, it } from "vitest";
import type { JobType } from "@/api/model";
import { defaultsOf, NO_OPTIONS, readOptions, seconds } from "./options";

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
      ...NO_OPTIONS,
      name: "n",
      queue: "mail",
      priority: "0",
      threads: "4",
      timeout: "1m",
      memory: "500",
      delay: "2h",
      attempts: "5",
    }).fields,
  ).toEqual({
    name: "n",
    queue: "mail",
    priority: 0,
    thread_demand: 4,
    timeout_sec: 60,
    memory_mb: 500,
    delay_sec: 7200,
    max_attempts: 5,
  }));

it("reads the advanced ones", () =>
  expect(
    readOptions({
      ...NO_OPTIONS,
      uniqueKey: "invoice:42",
      onConflict: "replace",
      expires: "10m",
      deadline: "1h",
      softTimeout: "none",
    }),
  ).toEqual({
    fields: {
      unique_key: "invoice:42",
      on_conflict: "replace",
      expires_in_sec: 600,
      deadline_sec: 3600,
      soft_timeout_sec: null,
    },
    mistakes: {},
  }));

it("wants a key for what is said about keys", () =>
  expect(readOptions({ ...NO_OPTIONS, onConflict: "reject" }).mistakes).toEqual({
    onConflict: "needs a unique key",
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

it("sends what is typed, also where it is what most jobs have: the type may have something else", () =>
  expect(
    readOptions({
      ...NO_OPTIONS,
      queue: "default",
      priority: "1",
      threads: "1",
      timeout: "none",
      memory: "None",
    }).fields,
  ).toEqual({ queue: "default", priority: 1, thread_demand: 1, timeout_sec: null, memory_mb: null }));

it("shows what the workers of a type announced", () => {
  const mail = { defaults: { queue: "mail", priority: 0, timeout_sec: 30, max_attempts: 7 } } as JobType;
  expect(defaultsOf(mail)).toMatchObject({
    queue: "mail",
    priority: "high",
    threads: "1",
    timeout: "30",
    memory: "none",
    attempts: "7",
  });
  expect(defaultsOf(undefined)).toMatchObject({ queue: "default", priority: "normal", attempts: "4" });
});
