import { expect, it } from "vitest";
import { quote, statusesIn, withKey, words } from "./language";

it("words know where they stand, their key and their value", () => {
  const text = '  type:x "a b" nokey:y name:"say \\"hi\\""';
  expect(words(text).map(({ from, to }) => text.slice(from, to))).toEqual([
    "type:x",
    '"a b"',
    "nokey:y",
    'name:"say \\"hi\\""',
  ]);
  expect(words(text).map(({ key, value }) => [key, value])).toEqual([
    ["type", "x"],
    [null, "a b"],
    [null, "nokey:y"],
    ["name", 'say "hi"'],
  ]);
});

it("ends with a quote that was not closed", () => {
  expect(words('name:"half').map(({ value }) => value)).toEqual(["half"]);
  expect(words('name:"half\\').map(({ value }) => value)).toEqual(["half\\"]);
});

it.each([
  ["", []],
  ["status:failed", ["failed"]],
  ["STATUS:Failed,queued type:x", ["queued", "failed"]],
  ["status:faild", []],
])("statuses in %s", (text, statuses) => expect(statusesIn(text)).toEqual(statuses));

it.each(["plain", "two words", 'a"b', "back\\slash", ""])("what is quoted is read back: %s", (value) => {
  if (value) expect(words(`name:${quote(value)}`)[0]?.value).toBe(value);
  else expect(quote(value)).toBe('""');
});

it("sets and removes keys", () => {
  expect(withKey("type:x hello", "status", "failed")).toBe("type:x hello status:failed");
  expect(withKey("status:queued type:x", "status", "failed")).toBe("type:x status:failed");
  expect(withKey("status:queued type:x", "status", null)).toBe("type:x");
});
