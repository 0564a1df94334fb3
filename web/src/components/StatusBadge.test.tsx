import { render } from "@testing-library/react";
import { expect, it } from "vitest";
import type { JobRow } from "@/api/model";
import { nextAttempt, StatusBadge } from "./StatusBadge";

const NOW = 1_000_000;
const job = (more: Partial<JobRow>): JobRow =>
  ({
    status: "scheduled",
    attempt: 0,
    maxAttempts: 4,
    runAt: null,
    cancelRequestedAt: null,
    ...more,
  }) as JobRow;
const shown = (more: Partial<JobRow>) => render(<StatusBadge job={job(more)} />).container.textContent;

it.each<[Partial<JobRow>, string]>([
  [{ attempt: 0 }, "scheduled"],
  [{ attempt: 1 }, "retrying"],
  [{ status: "queued", attempt: 1 }, "queued"],
  [{ status: "running", cancelRequestedAt: 1 }, "cancelling"],
  [{ status: "failed", attempt: 4 }, "failed"],
])("a job that is %j reads %s", (more, text) => expect(shown(more)).toBe(text));

it.each<[Partial<JobRow>, string]>([
  [{ attempt: 1, runAt: NOW + 5_400 }, "attempt 2 of 4, in 5 s"],
  [{ attempt: 1, runAt: NOW + 300 }, "attempt 2 of 4, now"],
  [{ attempt: 2, maxAttempts: null, runAt: NOW + 120_000 }, "attempt 3, in 2 m"],
  [{ attempt: 1, runAt: null }, "attempt 2 of 4"],
])("what it waits for: %j", (more, text) => expect(nextAttempt(job(more), NOW)).toBe(text));
