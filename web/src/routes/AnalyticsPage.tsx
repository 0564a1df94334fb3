import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback } from "react";
import { breakdownQuery, seriesQuery } from "@/api/queries";
import { Page } from "@/app/Page";
import { AnalyticsCharts } from "@/components/analytics/AnalyticsCharts";
import { BreakdownTable } from "@/components/analytics/BreakdownTable";
import { CHOICES, RANGES, type Range, rangeOf } from "@/components/analytics/breakdown";
import { Button } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { ErrorNote } from "@/components/ErrorNote";
import { Panel } from "@/components/Panel";
import { RangePicker } from "@/components/RangePicker";
import { Skeleton } from "@/components/Skeleton";

const BY = ["type", "queue"] as const;
type By = (typeof BY)[number];

/** The history is written every few seconds; a point more per step is all that there can be to see. */
const freshness = (range: Range) => Math.max(10_000, (RANGES[range] / 120) * 1000);

export function AnalyticsPage() {
  const search = useSearch({ from: "/analytics" });
  const navigate = useNavigate({ from: "/analytics" });
  const range = rangeOf(search.range);
  const by: By = search.by ?? "type";
  const { key } = search;
  const go = (next: { range?: Range; by?: By; key?: string | undefined }) => {
    const now = { range, by, key, ...next };
    void navigate({
      search: {
        range: now.range === "1h" ? undefined : now.range,
        by: now.by === "type" ? undefined : now.by,
        key: now.key,
      },
      replace: true,
    });
  };
  return (
    <Page>
      <div className="flex flex-wrap items-center justify-between gap-3">
        <div className="flex min-w-0 items-center gap-2">
          {key === undefined ? (
            <p className="text-muted">All jobs</p>
          ) : (
            <>
              <p className="clip text-muted">
                Only {by} <span className="font-medium text-text">{key}</span>
              </p>
              <Button size="sm" tone="ghost" icon="close" onClick={() => go({ key: undefined })}>
                Show all
              </Button>
            </>
          )}
        </div>
        <RangePicker
          label="Time range"
          choices={CHOICES}
          value={range}
          onChange={(next) => go({ range: next })}
        />
      </div>
      <Charts range={range} by={by} only={key} />
      <Panel
        title="Breakdown"
        flush
        actions={
          <RangePicker
            label="Break down by"
            choices={BY}
            value={by}
            onChange={(next) => go({ by: next, key: undefined })}
          />
        }
      >
        <Breakdown range={range} by={by} />
      </Panel>
    </Page>
  );
}

function Charts({ range, by, only }: { range: Range; by: By; only: string | undefined }) {
  const options = { from: range, ...(only === undefined ? {} : { [by]: only }) };
  const series = useQuery({
    ...seriesQuery(options),
    refetchInterval: freshness(range),
    placeholderData: (before) => before,
  });
  if (series.data) return <AnalyticsCharts series={series.data} />;
  if (series.error) return <ErrorNote error={series.error} onRetry={() => void series.refetch()} />;
  return <Skeleton className="h-96 rounded-lg" />;
}

function Breakdown({ range, by }: { range: Range; by: By }) {
  const rows = useQuery({ ...breakdownQuery(by, range), refetchInterval: freshness(range) });
  const link = useCallback(
    (key: string) => (
      <Link
        to="/analytics"
        search={(before) => ({ ...before, key })}
        replace
        className="font-medium hover:underline"
        title={`Only ${by} ${key}`}
      >
        {key}
      </Link>
    ),
    [by],
  );
  if (rows.error && !rows.data)
    return (
      <div className="p-4">
        <ErrorNote error={rows.error} onRetry={() => void rows.refetch()} />
      </div>
    );
  if (!rows.data) return <Skeleton className="m-4 h-32" />;
  if (rows.data.length === 0)
    return (
      <EmptyState
        icon="analytics"
        title={`Nothing ran in the last ${range}`}
        command={`stoker submit echo '{"hello": "world"}'`}
      >
        Choose a longer time, or run something.
      </EmptyState>
    );
  return <BreakdownTable by={by} rows={rows.data} link={link} />;
}
