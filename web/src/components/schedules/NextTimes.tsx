import { Time } from "@/components/Time";

/** Times to come, the first one larger: "in 5 m", with the exact time on hover. */
export function NextTimes({ times }: { times: readonly number[] }) {
  const [first, ...rest] = times;
  if (first === undefined) return <span className="text-muted">none: it is over</span>;
  return (
    <>
      <Time at={first} />
      {rest.length > 0 && (
        <span className="flex flex-wrap gap-x-2 text-xs text-muted">
          <span>then</span>
          {rest.map((at) => (
            <Time key={at} at={at} />
          ))}
        </span>
      )}
    </>
  );
}
