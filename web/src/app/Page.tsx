import type { ReactNode } from "react";
import { cx } from "@/lib/cx";
import { clock } from "@/lib/format";
import { useAwaySince } from "@/live/live";

/** The inner space of an ordinary page, one column of panels. It says when what it shows may not be true any more. */
export function Page({ children, className }: { children: ReactNode; className?: string }) {
  const away = useAwaySince();
  return (
    <div className={cx("mx-auto flex w-full max-w-[1600px] flex-col gap-3 p-3 sm:gap-4 sm:p-4", className)}>
      {away !== null && (
        <p role="status" className="rounded-lg border border-warn bg-panel px-4 py-2.5 text-warn">
          The server has not answered since {clock(away)}. What is shown here was true then; what is true now
          is not known.
        </p>
      )}
      {children}
    </div>
  );
}
