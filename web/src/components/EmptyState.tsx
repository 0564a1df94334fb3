import type { ReactNode } from "react";
import { Command } from "./Command";
import { Icon, type IconName } from "./Icon";

interface EmptyStateProps {
  icon?: IconName;
  title: string;
  children?: ReactNode;
  /** The command that fills what is empty. */
  command?: string;
  action?: ReactNode;
}

export function EmptyState({ icon, title, children, command, action }: EmptyStateProps) {
  return (
    <div className="flex flex-col items-center gap-3 px-4 py-10 text-center">
      {icon && (
        <span className="grid size-10 place-items-center rounded-full bg-sunken text-muted">
          <Icon name={icon} size={18} />
        </span>
      )}
      <p className="text-base font-semibold">{title}</p>
      {children && <div className="max-w-md text-muted">{children}</div>}
      {command && <Command text={command} />}
      {action}
    </div>
  );
}
