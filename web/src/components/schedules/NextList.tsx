import { useNow } from "@/lib/clock";
import { exact, relative } from "@/lib/format";
import { inZone } from "./when";

/** Times to come, one in a line, by the clocks of the schedule's zone. */
export function NextList({ times, timezone }: { times: readonly number[]; timezone: string }) {
  const now = useNow();
  if (times.length === 0) return <p className="text-muted">None.</p>;
  return (
    <ol>
      {times.map((at) => (
        <li key={at} className="flex flex-wrap justify-between gap-x-3">
          <time dateTime={new Date(at).toISOString()} title={exact(at)}>
            {inZone(at, timezone)}
          </time>
          <span className="text-muted">{relative(at, now)}</span>
        </li>
      ))}
    </ol>
  );
}
