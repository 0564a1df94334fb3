import { useRouterState } from "@tanstack/react-router";
import { useEffect } from "react";
import { compact } from "@/lib/format";
import { useLive } from "@/live/live";
import { PAGES } from "./pages";

/** `(3 failing) Jobs · Stoker`: what stands in the dead letters shows in a tab that nobody looks at. */
export function titleOf(page: string | undefined, failing: number, down: boolean): string {
  const parts = [page ? `${page} · Stoker` : "Stoker"];
  if (down) parts.unshift("(unreachable)");
  else if (failing > 0) parts.unshift(`(${compact(failing)} failing)`);
  return parts.join(" ");
}

export function useDocumentTitle(): void {
  const path = useRouterState({ select: (state) => state.location.pathname });
  const failing = useLive((state) => state.stats?.deadLetters ?? 0);
  const down = useLive((state) => state.phase === "unreachable");
  const page = PAGES.find(({ to }) => (to === "/" ? path === "/" : path.startsWith(to)))?.label;
  useEffect(() => {
    document.title = titleOf(page, failing, down);
  }, [page, failing, down]);
}
