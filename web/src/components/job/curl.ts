/** The request that submits a job like this one, for a shell. */

import type { Job, JobSpec } from "@/api/model";
import { curl } from "@/components/submit/snippets";

const hasAny = (pairs: Record<string, string>) => Object.keys(pairs).length > 0;

/** What its submitter said, without what goes without saying. */
export function specOf(job: Job): JobSpec {
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
    ...(job.extras.uniqueKey === null ? {} : { unique_key: job.extras.uniqueKey }),
    ...(job.extras.softTimeoutSec === null ? {} : { soft_timeout_sec: job.extras.softTimeoutSec }),
    ...(hasAny(job.labels) ? { labels: job.labels } : {}),
    ...(hasAny(job.metadata) ? { metadata: job.metadata } : {}),
  };
}

export const asCurl = (job: Job, origin: string, withToken: boolean): string =>
  curl(specOf(job), origin, withToken);
