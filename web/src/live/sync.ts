/**
 * From the live state into what pages have fetched. Numbers, workers, queues and rows are written in place; lists whose
 * membership may have changed are fetched again, but not more often than once a second.
 */

import type { QueryClient } from "@tanstack/react-query";
import { mergeRow } from "@/api/convert";
import type { JobRow, JobsPage } from "@/api/model";
import { keys } from "@/api/queries";
import type { LiveState } from "./state";
import type { LiveStore } from "./store";

const REFETCH_MS = 1000;

export function syncQueries(store: LiveStore, client: QueryClient): () => void {
  const refetchLists = paced(
    // The pages of the big table decide for themselves; see `useJobWindow`.
    () =>
      Promise.all([
        client.invalidateQueries({ queryKey: [...keys.jobs, "top"] }),
        client.invalidateQueries({ queryKey: keys.deadLetters }),
      ]),
    REFETCH_MS,
  );
  // Only what a page shows is here, so this is a handful of ids at most.
  const doubtful = new Set<string>();
  const refetchOpenJobs = paced(() => {
    const wanted = new Set(doubtful);
    doubtful.clear();
    return client.invalidateQueries({ predicate: ({ queryKey }) => wanted.has(openJob(queryKey) ?? "") });
  }, REFETCH_MS);
  const doubt = (concerns: (id: string) => boolean) => {
    for (const { queryKey } of client.getQueryCache().findAll({ queryKey: ["job"] })) {
      const id = openJob(queryKey);
      if (id !== null && concerns(id)) doubtful.add(id);
    }
    if (doubtful.size) refetchOpenJobs();
  };

  const stop = store.subscribe((state, before) => {
    if (state.generation !== before.generation) void client.invalidateQueries();
    if (state.stats && state.stats !== before.stats) client.setQueryData(keys.stats, state.stats);
    if (state.workers && state.workers !== before.workers) client.setQueryData(keys.workers, state.workers);
    if (state.queues && state.queues !== before.queues) client.setQueryData(keys.queues, state.queues);
    if (state.bulk !== before.bulk) {
      for (const bulk of Object.values(state.bulk)) client.setQueryData(keys.bulk(bulk.id), bulk);
    }
    const unseen = state.unseen !== before.unseen;
    if (state.changed.length) patchPages(client, state);
    if (state.changed.length || unseen || state.submitted !== before.submitted) refetchLists();
    if (unseen) doubt(() => true);
    else if (state.changed.length) {
      const changed = new Set(state.changed);
      doubt((id) => changed.has(id));
    }
  });
  return () => {
    stop();
    refetchLists.cancel();
    refetchOpenJobs.cancel();
  };
}

function openJob(queryKey: readonly unknown[]): string | null {
  return queryKey[0] === "job" && typeof queryKey[1] === "string" ? queryKey[1] : null;
}

function patchPages(client: QueryClient, state: LiveState): void {
  const changed = new Map<string, JobRow>();
  for (const id of state.changed) {
    const row = state.jobs.get(id);
    if (row) changed.set(id, row);
  }
  client.setQueriesData<JobsPage>(
    { queryKey: [...keys.jobs, "page"] },
    (page) => page && patchPage(page, changed),
  );
}

/** The same page when none of its rows changed, so that nothing renders. */
export function patchPage(page: JobsPage, changed: ReadonlyMap<string, JobRow>): JobsPage {
  let touched = false;
  const rows = page.rows.map((row) => {
    const live = changed.get(row.id);
    if (!live) return row;
    touched = true;
    return mergeRow(row, live);
  });
  return touched ? { ...page, rows } : page;
}

/** Runs at once and then at most once per `ms`, with what was said last. */
export function throttle<A extends unknown[]>(run: (...args: A) => void, ms: number) {
  let timer: ReturnType<typeof setTimeout> | null = null;
  let last: A | null = null;
  const tick = () => {
    timer = null;
    if (last === null) return;
    const args = last;
    last = null;
    timer = setTimeout(tick, ms);
    run(...args);
  };
  const call = (...args: A) => {
    last = args;
    if (timer === null) tick();
  };
  call.cancel = () => {
    if (timer !== null) clearTimeout(timer);
    timer = null;
    last = null;
  };
  return call;
}

/**
 * Runs at once, and again when it was called meanwhile, but not before the last run is over and `ms` have passed: a
 * server that takes its time is not asked again before it has answered, which would give up every answer under way.
 */
export function paced(run: () => Promise<unknown>, ms: number) {
  let busy = false;
  let again = false;
  let over = false;
  const start = async () => {
    busy = true;
    again = false;
    await Promise.all([run().catch(() => undefined), new Promise((resolve) => setTimeout(resolve, ms))]);
    busy = false;
    if (again && !over) void start();
  };
  const call = () => {
    if (busy) again = true;
    else if (!over) void start();
  };
  call.cancel = () => {
    over = true;
  };
  return call;
}
