import { useNow } from "@/lib/clock";
import { exact, relative } from "@/lib/format";

/** "5 m ago", with the exact time on hover and for machines. */
export function Time({ at, none = "–" }: { at: number | null | undefined; none?: string }) {
  const now = useNow();
  if (at === null || at === undefined) return <span className="text-faint">{none}</span>;
  return (
    <time dateTime={new Date(at).toISOString()} title={exact(at)} className="whitespace-nowrap">
      {relative(at, now)}
    </time>
  );
}
