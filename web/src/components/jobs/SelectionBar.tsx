import { Button } from "@/components/Button";
import { count, plural } from "@/lib/format";

interface SelectionBarProps {
  selected: number;
  all: boolean;
  /** How many match the search. */
  total: number;
  totalCapped: boolean;
  canCancel: boolean;
  canRetry: boolean;
  /** The search was answered, so that "all matching" means something. */
  canSelectAll: boolean;
  busy: boolean;
  onCancel: () => void;
  onRetry: () => void;
  onAll: () => void;
  onClear: () => void;
}

/** What can be done with the jobs that are chosen. */
export function SelectionBar(props: SelectionBarProps) {
  const { selected, all, total, totalCapped, busy } = props;
  const matching = `${count(total)}${totalCapped ? "+" : ""}`;
  return (
    <div
      role="toolbar"
      aria-label="Selected jobs"
      className="flex flex-wrap items-center gap-2 border-b border-line bg-selected px-4 py-1.5"
    >
      <span className="font-medium whitespace-nowrap">
        {all ? `All ${matching} matching` : `${plural(selected, "job")} selected`}
      </span>
      {!all && total > selected && (
        <Button
          tone="ghost"
          size="sm"
          disabled={!props.canSelectAll}
          onClick={props.onAll}
          className="text-accent"
        >
          Select all {matching} matching
        </Button>
      )}
      <span className="ml-auto flex gap-2">
        <Button size="sm" icon="retry" disabled={!props.canRetry} busy={busy} onClick={props.onRetry}>
          Retry
        </Button>
        <Button
          size="sm"
          tone="danger"
          icon="cancel"
          disabled={!props.canCancel}
          busy={busy}
          onClick={props.onCancel}
        >
          Cancel
        </Button>
        <Button
          size="sm"
          tone="ghost"
          icon="close"
          aria-label="Clear the selection"
          onClick={props.onClear}
        />
      </span>
    </div>
  );
}
