/**
 * The jobs in view, out of a list of any length: pages of it are fetched as they come into view, and given up when they
 * have left it before they arrived. While the top of the list is in view it is kept up with the stream; further down it
 * stays as it is, so that nothing moves under the reader, and `newer` says that there is more above.
 */

import { useQueries, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { JobRow, JobsFilter, JobsPage } from "@/api/model";
import { jobsPageQuery, keys, PAGE_SIZE } from "@/api/queries";
import type { Range } from "@/components/jobs/scroll";
import { live, usePolling } from "@/live/live";
import { paced, throttle } from "@/live/sync";

const FETCH_MS = 80;
const REFRESH_MS = 1000;
/** A range of more is better done as "all matching". */
export const RANGE_MOST = 1000;

export interface JobWindow {
  /** Rows that can be scrolled over. */
  count: number;
  total: number;
  totalCapped: boolean;
  loading: boolean;
  error: unknown;
  newer: boolean;
  rowAt: (index: number) => JobRow | undefined;
  /** Rows of a range, fetched if need be; at most `RANGE_MOST`. */
  rowsBetween: (from: number, to: number) => Promise<JobRow[]>;
  onRange: (range: Range) => void;
  refresh: () => void;
}

export function useJobWindow(filter: JobsFilter): JobWindow {
  const client = useQueryClient();
  const polling = usePolling();
  const filterKey = JSON.stringify(filter);
  const [pages, setPages] = useState<readonly number[]>([0]);
  const [newer, setNewer] = useState(false);
  const range = useRef<Range>({ first: 0, end: 0 });

  const wantPages = useMemo(
    () =>
      throttle(() => {
        const wanted = pagesOf(range.current);
        setPages((before) => (before.join() === wanted.join() ? before : wanted));
      }, FETCH_MS),
    [],
  );
  useEffect(() => wantPages.cancel, [wantPages]);
  const onRange = useCallback(
    (next: Range) => {
      range.current = next;
      wantPages();
      if (next.first === 0) setNewer(false);
    },
    [wantPages],
  );

  const results = useQueries({
    queries: pages.map((page) => ({ ...jobsPageQuery(filter, page), refetchInterval: polling })),
    combine: (all) => ({
      pages: all.map(({ data }) => data),
      loading: all.some(({ isPending }) => isPending),
      error: all.find(({ error }) => error)?.error ?? null,
    }),
  });

  const byPage = useMemo(
    () => new Map(pages.map((page, index) => [page, results.pages[index]])),
    [pages, results.pages],
  );
  const extent = useExtent(filterKey, byPage);

  const refresh = useCallback(() => {
    setNewer(false);
    return client.invalidateQueries({ queryKey: [...keys.jobs, "page"] });
  }, [client]);

  useEffect(() => {
    const refreshSoon = paced(refresh, REFRESH_MS);
    const stop = live.subscribe((state, before) => {
      const changed = state.changed.length > 0 || state.unseen !== before.unseen;
      if (!changed && state.submitted === before.submitted) return;
      if (range.current.first < PAGE_SIZE / 2) refreshSoon();
      else if (state.submitted !== before.submitted) setNewer(true);
    });
    return () => {
      stop();
      refreshSoon.cancel();
    };
  }, [refresh]);

  const rowAt = useCallback(
    (index: number) => byPage.get(Math.floor(index / PAGE_SIZE))?.rows[index % PAGE_SIZE],
    [byPage],
  );

  const rowsBetween = useCallback(
    async (from: number, to: number) => {
      const first = Math.min(from, to);
      const end = Math.min(Math.max(from, to) + 1, first + RANGE_MOST);
      const fetched = await Promise.all(
        pagesOf({ first, end }).map(async (page) => {
          const query = jobsPageQuery(JSON.parse(filterKey) as JobsFilter, page);
          const { rows } = await client.ensureQueryData(query);
          return rows.map((row, index) => ({ row, index: page * PAGE_SIZE + index }));
        }),
      );
      return fetched.flat().flatMap(({ row, index }) => (index >= first && index < end ? [row] : []));
    },
    [client, filterKey],
  );

  return { ...extent, ...results, newer, rowAt, rowsBetween, onRange, refresh };
}

function pagesOf({ first, end }: Range): number[] {
  const from = Math.floor(first / PAGE_SIZE);
  const to = Math.floor(Math.max(first, end - 1) / PAGE_SIZE);
  return Array.from({ length: to - from + 1 }, (_, index) => from + index);
}

interface Extent {
  count: number;
  total: number;
  totalCapped: boolean;
}

/** How long the list is, as far as is known; remembered while the pages in view are on their way. */
function useExtent(filterKey: string, byPage: ReadonlyMap<number, JobsPage | undefined>): Extent {
  const known = useRef<{ key: string; extent: Extent }>({ key: filterKey, extent: NOTHING });
  return useMemo(() => {
    const before = known.current.key === filterKey ? known.current.extent : NOTHING;
    const extent = extentOf(before, byPage);
    known.current = { key: filterKey, extent };
    return extent;
  }, [filterKey, byPage]);
}

const NOTHING: Extent = { count: 0, total: 0, totalCapped: false };

/** A total that was capped is a beginning: each full page says that another may follow. */
export function extentOf(before: Extent, byPage: ReadonlyMap<number, JobsPage | undefined>): Extent {
  let extent = before;
  for (const [page, data] of byPage) {
    if (!data) continue;
    const seen = page * PAGE_SIZE + data.rows.length;
    const full = data.rows.length === PAGE_SIZE;
    const count = data.totalCapped
      ? Math.max(data.total, full ? seen + PAGE_SIZE : seen, full ? extent.count : 0)
      : data.total;
    extent = {
      count,
      total: Math.max(data.total, data.totalCapped ? seen : 0),
      totalCapped: data.totalCapped,
    };
  }
  return extent;
}
