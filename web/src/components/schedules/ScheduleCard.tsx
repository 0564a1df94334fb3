import type { ReactNode } from "react";
import type { Schedule } from "@/api/schedules";
import { StatusBadge } from "@/components/StatusBadge";
import { Time } from "@/components/Time";
import { cx } from "@/lib/cx";
import { NextTimes } from "./NextTimes";
import { inWords } from "./when";

interface ScheduleCardProps {
  schedule: Schedule;
  /** Undefined until they are known. */
  next: readonly number[] | undefined;
  title: ReactNode;
  actions: ReactNode;
  /** Leads to the last job; components know no URLs. */
  jobLink: (id: string, children: ReactNode) => ReactNode;
  /** Its latest ticks, drawn. */
  ticks: ReactNode;
}

/** A schedule at a glance: when it ticks, what comes, and how it went. */
export function ScheduleCard({ schedule, next, title, actions, jobLink, ticks }: ScheduleCardProps) {
  const words = inWords(schedule);
  const lastStatus = schedule.lastStatus;
  return (
    <article
      aria-label={schedule.name}
      data-schedule={schedule.name}
      className={cx(
        "flex min-w-0 flex-col gap-3 rounded-lg border bg-panel p-4 shadow-low",
        schedule.paused ? "border-warn" : "border-line",
      )}
    >
      <header className="flex min-w-0 flex-wrap items-center justify-between gap-x-4 gap-y-2">
        <div className="flex min-w-0 flex-wrap items-center gap-x-2.5 gap-y-1">
          <h2 className="wrap-any text-base font-semibold">{title}</h2>
          {schedule.paused && (
            <Mark>
              paused {schedule.pausedByFailures && "after failures "}
              {schedule.pausedAt !== null && <Time at={schedule.pausedAt} />}
            </Mark>
          )}
          {schedule.orphaned && (
            <Mark
              title={`${schedule.app ?? "Its app"} no longer declares it. It goes on until it is deleted.`}
            >
              no longer in code
            </Mark>
          )}
        </div>
        <div className="flex flex-wrap gap-1.5">{actions}</div>
      </header>
      <dl className="grid grid-cols-2 gap-x-6 gap-y-3 lg:grid-cols-[minmax(0,5fr)_minmax(0,4fr)_minmax(0,3fr)_190px]">
        <Fact name="When" wide>
          <span className="wrap-any">{words ?? <code className="font-mono">{schedule.cron}</code>}</span>
          <span className="wrap-any block text-xs text-muted">
            {words && schedule.cron && <code className="font-mono">{schedule.cron}</code>}
            {words && schedule.cron && " · "}
            {schedule.cron !== null && `${schedule.timezone} · `}
            runs {schedule.type}
          </span>
        </Fact>
        <Fact name="Next runs">
          {schedule.paused ? (
            <span className="text-muted">none while it is paused</span>
          ) : (
            <NextTimes times={next ?? (schedule.nextRunAt === null ? [] : [schedule.nextRunAt])} />
          )}
        </Fact>
        <Fact name="Last run">
          {schedule.lastRunAt === null || schedule.lastJobId === null ? (
            <span className="text-muted">not yet</span>
          ) : (
            <>
              {lastStatus === null ? (
                <span className="text-muted">job not kept</span>
              ) : (
                jobLink(schedule.lastJobId, <StatusBadge job={{ ...PLAIN, status: lastStatus }} />)
              )}
              <span className="block text-xs text-muted">
                <Time at={schedule.lastRunAt} />
              </span>
            </>
          )}
        </Fact>
        <Fact name="Latest ticks" wide>
          {ticks}
        </Fact>
      </dl>
    </article>
  );
}

/** A schedule tells the status of its last job and nothing else of it. */
const PLAIN = { attempt: 0, maxAttempts: null, runAt: null, cancelRequestedAt: null };

/** A wide one has a line of its own where there is little room. */
const Fact = ({ name, wide = false, children }: { name: string; wide?: boolean; children: ReactNode }) => (
  <div className={cx("min-w-0", wide && "max-sm:col-span-2")}>
    <dt className="mb-0.5 text-xs text-muted">{name}</dt>
    <dd className="min-w-0">{children}</dd>
  </div>
);

const Mark = ({ title, children }: { title?: string; children: ReactNode }) => (
  <span
    title={title}
    className="shrink-0 rounded-full border border-warn px-1.5 text-2xs leading-4 font-medium text-warn"
  >
    {children}
  </span>
);
