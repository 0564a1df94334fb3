/**
 * Lines out of what a job wrote. The server sends pieces as they were written: half lines, several at once, two streams
 * mixed. Here they become lines of bounded length, the last of which may still grow.
 */

import Anser from "anser";
import type { LogEntry } from "@/api/model";

export interface LogLine {
  /** Grows by one per line, for keys. */
  number: number;
  attempt: number;
  claimId: number;
  stream: LogEntry["stream"];
  time: number;
  text: string;
  /** It has not ended: what comes next in its stream belongs to it. */
  open: boolean;
}

export interface LogBook {
  lines: readonly LogLine[];
  /** Lines that were given up to stay within bounds. */
  dropped: number;
  next: number;
}

export const EMPTY: LogBook = { lines: [], dropped: 0, next: 0 };
export const LINES_KEPT = 50_000;
/** A longer line goes on in the next row: one row must stay cheap to draw. */
export const LINE_LENGTH = 2000;

export function append(book: LogBook, entries: readonly LogEntry[]): LogBook {
  if (entries.length === 0) return book;
  let lines = [...book.lines];
  let next = book.next;
  const open = new Map<string, number>();
  // Only the last line of a stream can be open, and it is near the end.
  for (let index = lines.length - 1; index >= Math.max(0, lines.length - 50); index--) {
    const line = lines[index] as LogLine;
    const key = keyOf(line);
    if (!open.has(key)) open.set(key, line.open ? index : -1);
  }
  for (const entry of entries) {
    const key = keyOf(entry);
    const parts = entry.text.split("\n");
    const ended = parts.length - 1;
    parts.forEach((part, nth) => {
      const isOpen = nth === ended;
      const at = open.get(key) ?? -1;
      if (at >= 0) {
        const line = lines[at] as LogLine;
        lines[at] = { ...line, text: line.text + part, open: isOpen };
      } else if (part !== "" || !isOpen) {
        lines.push({
          number: next++,
          attempt: entry.attempt,
          claimId: entry.claimId,
          stream: entry.stream,
          time: entry.time,
          text: part,
          open: isOpen,
        });
        open.set(key, lines.length - 1);
      }
      const last = open.get(key) ?? -1;
      if (last >= 0) next = fold(lines, last, next, open, key);
      if (!isOpen) open.set(key, -1);
    });
  }
  const excess = Math.max(0, lines.length - LINES_KEPT);
  if (excess) lines = lines.slice(excess);
  return { lines, dropped: book.dropped + excess, next };
}

const keyOf = ({ claimId, stream }: Pick<LogLine, "claimId" | "stream">) => `${claimId}/${stream}`;

/** Cut a line that is too long into several; only the last may go on. */
function fold(lines: LogLine[], at: number, next: number, open: Map<string, number>, key: string): number {
  const line = lines[at] as LogLine;
  if (line.text.length <= LINE_LENGTH) return next;
  const pieces: LogLine[] = [];
  for (let start = 0; start < line.text.length; start += LINE_LENGTH) {
    const isLast = start + LINE_LENGTH >= line.text.length;
    pieces.push({
      ...line,
      number: start === 0 ? line.number : next++,
      text: line.text.slice(start, start + LINE_LENGTH),
      open: isLast && line.open,
    });
  }
  lines.splice(at, 1, ...pieces);
  for (const [other, index] of open) if (index > at) open.set(other, index + pieces.length - 1);
  open.set(key, at + pieces.length - 1);
  return next;
}

export interface Span {
  text: string;
  /** Class names and colours; null where the terminal's own colour holds. */
  color: string | null;
  background: string | null;
  bold: boolean;
  italic: boolean;
  underline: boolean;
  dim: boolean;
  strike: boolean;
}

const NAMED = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
// Links, titles and other strings for a terminal; the text between stays.
// biome-ignore lint/suspicious/noControlCharactersInRegex: escapes are what this is about.
const STRINGS = /\u001b[\]PX^_][\s\S]*?(?:\u0007|\u001b\\|$)/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: as above.
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f-\u009f]/g;
// Whatever Anser does not know: charset switches, private sequences, an escape at the end.
// biome-ignore lint/suspicious/noControlCharactersInRegex: as above.
const LEFT = /\u001b(?:[()#%][\s\S]?|\[[0-9;?<=>!]*[@-~]?|[\s\S]?)/g;

/** The text of a line as a terminal would leave it: colours as spans, everything else as text or gone. */
export function spansOf(line: string): Span[] {
  const shown = overwritten(line.replace(STRINGS, "")).replace(CONTROLS, "");
  if (!shown.includes("\u001b")) return shown ? [plain(shown)] : [];
  return Anser.ansiToJson(shown, { use_classes: true, remove_empty: true })
    .map((part) => {
      const decorations = new Set<string>(part.decorations);
      return {
        text: part.content.replace(LEFT, ""),
        color: colorOf(part.fg, part.fg_truecolor),
        background: colorOf(part.bg, part.bg_truecolor),
        bold: decorations.has("bold"),
        italic: decorations.has("italic"),
        underline: decorations.has("underline"),
        dim: decorations.has("dim"),
        strike: decorations.has("strikethrough"),
      };
    })
    .filter((span) => span.text !== "");
}

const plain = (text: string): Span => ({
  text,
  color: null,
  background: null,
  bold: false,
  italic: false,
  underline: false,
  dim: false,
  strike: false,
});

/** A progress bar writes over itself: what stands after the last carriage return is seen. */
function overwritten(line: string): string {
  const end = line.replace(/\r+$/, "");
  const back = end.lastIndexOf("\r");
  return back < 0 ? end : end.slice(back + 1);
}

/** One of our own colours by name, or the colour that was asked for, brought near enough to the text to be read. */
function colorOf(name: string | null, exact: string | null): string | null {
  if (!name) return null;
  const rgb = name === "ansi-truecolor" ? triple(exact) : paletteOf(name);
  if (rgb) return `color-mix(in oklab, rgb(${rgb}) 55%, var(--text))`;
  const base = name.replace(/^ansi-(bright-)?/, "");
  return NAMED.includes(base) ? `var(--ansi-${base})` : null;
}

const triple = (text: string | null) => (text && /^\d{1,3}, ?\d{1,3}, ?\d{1,3}$/.test(text) ? text : null);

function paletteOf(name: string): string | null {
  const number = /^ansi-palette-(\d{1,3})$/.exec(name)?.[1];
  if (number === undefined) return null;
  const index = Number(number);
  if (index >= 232)
    return Array(3)
      .fill(8 + (index - 232) * 10)
      .join(", ");
  if (index < 16) return null;
  const level = (value: number) => (value === 0 ? 0 : 55 + value * 40);
  const cube = index - 16;
  return [Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map(level).join(", ");
}
