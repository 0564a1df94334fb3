import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import type { JobType } from "@/api/model";
import { OptionFields } from "./OptionFields";
import { NO_OPTIONS } from "./options";

afterEach(cleanup);

const show = (type: JobType | undefined) =>
  render(<OptionFields type={type} options={NO_OPTIONS} mistakes={{}} queues={[]} onChange={() => {}} />);

const placeholder = (label: string) => screen.getByLabelText(label).getAttribute("placeholder");

it("shows in empty fields what the workers of the type announced", () => {
  show({ defaults: { queue: "mail", priority: 0, memory_mb: 900 } } as JobType);
  expect(["Queue", "Memory", "Timeout"].map(placeholder)).toEqual(["mail", "900", "none"]);
  expect(screen.getByRole("option", { selected: true }).textContent).toBe("high (default)");
});

it("shows what holds for every job where nobody announced anything", () => {
  show(undefined);
  expect(["Queue", "Threads", "Attempts"].map(placeholder)).toEqual(["default", "1", "4"]);
  expect(screen.getByRole("option", { selected: true }).textContent).toBe("normal (default)");
});
