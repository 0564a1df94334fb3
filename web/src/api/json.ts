/** JSON that keeps what JavaScript's own numbers would lose: 12345678901234567890 stays itself. */

import { isInteger, isSafeNumber, LosslessNumber, parse, stringify } from "lossless-json";

function exactNumber(text: string): number | bigint | LosslessNumber {
  if (isSafeNumber(text)) return Number(text);
  return isInteger(text) ? BigInt(text) : new LosslessNumber(text);
}

export const parseExact = (text: string): unknown => parse(text, null, exactNumber);

export const formatExact = (value: unknown, indent?: number): string =>
  stringify(value, null, indent) ?? "null";

export const isExactNumber = (value: unknown): value is number | bigint | LosslessNumber =>
  typeof value === "number" || typeof value === "bigint" || value instanceof LosslessNumber;
