import { type ReactNode, useEffect, useRef, useState } from "react";
import { Button, type ButtonProps } from "./Button";

interface PopoverProps {
  button: ButtonProps;
  label: string;
  children: (close: () => void) => ReactNode;
}

/** Something small that opens below a button and closes on Escape, or when one goes elsewhere. */
export function Popover({ button, label, children }: PopoverProps) {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const away = (event: Event) => {
      if (!box.current?.contains(event.target as Node)) setOpen(false);
    };
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== "Escape") return;
      setOpen(false);
      box.current?.querySelector("button")?.focus();
    };
    document.addEventListener("pointerdown", away);
    document.addEventListener("focusin", away);
    document.addEventListener("keydown", onKey);
    return () => {
      document.removeEventListener("pointerdown", away);
      document.removeEventListener("focusin", away);
      document.removeEventListener("keydown", onKey);
    };
  }, [open]);
  return (
    <div ref={box} className="relative">
      <Button {...button} aria-expanded={open} onClick={() => setOpen(!open)} />
      {open && (
        <div
          role="group"
          aria-label={label}
          className="absolute top-full right-0 z-30 mt-1 min-w-44 rounded-lg border border-line bg-raised p-1.5 shadow-high rise"
        >
          {children(() => setOpen(false))}
        </div>
      )}
    </div>
  );
}
