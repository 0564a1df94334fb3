import { afterEach, describe, expect, it, vi } from "vitest";
import { backoff, keepConnected } from "./connection";
import type { LiveEvent } from "./state";

const sse = (...parts: string[]) =>
  new Response(parts.join(""), { status: 200, headers: { "content-type": "text/event-stream" } });
const HELLO = 'event: hello\nid: e:1\ndata: {"epoch":"e","seq":1,"version":"1"}\n\n';

/** Runs until `enough` events were said. */
async function run(answers: (() => Promise<Response> | Response)[], enough: number) {
  const events: LiveEvent[] = [];
  const asked: (string | null)[] = [];
  const stop = new AbortController();
  let position: string | null = null;
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    asked.push(new Headers(init.headers).get("last-event-id"));
    const answer = answers.shift();
    if (answer) return answer();
    return new Promise<Response>((_, reject) =>
      init.signal?.addEventListener("abort", () => reject(new Error("aborted"))),
    );
  });
  await new Promise<void>((resolve) => {
    void keepConnected({
      position: () => position,
      signal: stop.signal,
      emit: (event) => {
        events.push(event);
        if ("id" in event && event.id) position = event.id;
        if (events.length >= enough) resolve();
      },
    });
  });
  stop.abort();
  return { kinds: events.map(({ kind }) => kind), asked };
}

describe("keepConnected", () => {
  afterEach(() => vi.unstubAllGlobals());

  it("resumes where it was after the stream ended", async () => {
    const { kinds, asked } = await run([() => sse(HELLO), () => sse(HELLO)], 3);
    expect(kinds).toEqual(["hello", "lost", "hello"]);
    expect(asked).toEqual([null, "e:1"]);
  });

  it("says that the server is away, and comes back", async () => {
    const refuse = () => Promise.reject(new TypeError("connection refused"));
    const { kinds } = await run([refuse, () => sse(HELLO)], 2);
    expect(kinds).toEqual(["failed", "hello"]);
  });

  it("knows a server without a stream, and one that wants a token", async () => {
    expect((await run([() => new Response("{}", { status: 404 })], 1)).kinds).toEqual(["unsupported"]);
    expect((await run([() => new Response("{}", { status: 401 })], 1)).kinds).toEqual(["unauthorized"]);
  });
});

it("backs off to four seconds and not much further", () => {
  expect(backoff(0, 0.5)).toBeCloseTo(250);
  expect(backoff(3, 0.5)).toBeCloseTo(2000);
  expect(backoff(50, 1)).toBeLessThanOrEqual(5400);
});
