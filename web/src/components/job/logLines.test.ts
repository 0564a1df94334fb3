import { describe, expect, it } from "vitest";
import type { LogEntry } from "@/api/model";
import { append, EMPTY, LINE_LENGTH, LINES_KEPT, spansOf } from "./logLines";

const entry = (text: string, changes: Partial<LogEntry> = {}): LogEntry => ({
  attempt: 1,
  claimId: 1,
  stream: "stdout",
  time: 0,
  text,
  ...changes,
});

const texts = (...entries: LogEntry[]) => append(EMPTY, entries).lines.map((line) => line.text);

describe("append", () => {
  it("joins pieces of a line", () =>
    expect(texts(entry("a"), entry("b\nc"), entry("\n"))).toEqual(["ab", "c"]));
  it("joins across calls", () => {
    const first = append(EMPTY, [entry("hal")]);
    expect(first.lines[0]?.open).toBe(true);
    const second = append(first, [entry("f\nnext\n")]);
    expect(second.lines.map(({ text, open }) => [text, open])).toEqual([
      ["half", false],
      ["next", false],
    ]);
    expect(second.lines[0]?.number).toBe(0);
  });
  it("does not mix streams or attempts", () =>
    expect(
      texts(entry("out "), entry("err\n", { stream: "stderr" }), entry("put\n"), entry("x", { claimId: 2 })),
    ).toEqual(["out put", "err", "x"]));
  it("keeps empty lines", () => expect(texts(entry("a\n\nb\n"))).toEqual(["a", "", "b"]));
  it("cuts lines that are too long, and goes on with the last piece", () => {
    const book = append(append(EMPTY, [entry("x".repeat(LINE_LENGTH + 5))]), [entry("end\n")]);
    expect(book.lines.map((line) => line.text.length)).toEqual([LINE_LENGTH, 8]);
    expect(new Set(book.lines.map((line) => line.number)).size).toBe(2);
  });
  it("forgets the oldest beyond its bounds", () => {
    const book = append(EMPTY, [entry("y\n".repeat(LINES_KEPT + 3))]);
    expect([book.lines.length, book.dropped, book.lines[0]?.number]).toEqual([LINES_KEPT, 3, 3]);
  });
});

describe("spansOf", () => {
  const text = (line: string) =>
    spansOf(line)
      .map((span) => span.text)
      .join("");
  it("reads colours", () =>
    expect(spansOf("\u001b[1;31mred\u001b[0m on")).toMatchObject([
      { text: "red", color: "var(--ansi-red)", bold: true },
      { text: " on", color: null, bold: false },
    ]));
  it("reads the palette and true colours", () => {
    expect(spansOf("\u001b[38;5;196mx")[0]?.color).toContain("rgb(255, 0, 0)");
    expect(spansOf("\u001b[38;2;1;2;3mx")[0]?.color).toContain("rgb(1, 2, 3)");
  });
  it.each([
    ["plain", "plain"],
    ["\u001b]8;;javascript:alert(1)\u0007link\u001b]8;;\u0007", "link"],
    ["\u001b]0;title\u001b\\text", "text"],
    ["10 %\r20 %\r30 %\r", "30 %"],
    ["a\u0000b\u0007c\u009bd", "abcd"],
    ["\u001b[2J\u001b[1;1Hhome\u001b[K", "home"],
    ["tail\u001b", "tail"],
    ["<b onclick=x>&amp;</b>", "<b onclick=x>&amp;</b>"],
  ])("leaves of %j only %j", (line, shown) => expect(text(line)).toBe(shown));
});
