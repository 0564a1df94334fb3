import { cx } from "@/lib/cx";

interface SparklineProps {
  values: readonly number[];
  label: string;
  className?: string;
  width?: number;
  height?: number;
}

/** Bars, oldest first; coloured by the text colour around it. */
export function Sparkline({ values, label, className, width = 96, height = 20 }: SparklineProps) {
  const top = Math.max(1, ...values);
  const step = width / Math.max(1, values.length);
  return (
    <svg role="img" aria-label={label} width={width} height={height} className={cx("shrink-0", className)}>
      {values.map((value, index) => {
        const bar = value > 0 ? Math.max(1.5, (value / top) * height) : 0.5;
        return (
          <rect
            // biome-ignore lint/suspicious/noArrayIndexKey: a bar is its place.
            key={index}
            x={index * step}
            y={height - bar}
            width={Math.max(1, step - 1)}
            height={bar}
            fill="currentColor"
            opacity={value > 0 ? 1 : 0.35}
          />
        );
      })}
    </svg>
  );
}
