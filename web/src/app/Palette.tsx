import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, useId, useMemo, useState } from "react";
import { Dialog } from "@/components/Dialog";
import { Icon, type IconName } from "@/components/Icon";
import { Keys } from "@/components/Keys";
import { cx } from "@/lib/cx";
import { setTheme } from "@/lib/theme";
import { PAGES } from "./pages";

interface Entry {
  text: string;
  icon: IconName;
  keys?: string;
  run: () => void;
}

const JOB_ID = /^[0-9a-f]{8}-[0-9a-f-]{27}$/i;

/** ⌘K: go anywhere, find a job, change the theme. */
export function Palette({ onClose, onHelp }: { onClose: () => void; onHelp: () => void }) {
  const navigate = useNavigate();
  const [text, setText] = useState("");
  const [active, setActive] = useState(0);
  const listId = useId();
  const entries = useMemo((): Entry[] => {
    const query = text.trim();
    const go = PAGES.map(({ to, label, icon, key }) => ({
      text: `Go to ${label}`,
      icon,
      keys: `g ${key}`,
      run: () => void navigate({ to }),
    }));
    const show = (q: string, label: string): Entry => ({
      text: label,
      icon: "jobs",
      run: () => void navigate({ to: "/jobs", search: { q } }),
    });
    const fixed: Entry[] = [
      ...go,
      show("status:failed", "Show failed jobs"),
      show("status:running", "Show running jobs"),
      show("status:queued age:>10m", "Show jobs queued for longer than 10 minutes"),
      { text: "Theme: dark", icon: "moon", run: () => setTheme("dark") },
      { text: "Theme: light", icon: "sun", run: () => setTheme("light") },
      { text: "Theme: as the system", icon: "system", run: () => setTheme("system") },
      { text: "Keyboard shortcuts", icon: "keyboard", keys: "?", run: onHelp },
    ];
    const words = query.toLowerCase().split(/\s+/);
    const matching = fixed.filter((entry) => words.every((word) => entry.text.toLowerCase().includes(word)));
    if (!query) return matching;
    if (JOB_ID.test(query))
      return [
        {
          text: `Open job ${query}`,
          icon: "external",
          run: () => void navigate({ to: "/jobs/$id", params: { id: query } }),
        },
      ];
    return [...matching, show(query, `Search jobs: ${query}`)];
  }, [text, navigate, onHelp]);
  const chosen = Math.min(active, entries.length - 1);
  const run = (entry: Entry | undefined) => {
    if (!entry) return;
    onClose();
    entry.run();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setActive((chosen + 1) % entries.length);
    else if (event.key === "ArrowUp") setActive((chosen - 1 + entries.length) % entries.length);
    else if (event.key === "Enter") run(entries[chosen]);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title="Go to or do" onClose={onClose} bare className="w-[min(94vw,560px)]">
      <div className="flex items-center gap-2 border-b border-line px-4">
        <span className="text-muted">
          <Icon name="search" />
        </span>
        <input
          role="combobox"
          aria-expanded="true"
          aria-controls={listId}
          aria-activedescendant={`${listId}-${chosen}`}
          aria-label="Go to, do, or find a job by id or name"
          placeholder="A page, a job's id or name, status:failed…"
          className="h-12 flex-1 bg-transparent text-base outline-none"
          autoFocus
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            setActive(0);
          }}
          onKeyDown={onKeyDown}
        />
      </div>
      <div id={listId} role="listbox" aria-label="Choices" className="max-h-[50dvh] overflow-y-auto p-1.5">
        {entries.map((entry, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the input above has the keyboard.
          <div
            key={entry.text}
            id={`${listId}-${index}`}
            role="option"
            tabIndex={-1}
            aria-selected={index === chosen}
            onMouseMove={() => setActive(index)}
            onClick={() => run(entry)}
            className={cx("flex h-9 items-center gap-2.5 rounded-md px-2.5", index === chosen && "bg-hover")}
          >
            <span className={index === chosen ? "text-accent" : "text-muted"}>
              <Icon name={entry.icon} />
            </span>
            <span className="clip flex-1">{entry.text}</span>
            {entry.keys && <Keys keys={entry.keys} />}
          </div>
        ))}
      </div>
    </Dialog>
  );
}
