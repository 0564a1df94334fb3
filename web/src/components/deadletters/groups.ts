/** Dead letters as the page shows them: groups told apart, ordered and summed up. Pure. */

import type { DeadLetterGroup, Status } from "@/api/model";

export interface Piece {
  text: string;
  /** It stands for what differs from job to job: a number, an id, a path. */
  hole: boolean;
}

/** What the server puts in place of what differs each time. */
const HOLE = /<(?:url|id|text|path|time|hex|n)>/g;

/** A normalised message, with the places that were filled differently each time. */
export function piecesOf(message: string): Piece[] {
  const pieces: Piece[] = [];
  let at = 0;
  for (const { 0: hole, index } of message.matchAll(HOLE)) {
    if (index > at) pieces.push({ text: message.slice(at, index), hole: false });
    pieces.push({ text: hole.slice(1, -1), hole: true });
    at = index + hole.length;
  }
  if (at < message.length) pieces.push({ text: message.slice(at), hole: false });
  return pieces;
}

export type GroupSort = "latest" | "most";

export function sorted(groups: readonly DeadLetterGroup[], by: GroupSort): DeadLetterGroup[] {
  return groups.toSorted((a, b) =>
    by === "most" ? b.count - a.count || b.lastSeenAt - a.lastSeenAt : b.lastSeenAt - a.lastSeenAt,
  );
}

export interface Shown {
  group: DeadLetterGroup;
  /** It was there and is not any more; its place is kept, so that nothing slides under the pointer. */
  gone: boolean;
}

/**
 * The groups in the order in which they are shown now, as they are now. Those that came since are counted and not shown:
 * they would move the others.
 */
export function held(
  shown: readonly DeadLetterGroup[],
  groups: readonly DeadLetterGroup[],
): { list: Shown[]; newer: number } {
  const now = new Map(groups.map((group) => [group.fingerprint, group]));
  const list = shown.map((before) => {
    const group = now.get(before.fingerprint);
    return { group: group ?? before, gone: group === undefined };
  });
  const places = new Set(shown.map(({ fingerprint }) => fingerprint));
  return { list, newer: groups.filter(({ fingerprint }) => !places.has(fingerprint)).length };
}

/** It began within the last ten minutes. */
export const isNew = (group: DeadLetterGroup, now: number): boolean => now - group.firstSeenAt < 10 * 60_000;

export type CanaryState = "waiting" | "running" | "passed" | "failed";

/** What one job, run again, says about its group. */
export function canaryState(status: Status, attempt: number): CanaryState {
  if (status === "completed") return "passed";
  if (status === "failed" || status === "cancelled") return "failed";
  // It goes on trying, but it has already failed the same way once more.
  if (status === "scheduled" && attempt > 0) return "failed";
  return status === "running" ? "running" : "waiting";
}
