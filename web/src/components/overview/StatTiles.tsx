import type { Point, Stats } from "@/api/model";
import { Duration } from "@/components/Duration";
import { Meter } from "@/components/Meter";
import { compact, count, duration, percent, plural, rate } from "@/lib/format";
import type { Rates, Second } from "@/live/state";
import { StatTile } from "./StatTile";

interface StatTilesProps {
  stats: Stats | null;
  /** Null while they are not known: too little was seen of the stream, or it is gone. */
  rates: Rates | null;
  /** The recent past, for the little lines. */
  seconds: readonly Second[];
  /** The latest times that the history knows, for when nothing ended while we watched. */
  latest: Point | null;
  /** Jobs that ended within the chosen range; null while it is not known. */
  ended: { ended: number; share: number | null } | null;
  /** How far back that goes: `15m`. */
  range: string;
  /** The server is away: the numbers are of an earlier time. */
  stale: boolean;
}

const MINUTE = 60;

export function StatTiles({ stats, rates, seconds, latest, ended, range, stale }: StatTilesProps) {
  const recent = seconds.slice(-MINUTE);
  const trend = (value: (second: Second) => number) => smooth(recent.map(value));
  const times = stats?.waitP50 == null && stats?.runP50 == null ? latest : stats;
  const dead = stats?.deadLetters ?? stats?.counts.failed ?? 0;
  return (
    <dl className="grid grid-cols-2 gap-2 sm:gap-3 md:grid-cols-3 lg:grid-cols-5">
      <StatTile
        label="Submitted"
        stale={stale}
        value={rates ? rate(rates.submitted) : "–"}
        unit="/s"
        note={stats && `${compact(total(stats))} in all`}
        trend={trend((second) => second.submitted)}
        trendTone="accent"
      />
      <StatTile
        label="Completed"
        stale={stale}
        value={rates ? rate(rates.completed) : "–"}
        unit="/s"
        note={stats && `${compact(stats.counts.completed)} in all`}
        trend={trend((second) => second.completed)}
        trendTone="completed"
      />
      <StatTile
        label="Failed"
        stale={stale}
        value={rates ? rate(rates.failed) : "–"}
        unit="/s"
        tone={rates && rates.failed > 0 ? "bad" : undefined}
        note={stats && `${compact(stats.counts.failed)} in all`}
        trend={trend((second) => second.failed)}
        trendTone="failed"
      />
      <StatTile
        label={`Success rate, last ${range}`}
        stale={stale}
        value={ended?.share == null ? "–" : percent(ended.share)}
        note={ended && (ended.ended === 0 ? "no job ended" : `of ${plural(ended.ended, "job")} that ended`)}
      />
      <StatTile
        label="Dead letters"
        stale={stale}
        value={stats ? count(dead) : "–"}
        tone={dead > 0 ? "bad" : undefined}
        note={stats && (dead > 0 ? "failed for good" : "nothing failed for good")}
      />
      <StatTile
        label="Queue depth"
        stale={stale}
        value={stats ? compact(stats.queueDepth) : "–"}
        note={
          stats?.oldestQueuedAgeSec == null
            ? stats && stats.queueDepth === 0
              ? "nothing waits"
              : null
            : `oldest waits ${duration(Math.round(stats.oldestQueuedAgeSec * 10) / 10)}`
        }
        trend={trend((second) => second.queueDepth)}
        trendTone="queued"
      />
      <StatTile
        label="Wait, median"
        stale={stale}
        value={<Duration seconds={times?.waitP50} />}
        note={<>p95 {<Duration seconds={times?.waitP95} />}</>}
      />
      <StatTile
        label="Run time, median"
        stale={stale}
        value={<Duration seconds={times?.runP50} />}
        note={<>p95 {<Duration seconds={times?.runP95} />}</>}
      />
      <ThreadsTile stats={stats} stale={stale} />
      <WorkersTile stats={stats} stale={stale} />
    </dl>
  );
}

function ThreadsTile({ stats, stale }: { stats: Stats | null; stale: boolean }) {
  const threads = stats?.threads ?? null;
  const used = stats?.threadsUsed ?? null;
  const full = threads !== null && used !== null && threads > 0 && used >= threads;
  return (
    <StatTile
      label="Threads in use"
      stale={stale}
      value={used ?? "–"}
      unit={threads === null ? undefined : `of ${count(threads)}`}
      tone={full ? "warn" : undefined}
      note={
        used !== null && (
          <Meter
            value={used}
            max={threads ?? 0}
            label="Threads in use"
            tone={full ? "warn" : "running"}
            className="mb-1"
          />
        )
      }
    />
  );
}

function WorkersTile({ stats, stale }: { stats: Stats | null; stale: boolean }) {
  const scaling = stats?.scaling ?? null;
  return (
    <StatTile
      label={scaling ? "Workers, and wanted" : "Workers"}
      stale={stale}
      value={stats ? count(stats.workers) : "–"}
      unit={scaling ? `of ${scaling.decision.wanted}` : undefined}
      tone={stats && stats.workers === 0 ? "bad" : undefined}
      note={
        scaling ? (
          <span title={scaling.decision.reason}>{scaling.decision.reason}</span>
        ) : stats && stats.workers === 0 ? (
          "nothing can run"
        ) : (
          stats && "no autoscaler"
        )
      }
    />
  );
}

const total = (stats: Stats) => Object.values(stats.counts).reduce((sum, value) => sum + value, 0);

/** A mean over five seconds: single jobs make a line and not needles. */
function smooth(values: number[]): number[] {
  return values.map((_, index) => {
    const window = values.slice(Math.max(0, index - 4), index + 1);
    return window.reduce((sum, value) => sum + value, 0) / window.length;
  });
}
