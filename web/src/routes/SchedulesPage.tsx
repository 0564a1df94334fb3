import { useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { ApiError } from "@/api/problem";
import { nextQuery, type Schedule, scheduleQuery, schedulesQuery, ticksQuery } from "@/api/schedules";
import { Page } from "@/app/Page";
import { Button } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { ErrorNote } from "@/components/ErrorNote";
import { JsonPanel } from "@/components/job/JsonPanel";
import { Panel } from "@/components/Panel";
import { Skeleton } from "@/components/Skeleton";
import { Declare } from "@/components/schedules/Declare";
import { NextList } from "@/components/schedules/NextList";
import { ScheduleCard } from "@/components/schedules/ScheduleCard";
import { TickLine } from "@/components/schedules/TickLine";
import { TickTable } from "@/components/schedules/TickTable";
import { plural } from "@/lib/format";
import { ScheduleActions } from "./ScheduleActions";
import { ScheduleEditor } from "./ScheduleEditor";

const PAGE = 50;
const MOST = 1000;

export function SchedulesPage() {
  const { name } = useSearch({ from: "/schedules" });
  return <Page>{name === undefined ? <All /> : <One key={name} name={name} />}</Page>;
}

function All() {
  const [limit, setLimit] = useState(PAGE);
  const [creating, setCreating] = useState(false);
  const list = useQuery(schedulesQuery(limit));
  const create = (
    <Button tone="primary" icon="submit" onClick={() => setCreating(true)}>
      New schedule
    </Button>
  );
  const dialog = creating && <ScheduleEditor onClose={() => setCreating(false)} />;
  if (!list.data)
    return list.error ? (
      <ErrorNote error={list.error} onRetry={() => void list.refetch()} />
    ) : (
      <>
        <Skeleton className="h-32 rounded-lg" />
        <Skeleton className="h-32 rounded-lg" />
      </>
    );
  const { schedules, nextCursor } = list.data;
  if (schedules.length === 0)
    return (
      <Panel>
        <EmptyState icon="schedules" title="No schedules yet" action={create}>
          <p className="mb-3">
            A schedule runs a job again and again. Declare it above a task in Python; a worker of the app
            applies it when it connects. Or make one here.
          </p>
          <Declare />
        </EmptyState>
        {dialog}
      </Panel>
    );
  const paused = schedules.filter((each) => each.paused).length;
  return (
    <>
      <div className="flex items-center justify-between gap-3">
        <p className="text-muted">
          {plural(schedules.length, "schedule")}
          {nextCursor !== null && " or more"}
          {paused > 0 && `, ${paused} paused`}
        </p>
        {create}
      </div>
      {schedules.map((schedule) => (
        <Card key={schedule.name} schedule={schedule} />
      ))}
      {nextCursor !== null && limit < MOST && (
        <Button
          className="self-center"
          busy={list.isPlaceholderData}
          onClick={() => setLimit(Math.min(MOST, limit + 2 * PAGE))}
        >
          Show more
        </Button>
      )}
      {dialog}
    </>
  );
}

function Card({ schedule, onDeleted }: { schedule: Schedule; onDeleted?: () => void }) {
  const next = useQuery({ ...nextQuery(schedule, 3), enabled: !schedule.paused });
  const ticks = useQuery(ticksQuery(schedule, 30));
  return (
    <ScheduleCard
      schedule={schedule}
      next={next.data}
      title={
        <Link to="/schedules" search={{ name: schedule.name }} className="hover:underline">
          {schedule.name}
        </Link>
      }
      actions={<ScheduleActions schedule={schedule} onDeleted={onDeleted} />}
      jobLink={jobLink}
      ticks={ticks.data ? <TickLine ticks={ticks.data} /> : <Skeleton className="h-5 w-24" />}
    />
  );
}

const jobLink = (id: string, children: ReactNode) => (
  <Link to="/jobs/$id" params={{ id }} className="hover:underline">
    {children}
  </Link>
);

/** A schedule by itself, with what it runs and what became of its ticks. */
function One({ name }: { name: string }) {
  const [deleted, setDeleted] = useState(false);
  const one = useQuery({ ...scheduleQuery(name), enabled: !deleted });
  const all = (
    <Link to="/schedules" search={{}} className="text-accent underline">
      All schedules
    </Link>
  );
  const gone = one.error instanceof ApiError && (one.error.status === 404 || one.error.status === 422);
  if (deleted || gone)
    return (
      <Panel>
        <EmptyState icon="schedules" title="There is no such schedule" action={all}>
          {deleted ? "It was deleted; its jobs stay: " : "It may have been deleted: "}
          <code className="wrap-any font-mono">{name.slice(0, 100)}</code>
        </EmptyState>
      </Panel>
    );
  if (!one.data)
    return one.error ? (
      <ErrorNote error={one.error} onRetry={() => void one.refetch()} />
    ) : (
      <Skeleton className="h-32 rounded-lg" />
    );
  return (
    <>
      <p>{all}</p>
      <Card schedule={one.data} onDeleted={() => setDeleted(true)} />
      <Details schedule={one.data} />
    </>
  );
}

/** What the job says, without what it leaves to the defaults. */
const withoutNulls = (job: object) =>
  Object.fromEntries(Object.entries(job).filter(([, value]) => value !== null));

function Details({ schedule }: { schedule: Schedule }) {
  const next = useQuery({ ...nextQuery(schedule, 10), enabled: !schedule.paused });
  const ticks = useQuery(ticksQuery(schedule, 100));
  return (
    <div className="grid items-start gap-3 sm:gap-4 lg:grid-cols-[minmax(0,2fr)_minmax(0,1fr)]">
      <Panel title="Ticks" flush>
        {ticks.error ? (
          <ErrorNote error={ticks.error} onRetry={() => void ticks.refetch()} />
        ) : (
          <TickTable ticks={ticks.data ?? []} timezone={schedule.timezone} jobLink={jobLink} />
        )}
      </Panel>
      <div className="flex min-w-0 flex-col gap-3 sm:gap-4">
        <Panel title="Next runs">
          <NextList times={schedule.paused ? [] : (next.data ?? [])} timezone={schedule.timezone} />
        </Panel>
        <JsonPanel title="Job" value={withoutNulls(schedule.body.job)} />
      </div>
    </div>
  );
}
