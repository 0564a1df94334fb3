import type { Worker } from "@/api/model";
import { plural } from "@/lib/format";

const TYPES_SHOWN = 6;

/** The types that a worker runs, in words; the first few by name. */
export function served({ types, anyType }: Pick<Worker, "types" | "anyType">): string {
  if (types.length === 0) return anyType ? "any that no other worker names" : "none";
  const more = types.length - TYPES_SHOWN;
  const named = types.slice(0, TYPES_SHOWN).join(", ") + (more > 0 ? ` and ${plural(more, "other")}` : "");
  return anyType ? `${named}, and any that no other worker names` : named;
}
