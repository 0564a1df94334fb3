import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import { extras } from "@/api/convert";
import type { WireJob } from "@/api/wire";
import { ExtrasPanel } from "./ExtrasPanel";

afterEach(cleanup);

const show = (wire: Partial<WireJob>) =>
  render(
    <ExtrasPanel extras={extras(wire as WireJob)} scheduleLink={(name) => <a href={`#${name}`}>{name}</a>} />,
  );

it("is not there for a job that uses none of it", () => {
  const { container } = show({ status: "queued" });
  expect(container.textContent).toBe("");
});

it("shows what is set, and nothing else", () => {
  show({
    unique_key: "invoice:42",
    unique_until: "started",
    expires_at: "2026-01-31T12:00:00Z",
    schedule: "digest",
    keep_sec: 0,
    retry: { delays_sec: [1, 5] },
  });
  expect(screen.getAllByRole("term").map((term) => term.textContent)).toEqual([
    "Schedule",
    "Unique key",
    "Holds the key until",
    "Must start by",
    "Retry",
    "Kept for",
  ]);
  expect(screen.getByRole("link").textContent).toBe("digest");
  expect(screen.getByText('{"delays_sec":[1,5]}')).toBeTruthy();
});
