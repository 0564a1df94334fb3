/** Whether anybody can see this tab. A browser opens six connections to a server: hidden tabs leave theirs to others. */

import { useSyncExternalStore } from "react";

function subscribe(listener: () => void): () => void {
  document.addEventListener("visibilitychange", listener);
  return () => document.removeEventListener("visibilitychange", listener);
}

export const useVisible = (): boolean => useSyncExternalStore(subscribe, () => !document.hidden);
