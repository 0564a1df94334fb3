/**
 * From a JSON schema to the fields of a form, and from what was typed to a payload. What a form cannot show (nested
 * objects, lists, choices between shapes) is a field of JSON. Pure.
 */

import { formatExact, parseExact } from "@/api/json";
import type { JsonSchema } from "@/api/model";

export type FieldKind = "text" | "integer" | "number" | "boolean" | "choice" | "json";

export interface Field {
  name: string;
  kind: FieldKind;
  required: boolean;
  description: string | null;
  /** Values of a choice, as JSON. */
  choices: string[];
  minimum: number | null;
  maximum: number | null;
  /** As it would be typed. */
  initial: string;
  placeholder: string;
}

/** What was typed, by field; a boolean is `true`, `false` or nothing. */
export type Typed = Readonly<Record<string, string>>;

/** Null when the payload is not an object of named values: then only JSON will do. */
export function fieldsOf(schema: JsonSchema | null): Field[] | null {
  if (!schema) return null;
  const root = resolve(schema, schema);
  if (!root.properties || Object.keys(root.properties).length === 0) return null;
  const required = new Set(root.required ?? []);
  return Object.entries(root.properties).map(([name, property]) =>
    fieldOf(name, resolve(property, schema), required.has(name)),
  );
}

/** Follows references, and takes the one shape of "this or null". */
function resolve(schema: JsonSchema, root: JsonSchema, depth = 0): JsonSchema {
  if (depth > 8) return {};
  if (schema.$ref) {
    const name = schema.$ref.split("/").at(-1) ?? "";
    const target = root.$defs?.[name];
    return target ? { ...resolve(target, root, depth + 1), ...without(schema, "$ref") } : {};
  }
  const shapes = schema.anyOf ?? schema.oneOf;
  const real = shapes?.filter((shape) => shape.type !== "null");
  const only = real?.[0];
  if (only && real.length === 1) {
    const rest = without(without(schema, "anyOf"), "oneOf");
    return { ...resolve(only, root, depth + 1), ...rest };
  }
  return schema;
}

function without(schema: JsonSchema, key: keyof JsonSchema): JsonSchema {
  const { [key]: _, ...rest } = schema;
  return rest;
}

function kindOf(schema: JsonSchema): FieldKind {
  if (schema.enum?.length) return "choice";
  const types = [schema.type ?? []].flat().filter((type) => type !== "null");
  if (types.length !== 1) return "json";
  switch (types[0]) {
    case "string":
      return "text";
    case "integer":
      return "integer";
    case "number":
      return "number";
    case "boolean":
      return "boolean";
    default:
      return "json";
  }
}

function fieldOf(name: string, schema: JsonSchema, required: boolean): Field {
  const kind = kindOf(schema);
  const example = schema.examples?.[0];
  return {
    name,
    kind,
    required,
    description: schema.description ?? null,
    choices: kind === "choice" ? (schema.enum ?? []).map((value) => formatExact(value)) : [],
    minimum: schema.minimum ?? schema.exclusiveMinimum ?? null,
    maximum: schema.maximum ?? schema.exclusiveMaximum ?? null,
    initial: schema.default === undefined || schema.default === null ? "" : show(kind, schema.default),
    placeholder: example === undefined ? "" : show(kind, example),
  };
}

/** A value as it would be typed into a field of that kind. */
export function show(kind: FieldKind, value: unknown): string {
  if (kind === "text" && typeof value === "string") return value;
  return formatExact(value);
}

export interface Built {
  payload: Record<string, unknown>;
  /** What is wrong, by field. */
  mistakes: Record<string, string>;
}

/** A field that must be filled in and is not. */
export const NEEDED = "needed";

/** The payload that was typed. What was left empty is left out; where it must not be, that is a mistake. */
export function build(fields: readonly Field[], typed: Typed): Built {
  const built: Built = { payload: {}, mistakes: {} };
  for (const field of fields) {
    const text = typed[field.name] ?? "";
    if (text.trim() === "" && !(field.kind === "text" && text !== "")) {
      if (field.required) built.mistakes[field.name] = NEEDED;
      continue;
    }
    const { value, mistake } = read(field, text);
    if (mistake) built.mistakes[field.name] = mistake;
    else built.payload[field.name] = value;
  }
  return built;
}

function read(field: Field, text: string): { value?: unknown; mistake?: string } {
  if (field.kind === "text") return { value: text };
  let value: unknown;
  try {
    value = parseExact(text.trim());
  } catch {
    return { mistake: field.kind === "json" ? "not JSON" : "not a number" };
  }
  if (field.kind === "integer" && !(typeof value === "bigint" || Number.isInteger(value)))
    return { mistake: "not a whole number" };
  if (field.kind === "number" && typeof value !== "number" && typeof value !== "bigint") {
    if (typeof value !== "object" || value === null) return { mistake: "not a number" };
  }
  const size = Number(value);
  if (field.kind === "integer" || field.kind === "number") {
    if (field.minimum !== null && size < field.minimum) return { mistake: `at least ${field.minimum}` };
    if (field.maximum !== null && size > field.maximum) return { mistake: `at most ${field.maximum}` };
  }
  return { value };
}

/** A payload back into its fields; null when it has something that the fields have not. */
export function spread(fields: readonly Field[], payload: unknown): Typed | null {
  if (typeof payload !== "object" || payload === null || Array.isArray(payload)) return null;
  const typed: Record<string, string> = {};
  for (const [name, value] of Object.entries(payload)) {
    const field = fields.find((each) => each.name === name);
    if (!field || (field.kind === "text" && typeof value !== "string")) return null;
    typed[name] = show(field.kind, value);
  }
  return typed;
}

/** What stands in the way of sending the form, in one sentence; every field that it names is marked. */
export function tell(mistakes: Readonly<Record<string, string | undefined>>): string {
  const all = Object.entries(mistakes).flatMap(([name, mistake]) => (mistake ? [{ name, mistake }] : []));
  const needed = all.filter(({ mistake }) => mistake === NEEDED).map(({ name }) => name);
  const wrong = all.filter(({ mistake }) => mistake !== NEEDED).map(({ name }) => name);
  return [
    needed.length ? `Fill in ${needed.join(", ")}.` : "",
    wrong.length ? `Correct ${wrong.join(", ")}.` : "",
  ]
    .filter(Boolean)
    .join(" ");
}

export const initials = (fields: readonly Field[]): Typed =>
  Object.fromEntries(fields.map((field) => [field.name, field.initial]));
