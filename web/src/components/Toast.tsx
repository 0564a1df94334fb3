import { type ReactNode, useSyncExternalStore } from "react";
import { describe } from "@/api/problem";
import { cx } from "@/lib/cx";
import { Button } from "./Button";
import { Icon } from "./Icon";

interface Note {
  id: number;
  tone: "good" | "bad";
  title: string;
  detail?: ReactNode;
}

let notes: readonly Note[] = [];
let nextId = 1;
const listeners = new Set<() => void>();

function set(next: readonly Note[]) {
  notes = next;
  for (const listener of listeners) listener();
}

const dismiss = (id: number) => set(notes.filter((note) => note.id !== id));

function add(note: Omit<Note, "id">, ms: number) {
  const id = nextId++;
  set([...notes.slice(-3), { ...note, id }]);
  setTimeout(() => dismiss(id), ms);
}

/** Says for a moment what was done, or what could not be. */
export const toast = {
  done: (title: string, detail?: ReactNode) => add({ tone: "good", title, detail }, 5000),
  error: (error: unknown) => {
    const { title, detail, next } = describe(error);
    add({ tone: "bad", title, detail: [detail, next].filter(Boolean).join(" ") }, 9000);
  },
};

function subscribe(listener: () => void) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function Toasts() {
  const shown = useSyncExternalStore(subscribe, () => notes);
  return (
    <div
      role="status"
      aria-live="polite"
      className="pointer-events-none fixed right-3 bottom-16 z-50 flex w-[min(92vw,360px)] flex-col gap-2 md:bottom-3"
    >
      {shown.map((note) => (
        <div
          key={note.id}
          className="pointer-events-auto flex items-start gap-2.5 rounded-lg border border-line bg-raised p-3 shadow-high rise"
        >
          <span className={cx("mt-0.5", note.tone === "good" ? "text-good" : "text-bad")}>
            <Icon name={note.tone === "good" ? "check" : "warning"} />
          </span>
          <div className="min-w-0 flex-1">
            <p className="wrap-any font-medium">{note.title}</p>
            {note.detail && <div className="wrap-any text-xs text-muted">{note.detail}</div>}
          </div>
          <Button tone="ghost" size="sm" icon="close" aria-label="Dismiss" onClick={() => dismiss(note.id)} />
        </div>
      ))}
    </div>
  );
}
