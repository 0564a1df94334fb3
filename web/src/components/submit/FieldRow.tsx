import { type ReactNode, useId } from "react";
import { cx } from "@/lib/cx";

interface FieldRowProps {
  label: string;
  required?: boolean;
  /** Below the field. */
  note?: ReactNode;
  mistake?: string | undefined;
  children: (ids: { id: string; describedBy: string; invalid: boolean }) => ReactNode;
  className?: string;
}

/** A label, a field, and what there is to say about it. */
export function FieldRow({ label, required = false, note, mistake, children, className }: FieldRowProps) {
  const id = useId();
  const noteId = useId();
  return (
    <div className={cx("flex min-w-0 flex-col gap-1", className)}>
      <label htmlFor={id} className="clip text-xs text-muted">
        {label}
        {required && (
          <span className="text-accent" title="needed">
            {" "}
            *
          </span>
        )}
      </label>
      {children({ id, describedBy: noteId, invalid: mistake !== undefined })}
      <p id={noteId} className={cx("wrap-any text-2xs", mistake ? "text-bad" : "text-faint")}>
        {mistake ?? note}
      </p>
    </div>
  );
}
