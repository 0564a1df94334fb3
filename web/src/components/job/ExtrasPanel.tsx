import type { ReactNode } from "react";
import { formatExact } from "@/api/json";
import type { Extras } from "@/api/model";
import { Panel } from "@/components/Panel";
import { Time } from "@/components/Time";
import { duration } from "@/lib/format";

interface ExtrasPanelProps {
  extras: Extras;
  /** The schedule, linked; components know no URLs. */
  scheduleLink: (name: string) => ReactNode;
}

/** The optional features that the job uses; nothing where it uses none. */
export function ExtrasPanel({ extras, scheduleLink }: ExtrasPanelProps) {
  const rows = rowsOf(extras, scheduleLink);
  if (rows.length === 0) return null;
  return (
    <Panel title="Rules">
      <dl className="flex flex-col gap-1.5">
        {rows.map(([name, value]) => (
          <div key={name} className="grid grid-cols-[auto_minmax(0,1fr)] gap-x-3">
            <dt className="text-muted">{name}</dt>
            <dd className="wrap-any text-right">{value}</dd>
          </div>
        ))}
      </dl>
    </Panel>
  );
}

function rowsOf(extras: Extras, scheduleLink: ExtrasPanelProps["scheduleLink"]): [string, ReactNode][] {
  const code = (text: string) => <code className="font-mono text-xs">{text}</code>;
  const rows: [string, ReactNode][] = [];
  const add = <T,>(name: string, value: T | null, show: (value: T) => ReactNode) => {
    if (value !== null) rows.push([name, show(value)]);
  };
  const time = (at: number) => <Time at={at} />;
  add("Schedule", extras.schedule, scheduleLink);
  add("Scheduled for", extras.scheduledFor, time);
  add("Unique key", extras.uniqueKey, code);
  add("Holds the key until", extras.uniqueKey && extras.uniqueUntil, (until) => `it has ${until}`);
  add("Must start by", extras.expiresAt, time);
  add("Must end by", extras.deadlineAt, time);
  add("Soft timeout", extras.softTimeoutSec, duration);
  add("Retry", extras.retry, (retry) => code(formatExact(retry)));
  add("Snoozed", extras.snoozes || null, (times) => (times === 1 ? "once" : `${times} times`));
  add("Kept for", extras.keepSec, (sec) => (sec === 0 ? "no time once it has ended" : duration(sec)));
  add("Notifies", extras.notifyUrl, code);
  return rows;
}
