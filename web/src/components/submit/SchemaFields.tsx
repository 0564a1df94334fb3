import { FieldRow } from "./FieldRow";
import type { Field, Typed } from "./fields";

interface SchemaFieldsProps {
  fields: readonly Field[];
  typed: Typed;
  mistakes: Readonly<Record<string, string>>;
  onChange: (name: string, text: string) => void;
}

/** A field for each argument of a job type. */
export function SchemaFields({ fields, typed, mistakes, onChange }: SchemaFieldsProps) {
  return (
    <div className="grid gap-x-4 gap-y-2 sm:grid-cols-2">
      {fields.map((field) => (
        <FieldRow
          key={field.name}
          label={field.name}
          required={field.required}
          note={noteOf(field)}
          mistake={mistakes[field.name]}
          className={field.kind === "json" ? "sm:col-span-2" : ""}
        >
          {({ id, describedBy, invalid }) => (
            <FieldInput
              field={field}
              id={id}
              describedBy={describedBy}
              invalid={invalid}
              value={typed[field.name] ?? ""}
              onChange={(text) => onChange(field.name, text)}
            />
          )}
        </FieldRow>
      ))}
    </div>
  );
}

function noteOf(field: Field): string {
  const bounds =
    field.minimum !== null && field.maximum !== null
      ? `${field.minimum} to ${field.maximum}`
      : field.minimum !== null
        ? `from ${field.minimum}`
        : field.maximum !== null
          ? `up to ${field.maximum}`
          : null;
  const kind = field.kind === "json" ? "JSON" : field.kind === "integer" ? "whole number" : null;
  return [field.description, bounds ?? kind].filter(Boolean).join(" · ");
}

interface FieldInputProps {
  field: Field;
  id: string;
  describedBy: string;
  invalid: boolean;
  value: string;
  onChange: (text: string) => void;
}

function FieldInput({ field, id, describedBy, invalid, value, onChange }: FieldInputProps) {
  const common = {
    id,
    value,
    "aria-describedby": describedBy,
    "aria-invalid": invalid,
    "aria-required": field.required,
  };
  if (field.kind === "choice" || field.kind === "boolean") {
    const choices = field.kind === "boolean" ? ["true", "false"] : field.choices;
    return (
      <select {...common} className="field" onChange={(event) => onChange(event.target.value)}>
        {!(field.required && value) && <option value="">–</option>}
        {choices.map((choice) => (
          <option key={choice} value={choice}>
            {choice.replace(/^"(.*)"$/, "$1")}
          </option>
        ))}
      </select>
    );
  }
  if (field.kind === "json")
    return (
      <textarea
        {...common}
        rows={3}
        spellCheck={false}
        placeholder={field.placeholder || "[ ] or { }"}
        className="field h-auto py-1.5 font-mono text-xs"
        onChange={(event) => onChange(event.target.value)}
      />
    );
  return (
    <input
      {...common}
      inputMode={field.kind === "integer" ? "numeric" : field.kind === "number" ? "decimal" : undefined}
      spellCheck={false}
      autoComplete="off"
      placeholder={field.placeholder}
      className="field"
      onChange={(event) => onChange(event.target.value)}
    />
  );
}
