/** The one live store of this tab, and how components read it. */

import type { QueryClient } from "@tanstack/react-query";
import { useCallback, useRef, useSyncExternalStore } from "react";
import { share } from "./share";
import type { LiveState } from "./state";
import { LiveStore } from "./store";
import { syncQueries } from "./sync";

export const live = new LiveStore();

/** Connect, once, for the life of the page. Returns how to stop. */
export function startLive(client: QueryClient): () => void {
  const stop = new AbortController();
  const unsync = syncQueries(live, client);
  share({
    state: () => {
      live.flush();
      return live.state;
    },
    emit: live.emit,
    adopt: live.adopt,
    signal: stop.signal,
  });
  return () => {
    stop.abort();
    unsync();
  };
}

/** A part of the live state; renders when that part is another one (compared with `Object.is`). */
export function useLive<T>(select: (state: LiveState) => T): T {
  const selectRef = useRef(select);
  selectRef.current = select;
  const snapshot = useCallback(() => selectRef.current(live.state), []);
  return useSyncExternalStore(live.subscribe, snapshot);
}

/** Since when the server does not answer, by this computer's clock; null while it does, or was lost only a moment ago. */
export const useAwaySince = (): number | null =>
  useLive((state) => (state.phase === "unreachable" ? state.downSince : null));

/** For `refetchInterval`: nothing while the stream is up, else every few seconds. */
export function usePolling(ms = 3000): number | false {
  const isLive = useLive((state) => state.phase === "live");
  return isLive ? false : ms;
}
