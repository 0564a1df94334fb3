import type { JobType } from "@/api/model";
import { FieldRow } from "./FieldRow";

interface TypePickerProps {
  types: readonly JobType[];
  value: string;
  mistake?: string | undefined;
  onChange: (type: string) => void;
}

/** One of the types that are known, or any other. */
export function TypePicker({ types, value, mistake, onChange }: TypePickerProps) {
  const type = types.find((each) => each.type === value);
  const note =
    type === undefined
      ? value && types.length
        ? "No worker has named this type yet; the job will wait for one that does."
        : "such as echo"
      : [type.description, type.workers === 0 ? "No live worker serves it: the job will wait." : null]
          .filter(Boolean)
          .join(" ");
  return (
    <FieldRow label="Type" required note={note} mistake={mistake}>
      {({ id, describedBy, invalid }) => (
        <>
          <input
            id={id}
            aria-describedby={describedBy}
            aria-invalid={invalid}
            list="stoker-types"
            className="field font-medium"
            autoComplete="off"
            spellCheck={false}
            value={value}
            onChange={(event) => onChange(event.target.value)}
            onFocus={(event) => event.target.select()}
          />
          <datalist id="stoker-types">
            {types.map(({ type, workers }) => (
              <option key={type} value={type}>
                {workers === 1 ? "1 worker" : `${workers} workers`}
              </option>
            ))}
          </datalist>
        </>
      )}
    </FieldRow>
  );
}
