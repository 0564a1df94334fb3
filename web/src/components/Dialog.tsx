import { type ReactNode, useEffect, useId, useRef } from "react";
import { createPortal } from "react-dom";
import { cx } from "@/lib/cx";
import { Button } from "./Button";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ReactNode;
  /** Buttons at the bottom right. */
  footer?: ReactNode;
  /** At the top, without a head: the command palette. */
  bare?: boolean;
  className?: string;
}

/**
 * Modal, by the browser's own dialog: focus is kept inside, Escape closes, focus returns. It hangs at the end of the page:
 * an element that is moved, as the rows of a list are, stops being modal.
 */
export function Dialog({ title, onClose, children, footer, bare = false, className }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = ref.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return createPortal(
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes it; the click is the one on the backdrop.
    <dialog
      ref={ref}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => {
        if (event.target === ref.current) onClose();
      }}
      className={cx(
        "fixed m-auto max-h-[85dvh] w-[min(92vw,480px)] rounded-lg border border-line bg-raised p-0 text-text shadow-high rise",
        bare && "mt-[12dvh]",
        className,
      )}
    >
      {bare ? (
        <>
          <h2 id={id} className="sr-only">
            {title}
          </h2>
          {children}
        </>
      ) : (
        <div className="flex max-h-[85dvh] flex-col">
          <header className="flex items-center justify-between gap-3 border-b border-line py-2 pr-2 pl-4">
            <h2 id={id} className="text-base font-semibold">
              {title}
            </h2>
            <Button tone="ghost" icon="close" aria-label="Close" onClick={onClose} />
          </header>
          <div className="min-h-0 overflow-y-auto p-4">{children}</div>
          {footer && (
            <footer className="flex justify-end gap-2 border-t border-line px-4 py-3">{footer}</footer>
          )}
        </div>
      )}
    </dialog>,
    document.body,
  );
}
