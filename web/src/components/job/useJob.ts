/** One job and what becomes of it, by its own stream; by the common one where a server has no other. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import * as convert from "@/api/convert";
import { followJob } from "@/api/endpoints";
import { parseExact } from "@/api/json";
import { isFinal, type Job } from "@/api/model";
import { ApiError } from "@/api/problem";
import { jobQuery, keys } from "@/api/queries";
import type { WireJob } from "@/api/wire";
import { useVisible } from "@/lib/visible";
import { useLive, usePolling } from "@/live/live";
import { messages } from "@/live/sse";

const AGAIN_MS = 1000;

export function useJob(id: string) {
  const client = useQueryClient();
  const polling = usePolling();
  const visible = useVisible();
  const up = useLive((state) => state.phase === "live");
  const job = useQuery({
    ...jobQuery(id),
    refetchInterval: ({ state }) => (state.data && isFinal(state.data.status) ? false : polling),
  });
  const changes = job.data !== undefined && !isFinal(job.data.status);
  useEffect(() => {
    if (!changes || !visible || !up) return;
    const stop = new AbortController();
    void follow(id, stop.signal, (next) => client.setQueryData(keys.job(id), next));
    return () => stop.abort();
  }, [id, changes, visible, up, client]);
  return job;
}

async function follow(id: string, signal: AbortSignal, set: (job: Job) => void): Promise<void> {
  while (!signal.aborted) {
    try {
      const response = await followJob(id, signal);
      for await (const { event, data } of messages(response)) {
        if (signal.aborted || event === "end") return;
        if (event === "job") set(convert.job(parseExact(data) as WireJob));
      }
    } catch (error) {
      // What the server refuses now it refuses again; the common stream still says when to look.
      if (error instanceof ApiError && error.status < 500) return;
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}
