import { type MouseEvent, memo, type ReactNode } from "react";
import type { JobRow } from "@/api/model";
import { Duration, Elapsed } from "@/components/Duration";
import { StatusBadge } from "@/components/StatusBadge";
import { Time } from "@/components/Time";
import { cx } from "@/lib/cx";
import { shortId } from "@/lib/format";
import type { JobColumn } from "./columns";

interface JobGridRowProps {
  index: number;
  /** Undefined while it is on its way. */
  row: JobRow | undefined;
  top: number;
  height: number;
  tracks: string;
  columns: readonly JobColumn[];
  narrow: boolean;
  selected: boolean;
  current: boolean;
  onSelect: (index: number, row: JobRow, range: boolean) => void;
  onOpen: (row: JobRow) => void;
  link: (row: JobRow, children: ReactNode) => ReactNode;
}

export const JobGridRow = memo(function JobGridRow(props: JobGridRowProps) {
  const { index, row, top, height, tracks, columns, narrow, selected, current, onSelect, onOpen, link } =
    props;
  const onClick = (event: MouseEvent) => {
    if (!row || (event.target as HTMLElement).closest("a, input, button")) return;
    if (event.shiftKey || event.metaKey || event.ctrlKey) onSelect(index, row, event.shiftKey);
    else if (!window.getSelection()?.toString()) onOpen(row);
  };
  const box = row && (
    <div role="gridcell" tabIndex={-1} className="flex">
      <input
        type="checkbox"
        aria-label={`Select job ${row.id}`}
        className="size-3.5 accent-accent"
        checked={selected}
        onClick={(event) => onSelect(index, row, event.shiftKey)}
        onChange={() => undefined}
      />
    </div>
  );
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: j, k, x and Enter are handled by the page.
    <div
      role="row"
      tabIndex={-1}
      aria-rowindex={index + 2}
      aria-selected={selected}
      data-current={current || undefined}
      onClick={onClick}
      onMouseDown={(event) => {
        // A range of rows is meant, not of letters.
        if (event.shiftKey) event.preventDefault();
      }}
      className={cx(
        "absolute inset-x-0 border-b border-line px-4",
        narrow ? "flex items-center gap-3" : "grid items-center gap-x-3",
        row && "cursor-default hover:bg-hover",
        selected && "bg-selected",
        current && "shadow-[inset_2px_0_0_var(--accent)] bg-hover",
      )}
      style={{ top, height, gridTemplateColumns: narrow ? undefined : tracks }}
    >
      {row === undefined ? (
        <Placeholder />
      ) : narrow ? (
        <>
          {box}
          <Lines row={row} link={link} />
        </>
      ) : (
        <>
          {box}
          {columns.map((column) => (
            <div
              key={column.key}
              role="gridcell"
              tabIndex={-1}
              className={cx("min-w-0 overflow-hidden", column.numeric && "text-right")}
            >
              {column.key === "id" || column.key === "type" ? link(row, column.cell(row)) : column.cell(row)}
            </div>
          ))}
        </>
      )}
    </div>
  );
});

/** A job in two lines, for narrow screens. */
function Lines({ row, link }: { row: JobRow; link: JobGridRowProps["link"] }) {
  return (
    <div role="gridcell" tabIndex={-1} className="min-w-0 flex-1">
      <div className="flex items-center gap-2">
        <span className="clip flex-1">
          {link(row, <span className="font-medium">{row.type}</span>)}
          {row.name && <span className="ml-2 text-muted">{row.name}</span>}
        </span>
        <StatusBadge job={row} />
      </div>
      <div className="flex items-center gap-2 text-xs text-muted">
        <span className="clip flex-1">
          <span className="font-mono">{shortId(row.id)}</span>{" "}
          {row.status === "failed" && row.failure
            ? row.failure.message || row.failure.type
            : `in ${row.queue}`}
        </span>
        {row.status === "running" && row.startedAt !== null ? (
          <Elapsed since={row.startedAt} />
        ) : (
          row.runSec !== null && <Duration seconds={row.runSec} />
        )}
        <Time at={row.createdAt} />
      </div>
    </div>
  );
}

/** Still and of few parts: when the bar is dragged, a screenful of these comes and goes many times a second. */
function Placeholder() {
  return (
    <span
      role="gridcell"
      tabIndex={-1}
      aria-label="on its way"
      className="col-span-full ml-12 h-2.5 w-1/3 rounded-sm bg-line"
    />
  );
}
