import type { ReactNode } from "react";
import { cx } from "@/lib/cx";

/** The inner space of an ordinary page, one column of panels. */
export function Page({ children, className }: { children: ReactNode; className?: string }) {
  return (
    <div className={cx("mx-auto flex w-full max-w-[1600px] flex-col gap-3 p-3 sm:gap-4 sm:p-4", className)}>
      {children}
    </div>
  );
}
