import { cx } from "@/lib/cx";

interface RangePickerProps<T extends string> {
  label: string;
  choices: readonly T[];
  value: T;
  onChange: (value: T) => void;
}

/** A few choices of which one holds: time ranges, groupings. */
export function RangePicker<T extends string>({ label, choices, value, onChange }: RangePickerProps<T>) {
  return (
    <fieldset className="inline-flex rounded-md border border-line bg-sunken p-0.5">
      <legend className="sr-only">{label}</legend>
      {choices.map((choice) => (
        <button
          key={choice}
          type="button"
          aria-pressed={choice === value}
          onClick={() => onChange(choice)}
          className={cx(
            "h-6 rounded-sm px-2.5 text-xs",
            choice === value ? "bg-raised font-medium text-text shadow-low" : "text-muted hover:text-text",
          )}
        >
          {choice}
        </button>
      ))}
    </fieldset>
  );
}
