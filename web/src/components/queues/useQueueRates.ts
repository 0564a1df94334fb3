/** Rates of the queues, kept while the page is open. */

import { useEffect, useState } from "react";
import { live } from "@/live/live";
import { type Sample, sampleOf, withSample } from "./queueRates";

export function useQueueHistory(): readonly Sample[] {
  const [history, setHistory] = useState<readonly Sample[]>([]);
  useEffect(
    () =>
      live.subscribe((state, before) => {
        const { updatedAt, queues } = state;
        if (updatedAt === null || queues === null || updatedAt === before.updatedAt) return;
        setHistory((known) => withSample(known, sampleOf(updatedAt, queues)));
      }),
    [],
  );
  return history;
}
