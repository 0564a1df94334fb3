import { describe } from "@/api/problem";
import { Button } from "./Button";
import { Icon } from "./Icon";

/** What went wrong and what to do, in place of what could not be shown. */
export function ErrorNote({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const { title, detail, next, requestId } = describe(error);
  return (
    <div role="alert" className="flex gap-3 rounded-lg border border-line bg-panel p-4">
      <span className="mt-0.5 text-bad">
        <Icon name="warning" size={18} />
      </span>
      <div className="min-w-0 flex-1">
        <p className="font-semibold">{title}</p>
        <p className="wrap-any text-muted">{detail}</p>
        {next && <p className="text-muted">{next}</p>}
        {requestId && <p className="mt-1 font-mono text-2xs text-faint">request {requestId}</p>}
      </div>
      {onRetry && (
        <Button icon="retry" onClick={onRetry}>
          Try again
        </Button>
      )}
    </div>
  );
}
