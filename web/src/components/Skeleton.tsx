import { cx } from "@/lib/cx";

/** The place of something that is on its way. */
export function Skeleton({ className }: { className?: string }) {
  return <span aria-hidden="true" className={cx("block h-3 rounded-sm bg-line pulse", className)} />;
}
