/** Server-sent events out of a stream of text. `EventSource` would do, but cannot send a token. */

export interface Message {
  event: string;
  data: string;
  id: string | null;
}

/** Takes text as it comes, cut anywhere, and gives back the messages that are whole. */
export class SseParser {
  #rest = "";
  #event = "";
  #data: string[] = [];
  #id: string | null = null;

  push(text: string): Message[] {
    const found: Message[] = [];
    const buffer = this.#rest + text;
    // A carriage return at the very end may be half of a line end.
    const end = buffer.endsWith("\r") ? buffer.length - 1 : buffer.length;
    let start = 0;
    for (let index = 0; index < end; index++) {
      const char = buffer[index];
      if (char !== "\n" && char !== "\r") continue;
      const message = this.#line(buffer.slice(start, index));
      if (message) found.push(message);
      if (char === "\r" && buffer[index + 1] === "\n") index++;
      start = index + 1;
    }
    this.#rest = buffer.slice(start);
    return found;
  }

  #line(line: string): Message | null {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    if (colon === 0) return null;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "event") this.#event = value;
    else if (field === "data") this.#data.push(value);
    else if (field === "id") this.#id = value;
    return null;
  }

  #dispatch(): Message | null {
    const message =
      this.#data.length === 0
        ? null
        : { event: this.#event || "message", data: this.#data.join("\n"), id: this.#id };
    this.#event = "";
    this.#data = [];
    this.#id = null;
    return message;
  }
}

/** The messages of an open response; `alive` is called for whatever comes, comments included. */
export async function* messages(response: Response, alive?: () => void): AsyncGenerator<Message> {
  if (response.body === null) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new SseParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive?.();
      yield* parser.push(value);
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
