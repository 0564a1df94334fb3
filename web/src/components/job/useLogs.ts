/** What a job writes, as it writes it: one request waits for the next piece, then the next one. */

import { useEffect, useRef, useState } from "react";
import { getLogs } from "@/api/endpoints";
import { useVisible } from "@/lib/visible";
import { append, EMPTY, type LogBook } from "./logLines";

const WAIT_SEC = 25;
const AGAIN_MS = 1500;

export interface LogsState {
  book: LogBook;
  /** Some was written and not kept. */
  cut: boolean;
  writtenBytes: number;
  loaded: boolean;
  error: unknown;
}

const NOTHING: LogsState = { book: EMPTY, cut: false, writtenBytes: 0, loaded: false, error: null };

/** `claimId` and `final`: a job that runs again, or has just ended, is read on from where it was. */
export function useLogs(id: string, claimId: number, final: boolean): LogsState {
  const [state, setState] = useState<LogsState>(NOTHING);
  const visible = useVisible();
  const place = useRef({ id, position: 0 });
  // biome-ignore lint/correctness/useExhaustiveDependencies: another claim or its end is a reason to read on.
  useEffect(() => {
    if (place.current.id !== id) {
      place.current = { id, position: 0 };
      setState(NOTHING);
    }
    if (!visible) return;
    const stop = new AbortController();
    void read(id, place.current, stop.signal, setState);
    return () => stop.abort();
  }, [id, visible, claimId, final]);
  return state;
}

type Change = (change: (state: LogsState) => LogsState) => void;

async function read(
  id: string,
  place: { position: number },
  signal: AbortSignal,
  change: Change,
): Promise<void> {
  let wait = 0;
  while (!signal.aborted) {
    try {
      const logs = await getLogs(id, { after: place.position, wait }, signal);
      if (signal.aborted) return;
      place.position = Math.max(place.position, logs.position);
      change((state) => ({
        book: append(state.book, logs.entries),
        cut: logs.cut,
        writtenBytes: logs.writtenBytes,
        loaded: true,
        error: null,
      }));
      if (logs.ended && !logs.more) return;
      wait = logs.more ? 0 : WAIT_SEC;
    } catch (error) {
      if (signal.aborted) return;
      change((state) => ({ ...state, error }));
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }
}
