/** Dark, light or as the system has it. `public/theme.js` sets it before the first paint. */

import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";

const KEY = "stoker.theme";
const listeners = new Set<() => void>();
const system = window.matchMedia?.("(prefers-color-scheme: dark)");

const notify = () => {
  for (const listener of listeners) listener();
};
system?.addEventListener?.("change", notify);

export function getTheme(): Theme {
  const theme = document.documentElement.dataset.theme;
  return theme === "dark" || theme === "light" ? theme : "system";
}

export function setTheme(theme: Theme): void {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (theme === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // Storage is off: it lasts as long as the page.
  }
  notify();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const useTheme = (): Theme => useSyncExternalStore(subscribe, getTheme);

const isDark = () => {
  const theme = getTheme();
  return theme === "dark" || (theme === "system" && (system?.matches ?? false));
};

/** What the eye sees, for what is drawn and not styled. */
export const useIsDark = (): boolean => useSyncExternalStore(subscribe, isDark);

/** A token's colour in the present theme, for canvases. */
export function tokenColor(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  probe.hidden = true;
  document.body.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color;
}
