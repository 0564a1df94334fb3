/** The threads of a worker as cells, and which job is in each. Pure. */

import type { JobRow, Worker } from "@/api/model";

export interface Cell {
  /** Null: the thread is free, or its job has not been told yet. */
  job: JobRow | null;
  /** How many threads wide. */
  threads: number;
  state: "job" | "busy" | "free";
}

/**
 * One cell per job, as wide as the threads it holds, then busy threads whose job is not in the list (it changes faster
 * than it is fetched), then free ones. Never more cells than threads.
 */
export function cellsOf(worker: Pick<Worker, "threads" | "threadsUsed">, jobs: readonly JobRow[]): Cell[] {
  const cells: Cell[] = [];
  let left = worker.threads;
  for (const job of jobs.toSorted((a, b) => (a.startedAt ?? a.createdAt) - (b.startedAt ?? b.createdAt))) {
    if (left <= 0) break;
    const threads = Math.min(left, Math.max(1, job.threads ?? 1));
    cells.push({ job, threads, state: "job" });
    left -= threads;
  }
  const told = worker.threads - left;
  const busy = Math.min(left, Math.max(0, worker.threadsUsed - told));
  for (let index = 0; index < left; index++)
    cells.push({ job: null, threads: 1, state: index < busy ? "busy" : "free" });
  return cells;
}

/** Threads that do something, as drawn. */
export const usedOf = (cells: readonly Cell[]): number =>
  cells.reduce((sum, cell) => (cell.state === "free" ? sum : sum + cell.threads), 0);

export const KINDS = 8;

/** A colour for each type, 1 to 8: by name, so that it stays the same from visit to visit; neighbours swap if they meet. */
export function kindsOf(types: Iterable<string>): Map<string, number> {
  const kinds = new Map<string, number>();
  const taken = new Set<number>();
  for (const type of [...new Set(types)].sort()) {
    let kind = hash(type) % KINDS;
    if (taken.size < KINDS) while (taken.has(kind)) kind = (kind + 1) % KINDS;
    taken.add(kind);
    kinds.set(type, kind + 1);
  }
  return kinds;
}

function hash(text: string): number {
  let value = 2_166_136_261;
  for (let index = 0; index < text.length; index++)
    value = Math.imul(value ^ text.charCodeAt(index), 16_777_619) >>> 0;
  return value;
}

export function byWorker(rows: readonly JobRow[]): Map<string, JobRow[]> {
  const groups = new Map<string, JobRow[]>();
  for (const row of rows) {
    if (row.workerId === null) continue;
    const group = groups.get(row.workerId);
    if (group) group.push(row);
    else groups.set(row.workerId, [row]);
  }
  return groups;
}
