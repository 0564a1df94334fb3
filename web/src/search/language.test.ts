import { describe, expect, it } from "vitest";
import { parse, quote, withKey, words } from "./language";

describe("parse", () => {
  it.each([
    ["", {}],
    ["   ", {}],
    ["status:failed", { status: ["failed"] }],
    ["status:failed,cancelled,failed", { status: ["failed", "cancelled"] }],
    ["STATUS:Failed", { status: ["failed"] }],
    ["type:resize queue:mail", { type: "resize", queue: "mail" }],
    ["priority:0", { priority: 0 }],
    ["priority:low", { priority: 2 }],
    ["worker:w1", { worker: "w1" }],
    ["age:>10m", { created_before: "10m" }],
    ["age:10m", { created_before: "10m" }],
    ["age:<2h", { created_after: "2h" }],
    ["age:>1h age:<1d", { created_before: "1h", created_after: "1d" }],
    ["invoice 2041", { text: "invoice 2041" }],
    ['"weekly  digest"', { text: "weekly  digest" }],
    ['name:"weekly digest" status:queued', { name: "weekly digest", status: ["queued"] }],
    ['name:"say \\"hi\\""', { name: 'say "hi"' }],
    ["type:a:b", { type: "a:b" }],
    ["0192f0c1-2345", { text: "0192f0c1-2345" }],
    [":x", { text: ":x" }],
    ["fingerprint:3f2a", { fingerprint: "3f2a" }],
    ["type:größe", { type: "größe" }],
  ])("%s", (text, filter) => {
    const search = parse(text);
    expect(search.filter).toEqual(filter);
    expect(search.mistakes).toEqual([]);
  });

  it.each([
    ["status:nope", "there is no status nope"],
    ["status:failed,nope", "there is no status nope"],
    ["status:", "needs a value"],
    ["priority:101", "0 to 100"],
    ["priority:-1", "0 to 100"],
    ["age:soon", "age:>10m"],
    ["type:a type:b", "twice"],
    ["colour:red", "no key colour"],
  ])("%s is told", (text, part) => expect(parse(text).mistakes[0]?.message).toContain(part));

  it("keeps what can be understood beside what cannot", () => {
    const search = parse("status:failed,nope type:x age:soon");
    expect(search.filter).toEqual({ status: ["failed"], type: "x" });
    expect(search.mistakes.map(({ from, to }) => [from, to])).toEqual([
      [0, 18],
      [26, 34],
    ]);
  });

  it("ends with a quote that nobody closed", () => {
    expect(parse('name:"half').filter).toEqual({ name: "half" });
    expect(parse('name:"half\\').filter).toEqual({ name: "half\\" });
  });
});

it("words know where they stand", () => {
  const text = '  type:x "a b"';
  expect(words(text).map(({ from, to }) => text.slice(from, to))).toEqual(["type:x", '"a b"']);
});

it.each(["plain", "two words", 'a"b', "back\\slash", ""])("what is quoted is read back: %s", (value) => {
  if (value) expect(parse(`name:${quote(value)}`).filter.name).toBe(value);
  else expect(quote(value)).toBe('""');
});

it("sets and removes keys", () => {
  expect(withKey("type:x hello", "status", "failed")).toBe("type:x hello status:failed");
  expect(withKey("status:queued type:x", "status", "failed")).toBe("type:x status:failed");
  expect(withKey("status:queued type:x", "status", null)).toBe("type:x");
});
