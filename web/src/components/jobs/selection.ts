/** Which jobs are chosen: some by id, or all that match. Pure. */

import type { JobRow } from "@/api/model";

export interface Selection {
  rows: ReadonlyMap<string, JobRow>;
  /** Everything that matches the search, seen or not. */
  all: boolean;
  /** Where a range begins. */
  anchor: number | null;
}

export const NONE: Selection = { rows: new Map(), all: false, anchor: null };

export const isSelected = (selection: Selection, id: string): boolean =>
  selection.all || selection.rows.has(id);

/** One more or one less; the next range begins here. After "all" a single one is a new beginning. */
export function toggle(selection: Selection, row: JobRow, index: number): Selection {
  const rows = new Map(selection.rows);
  if (!rows.delete(row.id)) rows.set(row.id, row);
  return { rows, all: false, anchor: index };
}

/** All rows of a range are added; the anchor stays, so that the range can be drawn again. */
export function extend(selection: Selection, range: readonly JobRow[]): Selection {
  const rows = new Map(selection.rows);
  for (const row of range) rows.set(row.id, row);
  return { ...selection, rows, all: false };
}

export const selectAll = (selection: Selection): Selection => ({ ...selection, all: true });
