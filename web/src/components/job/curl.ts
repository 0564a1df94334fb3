/** The request that submits a job like this one, for a shell. */

import { formatExact } from "@/api/json";
import type { Job } from "@/api/model";

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

const hasAny = (pairs: Record<string, string>) => Object.keys(pairs).length > 0;

export function specOf(job: Job): Record<string, unknown> {
  return {
    type: job.type,
    payload: job.payload,
    ...(job.name === null ? {} : { name: job.name }),
    ...(job.queue === "default" ? {} : { queue: job.queue }),
    priority: job.priority,
    ...(job.threadDemand === 1 ? {} : { thread_demand: job.threadDemand }),
    ...(job.timeoutSec === null ? {} : { timeout_sec: job.timeoutSec }),
    ...(job.memoryMb === null ? {} : { memory_mb: job.memoryMb }),
    ...(job.maxAttempts === null ? {} : { max_attempts: job.maxAttempts }),
    ...(hasAny(job.labels) ? { labels: job.labels } : {}),
    ...(hasAny(job.metadata) ? { metadata: job.metadata } : {}),
  };
}

export function asCurl(job: Job, origin: string, withToken: boolean): string {
  const parts = [
    `curl -X POST ${quoted(`${origin}/jobs`)}`,
    // Never the token itself: what is copied is pasted where others read it.
    ...(withToken ? [`-H "authorization: Bearer $STOKER_TOKEN"`] : []),
    "-H 'content-type: application/json'",
    `--data-raw ${quoted(formatExact(specOf(job)))}`,
  ];
  return parts.join(" \\\n  ");
}
