import { describe, expect, it } from "vitest";
import { type Completion, complete, take } from "./complete";

const KNOWN = { types: ["resize_image", "send mail", "echo"], queues: ["default", "mail"], workers: ["w1"] };
/** `|` is the caret. */
const at = (text: string) => complete(text.replace("|", ""), text.indexOf("|"), KNOWN);
const texts = (text: string) => at(text)?.options.map((option) => option.text) ?? [];

describe("complete", () => {
  it.each([
    ["st|", ["status:"]],
    ["type:x qu|", ["queue:"]],
    ["queue:|", ["default", "mail"]],
    ["queue:ma|", ["mail"]],
    ["type:mail|", ["send mail"]],
    ["status:fa|", ["failed"]],
    ["priority:|", ["high", "normal", "low"]],
    ["worker:|", ["w1"]],
    ["hello|", []],
    ["nokey:|", []],
    ["queue:mail|", []],
  ])("%s", (text, options) => expect(texts(text)).toEqual(options));

  it("offers all keys in an empty word", () => expect(texts("type:x |")).toContain("age:"));

  it("goes on in a list, without what is in it", () => {
    const options = texts("status:failed,|");
    expect(options).toContain("cancelled");
    expect(options).not.toContain("failed");
  });
});

it("takes an option: quoted, in place, with the caret behind", () => {
  const taken = (text: string) => {
    const completion = at(text) as Completion;
    return take(text.replace("|", ""), completion, completion.options[0]?.insert ?? "");
  };
  expect(taken("type:send|")).toEqual({ text: 'type:"send mail" ', caret: 17 });
  expect(taken("st| type:x")).toEqual({ text: "status: type:x", caret: 7 });
  expect(taken("queue:ma| hello")).toEqual({ text: "queue:mail hello", caret: 11 });
});
