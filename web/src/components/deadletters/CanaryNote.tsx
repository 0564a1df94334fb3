import type { ReactNode } from "react";
import { Icon, type IconName } from "@/components/Icon";
import { cx } from "@/lib/cx";
import type { CanaryState } from "./groups";

const LOOKS: Record<CanaryState, { icon: IconName; color: string; text: string }> = {
  waiting: { icon: "more", color: "text-queued", text: "waits for a worker" },
  running: { icon: "play", color: "text-running", text: "runs" },
  passed: { icon: "check", color: "text-good", text: "completed: the rest may work as well" },
  failed: { icon: "warning", color: "text-bad", text: "failed again" },
};

/** What became of the one job that was run again. */
export function CanaryNote({ state, job }: { state: CanaryState; job: ReactNode }) {
  const { icon, color, text } = LOOKS[state];
  return (
    <p role="status" data-canary={state} className="flex min-w-0 items-center gap-1.5 text-xs">
      <span className={cx(color, state === "running" && "pulse")}>
        <Icon name={icon} size={14} />
      </span>
      <span className="text-muted">Tried {job}:</span> <span className={color}>{text}</span>
    </p>
  );
}
