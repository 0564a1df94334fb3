import { STATUSES, type Status } from "@/api/model";
import { StatusDot } from "@/components/StatusBadge";
import { cx } from "@/lib/cx";
import { compact } from "@/lib/format";

interface StatusTabsProps {
  counts: Record<Status, number> | null;
  chosen: readonly Status[];
  onChange: (status: Status | null) => void;
}

/** One click for the commonest search. */
export function StatusTabs({ counts, chosen, onChange }: StatusTabsProps) {
  const tab = (pressed: boolean) =>
    cx(
      "flex h-9 shrink-0 items-center gap-1.5 border-b-2 px-2 text-xs whitespace-nowrap hover:text-text",
      pressed ? "border-accent text-text font-medium" : "border-transparent text-muted",
    );
  return (
    <fieldset className="-ml-2 flex min-w-0 overflow-x-auto [scrollbar-width:none]">
      <legend className="sr-only">Status</legend>
      <button
        type="button"
        aria-pressed={chosen.length === 0}
        className={tab(chosen.length === 0)}
        onClick={() => onChange(null)}
      >
        All
      </button>
      {STATUSES.map((status) => {
        const pressed = chosen.includes(status);
        return (
          <button
            key={status}
            type="button"
            aria-pressed={pressed}
            className={tab(pressed)}
            title={status === "scheduled" ? "delayed, or retrying: waiting for the next attempt" : undefined}
            onClick={() => onChange(pressed && chosen.length === 1 ? null : status)}
          >
            <StatusDot status={status} />
            {status}
            {counts && <span className="text-faint">{compact(counts[status])}</span>}
          </button>
        );
      })}
    </fieldset>
  );
}
