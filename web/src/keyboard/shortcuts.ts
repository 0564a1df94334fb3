/**
 * Keys that do things. A page says what its keys do while it is shown; the layout adds those that work everywhere.
 * Sequences such as `g j` are two keys within a second. Nothing happens while somebody types or a dialog is open.
 */

import { useEffect, useRef } from "react";

export interface Shortcut {
  /** `j`, `?`, `shift+x`, `mod+k`, `g j`. */
  keys: string;
  /** What it does, for the help. */
  text: string;
  run: (event: KeyboardEvent) => void;
  /** Also while somebody types. */
  anywhere?: boolean;
}

type Group = { title: string; shortcuts: Shortcut[] };

const groups: Group[] = [];
const SEQUENCE_MS = 1000;
let prefix: { key: string; at: number } | null = null;

/** `mod` is ⌘ on a Mac and Ctrl elsewhere. Shift counts only where it does not already make another character. */
export function keyOf(
  event: Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "shiftKey" | "altKey">,
): string {
  const named = event.key.length > 1 || event.key === " ";
  const letter = /^[a-z]$/i.test(event.key);
  const parts: string[] = [];
  if (event.ctrlKey || event.metaKey) parts.push("mod");
  if (event.altKey) parts.push("alt");
  if (event.shiftKey && (named || letter)) parts.push("shift");
  parts.push(event.key === " " ? "space" : event.key.toLowerCase());
  return parts.join("+");
}

export function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable) return true;
  if (target instanceof HTMLInputElement)
    return !["checkbox", "radio", "button", "submit"].includes(target.type);
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

function find(keys: string): Shortcut | undefined {
  for (const group of groups.toReversed()) {
    const found = group.shortcuts.find((shortcut) => shortcut.keys === keys);
    if (found) return found;
  }
  return undefined;
}

function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing || ["Shift", "Control", "Alt", "Meta"].includes(event.key))
    return;
  const key = keyOf(event);
  const sequence = prefix && event.timeStamp - prefix.at < SEQUENCE_MS ? `${prefix.key} ${key}` : null;
  prefix = null;
  const shortcut = (sequence !== null ? find(sequence) : undefined) ?? find(key);
  const busy = isTyping(event.target) || document.querySelector("dialog[open]") !== null;
  if (busy && !shortcut?.anywhere) return;
  if (shortcut) {
    event.preventDefault();
    shortcut.run(event);
  } else if (groups.some((group) => group.shortcuts.some(({ keys }) => keys.startsWith(`${key} `)))) {
    prefix = { key, at: event.timeStamp };
  }
}

function add(group: Group): () => void {
  if (groups.length === 0) document.addEventListener("keydown", onKey);
  groups.push(group);
  return () => {
    groups.splice(groups.indexOf(group), 1);
    if (groups.length === 0) document.removeEventListener("keydown", onKey);
  };
}

/** What can be pressed now, for the help. */
export const currentShortcuts = (): readonly Group[] => groups;

/** Keys that work while the component is shown; later ones win over earlier ones. */
export function useShortcuts(title: string, shortcuts: Shortcut[]): void {
  const latest = useRef(shortcuts);
  latest.current = shortcuts;
  const shape = shortcuts.map(({ keys }) => keys).join(",");
  // biome-ignore lint/correctness/useExhaustiveDependencies: `shape` is when the list itself changes.
  useEffect(() => {
    const stable = latest.current.map((shortcut, index) => ({
      ...shortcut,
      run: (event: KeyboardEvent) => latest.current[index]?.run(event),
    }));
    return add({ title, shortcuts: stable });
  }, [title, shape]);
}

const isMac = /Mac|iPhone|iPad/.test(navigator.platform);
const NAMES: Record<string, string> = {
  mod: isMac ? "⌘" : "Ctrl",
  shift: "Shift",
  alt: isMac ? "⌥" : "Alt",
  escape: "Esc",
  enter: "Enter",
  space: "Space",
  arrowdown: "↓",
  arrowup: "↑",
};

/** `mod+k` → [["⌘", "K"]], `g j` → [["G"], ["J"]] */
export function keyNames(keys: string): string[][] {
  return keys
    .split(" ")
    .map((key) =>
      key.split("+").map((part) => NAMES[part] ?? (/^[a-z]$/.test(part) ? part.toUpperCase() : part)),
    );
}
