import { FieldRow } from "./FieldRow";

interface JsonInputProps {
  label: string;
  value: string;
  mistake?: string | undefined;
  onChange: (text: string) => void;
}

/** JSON as it is; big numbers stay as they are typed. */
export function JsonInput({ label, value, mistake, onChange }: JsonInputProps) {
  return (
    <FieldRow label={label} mistake={mistake} note="Any JSON; numbers of any length are kept as they are.">
      {({ id, describedBy, invalid }) => (
        <textarea
          id={id}
          aria-describedby={describedBy}
          aria-invalid={invalid}
          rows={Math.min(20, Math.max(6, value.split("\n").length + 1))}
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
