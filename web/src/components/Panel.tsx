import { type ReactNode, useId } from "react";
import { cx } from "@/lib/cx";

interface PanelProps {
  title?: ReactNode;
  /** To the right of the title. */
  actions?: ReactNode;
  children: ReactNode;
  className?: string;
  /** Without inner space, for tables and charts. */
  flush?: boolean;
}

export function Panel({ title, actions, children, className, flush = false }: PanelProps) {
  const id = useId();
  return (
    <section
      aria-labelledby={title ? id : undefined}
      className={cx("rounded-lg border border-line bg-panel shadow-low min-w-0", className)}
    >
      {(title || actions) && (
        <header className="flex min-h-10 items-center justify-between gap-3 px-4 pt-2 pb-1">
          <h2 id={id} className="clip text-sm font-semibold">
            {title}
          </h2>
          {actions && <div className="flex shrink-0 items-center gap-2">{actions}</div>}
        </header>
      )}
      <div className={flush ? undefined : "px-4 pb-4"}>{children}</div>
    </section>
  );
}
