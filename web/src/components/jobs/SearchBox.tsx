import { type KeyboardEvent, type Ref, useId, useImperativeHandle, useMemo, useRef, useState } from "react";
import { Button } from "@/components/Button";
import { Icon } from "@/components/Icon";
import { cx } from "@/lib/cx";
import { complete, type Known, take } from "@/search/complete";

export interface SearchBoxHandle {
  focus: () => void;
}

interface SearchBoxProps {
  ref?: Ref<SearchBoxHandle>;
  value: string;
  known: Known;
  /** What the server does not understand of it. */
  mistakes: readonly string[];
  onChange: (text: string) => void;
}

/** The search with its completion, and what is wrong with it. */
export function SearchBox({ ref, value, known, mistakes, onChange }: SearchBoxProps) {
  const input = useRef<HTMLInputElement>(null);
  const [caret, setCaret] = useState(value.length);
  const [open, setOpen] = useState(false);
  const [active, setActive] = useState(-1);
  const listId = useId();
  const noteId = useId();
  useImperativeHandle(ref, () => ({
    focus: () => {
      input.current?.focus();
      input.current?.select();
    },
  }));
  const completion = useMemo(
    () => (open ? complete(value, caret, known) : null),
    [open, value, caret, known],
  );
  const options = completion?.options ?? [];
  const choose = (index: number) => {
    const option = options[index];
    if (!completion || !option) return;
    const taken = take(value, completion, option.insert);
    onChange(taken.text);
    setCaret(taken.caret);
    setActive(-1);
    requestAnimationFrame(() => input.current?.setSelectionRange(taken.caret, taken.caret));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") {
      if (completion) setOpen(false);
      else input.current?.blur();
    } else if (completion && event.key === "ArrowDown") setActive((active + 1) % options.length);
    else if (completion && event.key === "ArrowUp") setActive((active - 1 + options.length) % options.length);
    else if (completion && event.key === "Tab" && !event.shiftKey) choose(Math.max(0, active));
    else if (event.key === "Enter") {
      if (completion && active >= 0) choose(active);
      else {
        setOpen(false);
        input.current?.blur();
      }
    } else return;
    event.preventDefault();
  };
  return (
    <div className="relative min-w-0 flex-1">
      <span className="pointer-events-none absolute top-[7px] left-2.5 text-muted">
        <Icon name="search" />
      </span>
      <input
        ref={input}
        role="combobox"
        aria-label="Search jobs"
        aria-expanded={completion !== null}
        aria-controls={listId}
        aria-autocomplete="list"
        aria-activedescendant={active >= 0 ? `${listId}-${active}` : undefined}
        aria-invalid={mistakes.length > 0}
        aria-describedby={noteId}
        autoComplete="off"
        autoCapitalize="off"
        spellCheck={false}
        placeholder="status:failed type:resize age:>10m, or words of an id, name, type or error"
        className="field w-full pr-8 pl-8"
        value={value}
        onChange={(event) => {
          onChange(event.target.value);
          setCaret(event.target.selectionStart ?? event.target.value.length);
          setOpen(true);
          setActive(-1);
        }}
        onSelect={(event) => setCaret(event.currentTarget.selectionStart ?? 0)}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onKeyDown={onKeyDown}
      />
      {value ? (
        <span className="absolute top-[3px] right-1">
          <Button
            tone="ghost"
            size="sm"
            icon="close"
            aria-label="Clear the search"
            onClick={() => onChange("")}
          />
        </span>
      ) : (
        <kbd aria-hidden="true" className="absolute top-1.5 right-2 max-md:hidden">
          /
        </kbd>
      )}
      <div
        id={listId}
        role="listbox"
        aria-label="Completions"
        hidden={!completion}
        className="absolute top-full left-0 z-30 mt-1 w-[min(100%,420px)] rounded-lg border border-line bg-raised p-1 shadow-high"
      >
        {options.map((option, index) => (
          <div
            key={option.text}
            id={`${listId}-${index}`}
            role="option"
            tabIndex={-1}
            aria-selected={index === active}
            onMouseMove={() => setActive(index)}
            onMouseDown={(event) => {
              // Before the input loses the focus and the list goes away.
              event.preventDefault();
              choose(index);
            }}
            className={cx("flex h-7 items-center gap-3 rounded-md px-2.5", index === active && "bg-hover")}
          >
            <span className="clip font-mono text-xs">{option.text}</span>
            <span className="clip ml-auto text-xs text-muted">{option.detail}</span>
          </div>
        ))}
      </div>
      <p id={noteId} role="status" className={cx("wrap-any text-xs text-bad", mistakes.length > 0 && "pt-1")}>
        {mistakes.join(" ")}
      </p>
    </div>
  );
}
