import type { ReactNode } from "react";
import { Button } from "./Button";
import { Dialog } from "./Dialog";

interface ConfirmDialogProps {
  title: string;
  children: ReactNode;
  /** What the button does: "Cancel 12 jobs". */
  confirm: string;
  danger?: boolean;
  busy?: boolean;
  onConfirm: () => void;
  onClose: () => void;
}

/** Asks before something that cannot be taken back. */
export function ConfirmDialog({
  title,
  children,
  confirm,
  danger,
  busy,
  onConfirm,
  onClose,
}: ConfirmDialogProps) {
  return (
    <Dialog
      title={title}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Keep as is</Button>
          <Button tone={danger ? "danger" : "primary"} busy={busy ?? false} onClick={onConfirm} autoFocus>
            {confirm}
          </Button>
        </>
      }
    >
      {children}
    </Dialog>
  );
}
