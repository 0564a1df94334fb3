import type { Job } from "@/api/model";
import { Meter } from "@/components/Meter";
import { Panel } from "@/components/Panel";
import { bytes, duration, plural } from "@/lib/format";

/** What the last attempt used of what it was given. */
export function ResourcesPanel({ job }: { job: Job }) {
  const { cpuSec, runSec, peakMemoryKb, memoryMb, timeoutSec } = job;
  const threads = job.threadsGranted ?? job.threadDemand;
  const limit = memoryMb === null ? null : memoryMb * 1024;
  return (
    <Panel title="Resources">
      <dl className="flex flex-col gap-3">
        <Row
          name="CPU"
          value={cpuSec === null ? "–" : duration(cpuSec)}
          note={cpuSec !== null && runSec ? `${Math.round((cpuSec / runSec) * 100)} % of one core` : null}
          meter={cpuSec !== null && runSec ? { value: cpuSec, max: runSec * threads } : null}
        />
        <Row
          name="Peak memory"
          value={peakMemoryKb === null ? "–" : bytes(peakMemoryKb * 1024)}
          note={memoryMb === null ? null : `of ${memoryMb} MB`}
          meter={peakMemoryKb !== null && limit !== null ? { value: peakMemoryKb, max: limit } : null}
        />
        <Row
          name="Threads"
          value={plural(threads, "thread")}
          note={threads < job.threadDemand ? `asked for ${job.threadDemand}` : null}
        />
        <Row
          name="Timeout"
          value={timeoutSec === null ? "none" : duration(timeoutSec)}
          meter={timeoutSec !== null && runSec !== null ? { value: runSec, max: timeoutSec } : null}
        />
      </dl>
    </Panel>
  );
}

interface RowProps {
  name: string;
  value: string;
  note?: string | null;
  meter?: { value: number; max: number } | null;
}

function Row({ name, value, note, meter }: RowProps) {
  return (
    <div className="grid grid-cols-[auto_minmax(0,1fr)] gap-x-3">
      <dt className="text-muted">{name}</dt>
      <dd className="text-right">
        {value}
        {note && <span className="text-muted">, {note}</span>}
      </dd>
      {meter && (
        <dd className="col-span-2">
          <Meter
            value={meter.value}
            max={meter.max}
            label={name}
            tone={meter.value > meter.max * 0.9 ? "warn" : "running"}
            className="mt-1"
          />
        </dd>
      )}
    </div>
  );
}
