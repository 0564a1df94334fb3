import { useNow } from "@/lib/clock";
import { duration } from "@/lib/format";

/** A length of time in seconds, the exact one on hover. */
export function Duration({ seconds, none = "–" }: { seconds: number | null | undefined; none?: string }) {
  if (seconds === null || seconds === undefined) return <span className="text-faint">{none}</span>;
  return (
    <span title={`${seconds} s`} className="whitespace-nowrap">
      {duration(seconds)}
    </span>
  );
}

/** How long something has been going on; counts up. */
export function Elapsed({ since }: { since: number }) {
  const now = useNow();
  return <span className="whitespace-nowrap">{duration(Math.max(0, Math.floor((now - since) / 1000)))}</span>;
}
