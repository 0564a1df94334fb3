import { describe, expect, it } from "vitest";
import type { JsonSchema } from "@/api/model";
import { build, type Field, fieldsOf, initials, spread, tell } from "./fields";

const SCHEMA: JsonSchema = {
  type: "object",
  required: ["image", "width"],
  properties: {
    image: { type: "string", description: "base64" },
    width: { type: "integer", minimum: 1, maximum: 100, default: 20 },
    ratio: { anyOf: [{ type: "number" }, { type: "null" }], default: null },
    format: { enum: ["png", "jpeg"] },
    crop: { type: "boolean" },
    tags: { type: "array", items: { type: "string" } },
    box: { $ref: "#/$defs/Box" },
  },
  $defs: { Box: { type: "object", properties: { x: { type: "integer" } } } },
};
const FIELDS = fieldsOf(SCHEMA) as Field[];

describe("fieldsOf", () => {
  it("has a kind for each", () =>
    expect(FIELDS.map(({ kind }) => kind)).toEqual([
      "text",
      "integer",
      "number",
      "choice",
      "boolean",
      "json",
      "json",
    ]));
  it("knows what is required and what stands there at first", () => {
    expect(FIELDS.filter(({ required }) => required).map(({ name }) => name)).toEqual(["image", "width"]);
    expect(initials(FIELDS)).toMatchObject({ width: "20", ratio: "", image: "" });
  });
  it("gives up where a payload is not an object of names", () => {
    expect(fieldsOf(null)).toBeNull();
    expect(fieldsOf({ type: "string" })).toBeNull();
    expect(fieldsOf({ $ref: "#/$defs/Nothing" })).toBeNull();
  });
  it("does not follow circles for ever", () =>
    expect(fieldsOf({ $ref: "#/$defs/A", $defs: { A: { $ref: "#/$defs/A" } } })).toBeNull());
});

describe("build", () => {
  it("makes a payload of what was typed, and leaves out what was not", () => {
    const typed = { image: "x", width: "12345678901234567890", format: '"png"', crop: "true", tags: '["a"]' };
    const unbounded = FIELDS.map((field) => ({ ...field, maximum: null }));
    expect(build(unbounded, typed)).toEqual({
      payload: { image: "x", width: 12345678901234567890n, format: "png", crop: true, tags: ["a"] },
      mistakes: {},
    });
  });
  it.each([
    [{ width: "" }, "needed"],
    [{ width: "1.5" }, "not a whole number"],
    [{ width: "abc" }, "not a number"],
    [{ width: "0" }, "at least 1"],
    [{ width: "101" }, "at most 100"],
  ])("%o is told", (typed, mistake) => expect(build(FIELDS, typed).mistakes.width).toBe(mistake));
  it("tells broken JSON", () =>
    expect(build(FIELDS, { image: "x", width: "1", tags: "[" }).mistakes).toEqual({ tags: "not JSON" }));
  it("does not send a text empty that must be there", () => {
    const built = build(FIELDS, { image: "", width: "1" });
    expect(built).toEqual({ payload: { width: 1 }, mistakes: { image: "needed" } });
  });
});

it.each([
  [{}, ""],
  [{ type: undefined }, ""],
  [{ image: "needed", width: "needed" }, "Fill in image, width."],
  [{ image: "needed", width: "at most 100" }, "Fill in image. Correct width."],
])("what is wanting is named: %j", (mistakes, text) => expect(tell(mistakes)).toBe(text));

describe("spread", () => {
  it("is the way back", () => {
    const payload = { image: "x", width: 3, tags: ["a"] };
    expect(build(FIELDS, spread(FIELDS, payload) ?? {}).payload).toEqual(payload);
  });
  it.each([[["a"]], ["text"], [null], [{ other: 1 }], [{ image: 5 }]])("gives up on %j", (payload) =>
    expect(spread(FIELDS, payload)).toBeNull(),
  );
});
