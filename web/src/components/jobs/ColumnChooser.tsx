import { Popover } from "@/components/Popover";
import { COLUMNS, type JobColumn } from "./columns";

interface ColumnChooserProps {
  columns: readonly JobColumn[];
  onChange: (keys: string[]) => void;
}

export function ColumnChooser({ columns, onChange }: ColumnChooserProps) {
  const shown = columns.map(({ key }) => key);
  const flip = (key: string) =>
    onChange(shown.includes(key) ? shown.filter((other) => other !== key) : [...shown, key]);
  return (
    <Popover label="Columns" button={{ icon: "columns", "aria-label": "Columns", title: "Columns" }}>
      {() =>
        COLUMNS.map(({ key, title }) => (
          <label key={key} className="flex h-7 items-center gap-2 rounded-md px-2 hover:bg-hover">
            <input
              type="checkbox"
              className="size-3.5 accent-accent"
              checked={shown.includes(key)}
              disabled={shown.length === 1 && shown[0] === key}
              onChange={() => flip(key)}
            />
            {title}
          </label>
        ))
      }
    </Popover>
  );
}
