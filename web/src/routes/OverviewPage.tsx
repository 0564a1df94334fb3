import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type ReactNode, useMemo } from "react";
import type { JobRow, Point } from "@/api/model";
import { jobsTopQuery, seriesQuery, statsQuery } from "@/api/queries";
import { Page } from "@/app/Page";
import { EmptyState } from "@/components/EmptyState";
import { ErrorNote } from "@/components/ErrorNote";
import { JobFeed } from "@/components/jobs/JobFeed";
import { OverviewCharts } from "@/components/overview/OverviewCharts";
import { StatTiles } from "@/components/overview/StatTiles";
import { endedSince, latestRates, merge, WRITTEN_MS } from "@/components/overview/series";
import { Panel } from "@/components/Panel";
import { RangePicker } from "@/components/RangePicker";
import { Skeleton } from "@/components/Skeleton";
import { useNow } from "@/lib/clock";
import { useAwaySince, useLive, usePolling } from "@/live/live";
import { rates } from "@/live/state";

const RANGES = {
  "15m": { seconds: 900, step: 10 },
  "1h": { seconds: 3600, step: 60 },
  "6h": { seconds: 21_600, step: 300 },
  "24h": { seconds: 86_400, step: 300 },
  "7d": { seconds: 604_800, step: 3600 },
} as const;
type Range = keyof typeof RANGES;
const CHOICES = Object.keys(RANGES) as Range[];

/** The stream keeps a quarter of an hour; the history is read again long before that is over. */
const HISTORY_MS = 5 * 60_000;

export function OverviewPage() {
  const search = useSearch({ from: "/" });
  const navigate = useNavigate({ from: "/" });
  const range = CHOICES.find((choice) => choice === search.range) ?? "15m";
  const past = usePast(range);
  return (
    <Page>
      <Numbers range={range} points={past.known ? past.points : null} />
      <div className="flex items-center justify-between gap-3">
        <h2 className="text-sm font-semibold text-muted">Over time</h2>
        <RangePicker
          label="Time range"
          choices={CHOICES}
          value={range}
          onChange={(next) =>
            void navigate({ search: { range: next === "15m" ? undefined : next }, replace: true })
          }
        />
      </div>
      <History range={range} past={past} />
      <div className="grid gap-3 sm:gap-4 lg:grid-cols-2">
        <Feed title="Running now" q="status:running" status="running" empty="Nothing runs" />
        <Feed title="Latest failures" q="status:failed" status="failed" empty="Nothing has failed" />
      </div>
    </Page>
  );
}

/** The chosen range: what the history has of it, and after that what the stream said. */
function usePast(range: Range) {
  const { step } = RANGES[range];
  const history = useQuery({
    ...seriesQuery({ from: range, step }),
    // What ended just before the page was opened is in no stream, and in the history a few seconds later.
    refetchInterval: ({ state }) => (state.dataUpdateCount < 2 ? WRITTEN_MS + 1000 : HISTORY_MS),
    staleTime: 0,
  });
  const live = useLive((state) => state.seconds);
  const points = useMemo(() => merge(history.data ?? null, live, step), [history.data, live, step]);
  return {
    points,
    known: history.data !== undefined,
    loading: history.isPending && !history.error,
    error: history.error,
    refetch: history.refetch,
  };
}

function Numbers({ range, points }: { range: Range; points: Point[] | null }) {
  const polling = usePolling();
  const stats = useQuery({ ...statsQuery(), refetchInterval: polling });
  const state = useLive((live) => live);
  const away = useAwaySince() !== null;
  const { step } = RANGES["15m"];
  const recent = useQuery({ ...seriesQuery({ from: "15m", step }), retry: false });
  const latest = useMemo(
    () => recent.data?.points.findLast((point) => point.runP50 !== null) ?? null,
    [recent.data],
  );
  const perSec = useMemo(
    () => rates(state) ?? latestRates(recent.data ?? null, recent.dataUpdatedAt),
    [state, recent.data, recent.dataUpdatedAt],
  );
  const now = useNow();
  const from = now - RANGES[range].seconds * 1000;
  const ended = useMemo(() => points && endedSince(points, from), [points, from]);
  if (stats.error && !stats.data)
    return <ErrorNote error={stats.error} onRetry={() => void stats.refetch()} />;
  const never = stats.data && Object.values(stats.data.counts).every((value) => value === 0);
  return (
    <>
      <StatTiles
        stats={stats.data ?? null}
        rates={away ? null : perSec}
        seconds={state.seconds}
        latest={latest}
        ended={ended}
        range={range}
        stale={away}
      />
      {never && !away && (
        <Panel>
          <EmptyState
            icon="submit"
            title="No jobs yet"
            command={`stoker submit echo '{"hello": "world"}' --wait`}
          >
            Submit the first one from a shell, or{" "}
            <Link to="/submit" className="text-accent underline">
              with the form
            </Link>
            .
          </EmptyState>
        </Panel>
      )}
    </>
  );
}

function History({ range, past }: { range: Range; past: ReturnType<typeof usePast> }) {
  const { seconds: length, step } = RANGES[range];
  const now = useNow();
  if (past.loading) return <Skeleton className="h-96 rounded-lg" />;
  if (past.error && !past.points.length)
    return <ErrorNote error={past.error} onRetry={() => void past.refetch()} />;
  return <OverviewCharts points={past.points} stepSec={step} from={now - length * 1000} to={now} />;
}

interface FeedProps {
  title: string;
  q: string;
  status: "running" | "failed";
  empty: string;
}

const link = (row: JobRow, children: ReactNode) => (
  <Link to="/jobs/$id" params={{ id: row.id }} className="hover:underline">
    {children}
  </Link>
);

function Feed({ title, q, status, empty }: FeedProps) {
  const polling = usePolling();
  const jobs = useQuery({ ...jobsTopQuery({ status: [status] }, 8), refetchInterval: polling });
  return (
    <Panel
      title={title}
      flush
      actions={
        <Link to="/jobs" search={{ q }} className="text-xs text-accent hover:underline">
          Show all
        </Link>
      }
    >
      {jobs.error && !jobs.data ? (
        <div className="p-4">
          <ErrorNote error={jobs.error} onRetry={() => void jobs.refetch()} />
        </div>
      ) : jobs.data?.rows.length === 0 ? (
        <p className="px-4 pt-2 pb-6 text-muted">{empty}.</p>
      ) : (
        <JobFeed rows={jobs.data?.rows ?? []} link={link} />
      )}
    </Panel>
  );
}
