import { cx } from "@/lib/cx";

const TONES = {
  running: "text-running",
  completed: "text-completed",
  failed: "text-failed",
  queued: "text-queued",
  accent: "text-accent",
};

/** The last minute as a line at the right of a tile; the number beside it says the rest. */
export function Trend({ values, tone }: { values: readonly number[]; tone: keyof typeof TONES }) {
  if (values.length < 2) return null;
  const top = Math.max(1e-9, ...values);
  const step = 100 / (values.length - 1);
  const line = values.map(
    (value, index) => `${(index * step).toFixed(2)},${(30 - (value / top) * 26).toFixed(2)}`,
  );
  return (
    <svg
      aria-hidden="true"
      viewBox="0 0 100 32"
      preserveAspectRatio="none"
      className={cx(
        "absolute right-0 bottom-0 h-9 w-1/2 opacity-80 [mask-image:linear-gradient(to_right,transparent,#000_60%)]",
        TONES[tone],
      )}
    >
      <polygon points={`0,32 ${line.join(" ")} 100,32`} fill="currentColor" opacity="0.1" />
      <polyline
        points={line.join(" ")}
        fill="none"
        stroke="currentColor"
        strokeWidth="1.5"
        vectorEffect="non-scaling-stroke"
      />
    </svg>
  );
}
