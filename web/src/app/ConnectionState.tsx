import { cx } from "@/lib/cx";
import { clock, exact } from "@/lib/format";
import { useLive } from "@/live/live";
import type { Phase } from "@/live/state";

const LOOKS: Record<Phase, { color: string; text: string; hint: string }> = {
  connecting: { color: "text-muted", text: "connecting…", hint: "Opening the live stream." },
  live: { color: "text-good", text: "live", hint: "Changes arrive as they happen." },
  reconnecting: { color: "text-warn", text: "reconnecting…", hint: "The connection was lost a moment ago." },
  unreachable: { color: "text-bad", text: "server unreachable", hint: "Trying again by itself." },
  unauthorized: { color: "text-warn", text: "token needed", hint: "The server asks for its token." },
  unsupported: {
    color: "text-warn",
    text: "polling",
    hint: "This server has no live stream; numbers are fetched every few seconds.",
  },
};

/** Whether what is shown is true now. */
export function ConnectionState() {
  const phase = useLive((state) => state.phase);
  const since = useLive((state) => state.downSince);
  const { color, text, hint } = LOOKS[phase];
  const down = phase === "unreachable" && since !== null;
  return (
    <span
      role="status"
      aria-live="polite"
      data-phase={phase}
      title={since === null ? hint : `${hint} Lost at ${exact(since)}.`}
      className={cx("inline-flex items-center gap-1.5 text-xs whitespace-nowrap", color)}
    >
      <span
        aria-hidden="true"
        className={cx(
          "size-2 rounded-full bg-current",
          phase !== "live" && phase !== "unsupported" && "pulse",
        )}
      />
      {text}
      {down && <span className="max-sm:sr-only"> since {clock(since)}</span>}
    </span>
  );
}
