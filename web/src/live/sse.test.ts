import { describe, expect, it } from "vitest";
import { messages, SseParser } from "./sse";

const TEXT =
  "event: hello\nid: e:1\ndata: {}\n\n: keep-alive\n\ndata: a\ndata: b\n\nevent: x\n\nid: e:2\r\ndata: c\r\n\r\n";
const ALL = [
  { event: "hello", data: "{}", id: "e:1" },
  { event: "message", data: "a\nb", id: null },
  { event: "message", data: "c", id: "e:2" },
];

describe("SseParser", () => {
  it("reads messages, joins lines of data, skips comments and what has no data", () =>
    expect(new SseParser().push(TEXT)).toEqual(ALL));

  it("does not care where the text is cut", () => {
    for (let size = 1; size < 8; size++) {
      const parser = new SseParser();
      const found = [];
      for (let at = 0; at < TEXT.length; at += size) found.push(...parser.push(TEXT.slice(at, at + size)));
      expect(found).toEqual(ALL);
    }
  });

  it("keeps colons and spaces of the data", () =>
    expect(new SseParser().push("data:  a: b\ndata\n\n")[0]?.data).toBe(" a: b\n"));
});

it("reads a response, even where a character is cut in two", async () => {
  const bytes = new TextEncoder().encode("data: größe\n\n");
  const body = new ReadableStream({
    start(controller) {
      for (const byte of bytes) controller.enqueue(new Uint8Array([byte]));
      controller.close();
    },
  });
  const found = [];
  for await (const message of messages(new Response(body))) found.push(message.data);
  expect(found).toEqual(["größe"]);
});
