/**
 * Keeps one event stream open: resumes by `Last-Event-ID`, backs off while the server is away, and gives up a stream
 * that is silent for longer than its keep-alive. Says what happens in `LiveEvent`s and holds no state of its own.
 */

import { open } from "@/api/client";
import { ApiError } from "@/api/problem";
import { onTokenChange } from "@/api/token";
import { messages } from "./sse";
import type { LiveEvent } from "./state";

const FIRST_WAIT_MS = 250;
/** Short: a page that comes back at once is worth a request every few seconds. */
const LONGEST_WAIT_MS = 4000;
/** The server speaks at least every 5 s (updates) or 15 s (keep-alive). */
const SILENCE_MS = 25_000;
/** A server without `/events` may be replaced by one with it. */
const UNSUPPORTED_WAIT_MS = 60_000;

export interface ConnectionOptions {
  position: () => string | null;
  emit: (event: LiveEvent) => void;
  signal: AbortSignal;
}

export async function keepConnected({ position, emit, signal }: ConnectionOptions): Promise<void> {
  let failures = 0;
  while (!signal.aborted) {
    let opened = false;
    try {
      await stream(position(), signal, emit, () => {
        opened = true;
      });
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status === 401) {
        emit({ kind: "unauthorized", at: Date.now() });
        await tokenChange(signal);
        continue;
      }
      if (error instanceof ApiError && (error.status === 404 || error.status === 405)) {
        emit({ kind: "unsupported" });
        await wait(UNSUPPORTED_WAIT_MS, signal);
        continue;
      }
    }
    if (signal.aborted) return;
    failures = opened ? 0 : failures + 1;
    emit({ kind: failures === 0 ? "lost" : "failed", at: Date.now() });
    await wait(backoff(failures, Math.random()), signal);
  }
}

/** Doubles from a quarter of a second to four, give or take a third, so that tabs do not return in step. */
export function backoff(failures: number, random: number): number {
  return Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** failures) * (0.67 + 0.66 * random);
}

async function stream(
  position: string | null,
  signal: AbortSignal,
  emit: (event: LiveEvent) => void,
  onOpen: () => void,
): Promise<void> {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(), SILENCE_MS);
  };
  const headers: Record<string, string> = { accept: "text/event-stream" };
  if (position !== null) headers["last-event-id"] = position;
  try {
    const response = await open("/events", { headers, signal: AbortSignal.any([signal, silence.signal]) });
    onOpen();
    for await (const message of messages(response, alive)) {
      if (message.event === "hello") emit({ kind: "hello", id: message.id, data: JSON.parse(message.data) });
      else if (message.event === "reset") emit({ kind: "reset", id: message.id });
      else if (message.event === "update")
        emit({ kind: "update", id: message.id, data: JSON.parse(message.data) });
    }
  } finally {
    clearTimeout(timer);
  }
}

function wait(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      window.removeEventListener("online", done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    window.addEventListener("online", done);
    signal.addEventListener("abort", done);
  });
}

function tokenChange(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const stop = onTokenChange(() => {
      stop();
      resolve();
    });
    signal.addEventListener("abort", () => {
      stop();
      resolve();
    });
  });
}
