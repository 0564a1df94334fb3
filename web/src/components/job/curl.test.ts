import { describe, expect, it } from "vitest";
import type { Job } from "@/api/model";
import { asCurl } from "./curl";

const job = {
  type: "echo",
  payload: { big: 12345678901234567890n, quote: "it's" },
  name: null,
  queue: "default",
  priority: 1,
  threadDemand: 1,
  timeoutSec: null,
  memoryMb: null,
  maxAttempts: 4,
  labels: {},
  metadata: {},
  extras: { uniqueKey: null, softTimeoutSec: null },
} as unknown as Job;

describe("asCurl", () => {
  it("quotes for a shell and keeps numbers whole", () =>
    expect(asCurl(job, "http://h:1", false)).toContain(
      `'{"type":"echo","payload":{"big":12345678901234567890,"quote":"it'\\''s"},"priority":1,"max_attempts":4}'`,
    ));
  it("carries the unique key", () =>
    expect(
      asCurl({ ...job, extras: { ...job.extras, uniqueKey: "invoice:42" } }, "http://h:1", false),
    ).toContain(`"unique_key":"invoice:42"`));
  it("names the token and does not tell it", () =>
    expect(asCurl(job, "http://h:1", true)).toContain("Bearer $STOKER_TOKEN"));
});
