import type { ButtonHTMLAttributes, ReactNode } from "react";
import { cx } from "@/lib/cx";
import { Icon, type IconName } from "./Icon";

type Tone = "plain" | "primary" | "danger" | "ghost";

const TONES: Record<Tone, string> = {
  plain: "bg-panel border-line-strong text-text hover:bg-hover",
  primary: "bg-accent-solid border-transparent text-on-accent font-medium hover:bg-accent-solid-hover",
  danger: "bg-panel border-line-strong text-bad hover:bg-hover",
  ghost: "border-transparent text-muted hover:bg-hover hover:text-text",
};

export interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  tone?: Tone;
  icon?: IconName;
  busy?: boolean;
  size?: "sm" | "md";
  children?: ReactNode;
}

/** Without text it is an icon alone and needs an `aria-label`. */
export function Button({
  tone = "plain",
  icon,
  busy = false,
  size = "md",
  children,
  className,
  disabled,
  ...rest
}: ButtonProps) {
  const small = size === "sm";
  return (
    <button
      type="button"
      {...rest}
      disabled={disabled || busy}
      aria-busy={busy || undefined}
      className={cx(
        "inline-flex items-center justify-center gap-1.5 rounded-md border whitespace-nowrap select-none transition-colors duration-100",
        "disabled:opacity-50 disabled:pointer-events-none",
        small ? "h-6 text-xs" : "h-[30px] text-sm",
        children ? (small ? "px-2" : "px-3") : small ? "w-6" : "w-[30px]",
        TONES[tone],
        className,
      )}
    >
      {icon && <Icon name={icon} size={small ? 13 : 15} />}
      {children}
    </button>
  );
}
