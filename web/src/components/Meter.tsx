import { cx } from "@/lib/cx";

interface MeterProps {
  value: number;
  max: number;
  label: string;
  tone?: "running" | "good" | "warn" | "bad" | "accent";
  className?: string;
}

const TONES = {
  running: "bg-running",
  good: "bg-good",
  warn: "bg-warn",
  bad: "bg-bad",
  accent: "bg-accent",
};

/** How much of something is used. */
export function Meter({ value, max, label, tone = "running", className }: MeterProps) {
  const share = max > 0 ? Math.min(1, Math.max(0, value / max)) : 0;
  return (
    <div
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={max}
      aria-valuenow={value}
      className={cx("h-1.5 overflow-hidden rounded-full bg-line", className)}
    >
      <div
        className={cx("h-full rounded-full transition-[width] duration-200", TONES[tone])}
        style={{ width: `${share * 100}%` }}
      />
    </div>
  );
}
