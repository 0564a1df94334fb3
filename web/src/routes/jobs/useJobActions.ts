/** Cancel, retry and export of the jobs that are chosen: one by one where they are few, by the server where they are all. */

import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import * as api from "@/api/endpoints";
import { formatExact } from "@/api/json";
import { type Bulk, canCancel, canRetry, type JobRow, type JobsFilter } from "@/api/model";
import { keys } from "@/api/queries";
import { csvHead, csvRow, toCsv, toJson } from "@/components/jobs/export";
import { toast } from "@/components/Toast";
import { download } from "@/lib/download";
import { plural } from "@/lib/format";

export type Action = "cancel" | "retry";

const DONE: Record<Action, string> = { cancel: "cancelled", retry: "retried" };
const AT_ONCE = 6;
/** More than that is a case for `stoker export`. */
export const EXPORT_MOST = 100_000;

export function useJobActions() {
  const client = useQueryClient();
  const [busy, setBusy] = useState(false);

  async function during<T>(work: () => Promise<T>): Promise<T | null> {
    setBusy(true);
    try {
      return await work();
    } catch (error) {
      toast.error(error);
      return null;
    } finally {
      setBusy(false);
      void client.invalidateQueries({ queryKey: keys.jobs });
    }
  }

  const change = (action: Action, rows: readonly JobRow[]) =>
    during(async () => {
      const able = action === "cancel" ? canCancel : canRetry;
      const call = action === "cancel" ? api.cancelJob : api.retryJob;
      const chosen = rows.filter((row) => able(row.status));
      const failures = await eachOf(chosen, (row) => call(row.id));
      const done = chosen.length - failures.length;
      const skipped = rows.length - chosen.length;
      if (done)
        toast.done(
          `${plural(done, "job")} ${DONE[action]}`,
          skipped ? `${plural(skipped, "job")} left as ${skipped === 1 ? "it was" : "they were"}` : undefined,
        );
      if (failures[0] !== undefined) throw failures[0];
    });

  const changeAll = (action: Action, filter: JobsFilter): Promise<Bulk | null> =>
    during(() => api.startBulk(action, filter));

  const exportRows = (rows: readonly JobRow[], format: "csv" | "json") =>
    during(async () => {
      const jobs: Record<string, unknown>[] = [];
      const failures = await eachOf(rows, async (row, index) => {
        jobs[index] = { ...(await api.getRawJob(row.id)) };
      });
      if (failures[0] !== undefined) throw failures[0];
      save(format, [format === "csv" ? toCsv(jobs) : toJson(jobs)]);
    });

  /** Page by page, so that a long list is never in memory as objects. */
  const exportAll = (filter: JobsFilter, format: "csv" | "json") =>
    during(async () => {
      const parts: string[] = [format === "csv" ? csvHead() : "["];
      let cursor: string | null = null;
      let seen = 0;
      do {
        const page = await api.exportPage(filter, 1000, cursor);
        for (const job of page.jobs) {
          if (format === "csv") parts.push(csvRow({ ...job }));
          else parts.push(`${seen ? "," : ""}\n${formatExact(job)}`);
          seen++;
        }
        cursor = page.nextCursor;
      } while (cursor !== null && seen < EXPORT_MOST);
      if (format === "json") parts.push("\n]\n");
      save(format, parts);
      toast.done(
        `${plural(seen, "job")} exported`,
        cursor === null ? undefined : "There are more; `stoker export` writes them all.",
      );
    });

  return { busy, change, changeAll, exportRows, exportAll };
}

function save(format: "csv" | "json", parts: string[]) {
  const stamp = new Date().toISOString().slice(0, 19).replaceAll(":", "-");
  download(`stoker-jobs-${stamp}.${format}`, parts, format === "csv" ? "text/csv" : "application/json");
}

/** A few at a time; what failed is returned. */
async function eachOf<T>(
  items: readonly T[],
  work: (item: T, index: number) => Promise<unknown>,
): Promise<unknown[]> {
  const failures: unknown[] = [];
  let next = 0;
  const run = async () => {
    while (next < items.length) {
      const index = next++;
      try {
        await work(items[index] as T, index);
      } catch (error) {
        failures.push(error);
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, items.length) }, run));
  return failures;
}
