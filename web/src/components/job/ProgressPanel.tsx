import type { Progress } from "@/api/model";
import { Meter } from "@/components/Meter";
import { Panel } from "@/components/Panel";
import { count } from "@/lib/format";

/** How far the job says it is. */
export function ProgressPanel({ progress }: { progress: Progress }) {
  const { done, total, percent, message } = progress;
  return (
    <Panel
      title="Progress"
      actions={percent !== null && <span className="font-semibold">{Math.round(percent)} %</span>}
    >
      {percent !== null && <Meter value={percent} max={100} label="Progress" className="h-2" />}
      <p className="wrap-any mt-2 flex justify-between gap-3 text-muted">
        <span className="wrap-any">{message}</span>
        <span className="shrink-0">
          {count(done)}
          {total !== null && ` of ${count(total)}`}
        </span>
      </p>
    </Panel>
  );
}
