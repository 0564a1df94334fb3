import type { BreakdownRow } from "@/api/model";

/** Of what ended, how much failed; null when nothing did. */
export function failureShare({
  completed,
  failed,
}: Pick<BreakdownRow, "completed" | "failed">): number | null {
  const ended = completed + failed;
  return ended > 0 ? failed / ended : null;
}

export const RANGES = {
  "15m": 900,
  "1h": 3600,
  "6h": 21_600,
  "24h": 86_400,
  "7d": 604_800,
  "30d": 2_592_000,
} as const;
export type Range = keyof typeof RANGES;
export const CHOICES = Object.keys(RANGES) as Range[];

export const rangeOf = (text: string | undefined): Range => CHOICES.find((choice) => choice === text) ?? "1h";
