import { FieldRow } from "./FieldRow";

interface JsonInputProps {
  label: string;
  value: string;
  mistake?: string | undefined;
  note?: string;
  /** At least. */
  rows?: number;
  onChange: (text: string) => void;
}

const NOTE = "Any JSON; numbers of any length are kept as they are.";

/** JSON as it is; big numbers stay as they are typed. */
export function JsonInput({ label, value, mistake, note = NOTE, rows = 6, onChange }: JsonInputProps) {
  return (
    <FieldRow label={label} mistake={mistake} note={note}>
      {({ id, describedBy, invalid }) => (
        <textarea
          id={id}
          aria-describedby={describedBy}
          aria-invalid={invalid}
          rows={Math.min(20, Math.max(rows, value.split("\n").length + 1))}
          spellCheck={false}
          autoCapitalize="off"
          className="field h-auto py-2 font-mono text-xs leading-5"
          value={value}
          onChange={(event) => onChange(event.target.value)}
        />
      )}
    </FieldRow>
  );
}
