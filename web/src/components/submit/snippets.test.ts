import { expect, it } from "vitest";
import { cli, curl, python, pythonValue, shellQuote } from "./snippets";

const SPEC = { type: "send mail", payload: { to: "o'hara", n: 12345678901234567890n }, priority: 0 };

it.each([
  ["plain", "plain"],
  ["", "''"],
  ["it's", "'it'\\''s'"],
  ["$(rm -rf /)", "'$(rm -rf /)'"],
  ["a`b`", "'a`b`'"],
])("a shell reads %s as itself", (text, quoted) => expect(shellQuote(text)).toBe(quoted));

it("curl", () => {
  const text = curl(SPEC, "http://host:1", true);
  expect(text).toContain("curl -X POST http://host:1/jobs");
  expect(text).toContain('"n":12345678901234567890');
  expect(text).toContain("o'\\''hara");
  expect(text).toContain("$STOKER_TOKEN");
  expect(curl(SPEC, "http://host:1", false)).not.toContain("TOKEN");
});

it("the command line", () => {
  expect(cli(SPEC, "http://127.0.0.1:8080")).toBe(
    `stoker submit 'send mail' '{"to":"o'\\''hara","n":12345678901234567890}' --priority 0`,
  );
  expect(cli({ type: "echo", payload: 1 }, "http://host:1")).toContain("--url http://host:1");
});

it("Python", () => {
  expect(pythonValue({ a: [true, null, 1.5, "x"] })).toBe('{"a": [True, None, 1.5, "x"]}');
  expect(python({ ...SPEC, name: undefined }, "http://h")).toContain(
    `app.submit("send mail", {"to": "o'hara", "n": 12345678901234567890}, priority=0)`,
  );
});
