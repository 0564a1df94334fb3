import { describe, expect, it } from "vitest";
import { parseExact } from "@/api/json";
import { csvCell, toCsv, toJson } from "./export";

describe("CSV", () => {
  it.each([
    [null, ""],
    [12, "12"],
    [12345678901234567890n, "12345678901234567890"],
    ["plain", "plain"],
    ['say "hi", you', '"say ""hi"", you"'],
    ["two\nlines", '"two\nlines"'],
    ["=HYPERLINK(1)", "'=HYPERLINK(1)"],
    ["@cmd", "'@cmd"],
    [-5, "-5"],
    [{ a: 1 }, '"{""a"":1}"'],
  ])("%s", (value, cell) => expect(csvCell(value)).toBe(cell));

  it("has a head and a line per job", () => {
    const lines = toCsv([{ id: "a", type: "echo", payload: [1] }]).split("\r\n");
    expect(lines[0]).toMatch(/^id,type,name/);
    expect(lines[1]).toMatch(/^a,echo,,/);
    expect(lines).toHaveLength(3);
  });
});

it("JSON keeps every digit", () => {
  const text = '{"payload":{"n":12345678901234567890,"f":0.1000000000000000055511}}';
  const back = toJson([parseExact(text) as Record<string, unknown>]);
  expect(back).toContain("12345678901234567890");
  expect(back).toContain("0.1000000000000000055511");
});
