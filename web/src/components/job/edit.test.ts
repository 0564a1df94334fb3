import { expect, it } from "vitest";
import type { Job } from "@/api/model";
import { editDraft, localTime, readEdit, refusedEdit } from "./edit";

const AT = Date.parse("2026-01-31T12:00:00Z");
const job = {
  status: "scheduled",
  attempt: 0,
  priority: 1,
  queue: "mail",
  runAt: AT,
  maxAttempts: 4,
  timeoutSec: 30,
  payload: { big: 12345678901234567890n },
  metadata: { customer: "42" },
} as unknown as Job;
const before = editDraft(job);
const read = (change: Partial<typeof before>) => readEdit({ ...before, ...change }, before);

it("changes nothing that was left as it is", () => expect(read({})).toEqual({ edit: {}, mistakes: {} }));

it("sends only what differs, and big numbers whole", () => {
  expect(read({ priority: "0" }).edit).toEqual({ priority: 0 });
  const later = AT + 3_600_000;
  expect(read({ runAt: localTime(later) }).edit).toEqual({ run_at: new Date(later).toISOString() });
  expect(read({ timeout: "2m", attempts: "7", queue: "fast" }).edit).toEqual({
    timeout_sec: 120,
    max_attempts: 7,
    queue: "fast",
  });
  expect(read({ payload: '{"big": 99999999999999999999}' }).edit).toEqual({
    payload: { big: 99999999999999999999n },
  });
});

it("clears what was emptied", () =>
  expect(read({ runAt: "", timeout: "none", attempts: "", metadata: "", queue: " " }).edit).toEqual({
    run_at: null,
    timeout_sec: null,
    max_attempts: null,
    metadata: null,
    queue: null,
  }));

it("shows no time for a job that is due", () =>
  expect(editDraft({ ...job, status: "queued" }).runAt).toBe(""));

it("says what cannot be", () => {
  const { mistakes } = read({ priority: "101", timeout: "soon", payload: "{", metadata: '{"n": 1}' });
  expect(Object.keys(mistakes).sort()).toEqual(["metadata", "payload", "priority", "timeout"]);
});

it("puts what the server refused at its field", () =>
  expect(refusedEdit({ run_at: "is too far", "metadata.x": "is too long", other: "?" })).toEqual({
    runAt: "is too far",
    metadata: "is too long",
  }));
