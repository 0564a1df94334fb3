import { formatExact } from "@/api/json";
import type { JobError } from "@/api/model";
import { CopyButton } from "@/components/CopyButton";
import { Panel } from "@/components/Panel";

/** Why it failed: the type, what it says, and from where. */
export function ErrorPanel({ error, title }: { error: JobError; title: string }) {
  const whole = error.traceback ?? formatExact(error.raw, 2);
  const more = error.traceback === null && isMoreThanTold(error.raw);
  return (
    <Panel title={title} actions={<CopyButton text={whole} label="Copy the error" />}>
      <p className="wrap-any">
        {error.type && <span className="font-mono font-semibold text-failed">{error.type}</span>}
        {error.type && error.message && <span className="text-faint">: </span>}
        <span className="whitespace-pre-wrap">{error.message}</span>
      </p>
      {(error.traceback || more) && (
        <pre
          // biome-ignore lint/a11y/noNoninteractiveTabindex: whoever has no mouse scrolls it with the keyboard.
          tabIndex={0}
          role="region"
          aria-label="Traceback"
          className="wrap-any mt-3 max-h-80 overflow-y-auto rounded-md border border-line bg-sunken p-3 font-mono text-xs leading-5 whitespace-pre-wrap"
        >
          {whole}
        </pre>
      )}
    </Panel>
  );
}

/** Exit codes, signals and the like stand beside type and message. */
function isMoreThanTold(raw: unknown): boolean {
  return (
    typeof raw === "object" &&
    raw !== null &&
    Object.keys(raw).some((key) => key !== "type" && key !== "message")
  );
}
