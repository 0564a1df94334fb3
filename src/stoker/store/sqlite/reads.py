"""Reading the embedded store: short reads on connections that cannot write.

Point reads answer in microseconds and run where they are called. Everything else gets a thread and a connection of its own
(`stoker.store.sqlite.readers`), and never holds a snapshot longer than one page, so the write-ahead log can be emptied. Its
connection maps the file into memory: to skip 900,000 jobs takes 10 ms then, and 128 ms when each page is copied first.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import apsw
import msgspec
from msgspec.structs import replace

from stoker.domain.explain import POSITION_CAP, JobsAhead
from stoker.domain.job import COLUMNS, Job
from stoker.domain.retry import Claim, claim_of
from stoker.domain.series import GaugeRow, TallyRow
from stoker.domain.short_ids import RECENT_JOBS, ShortId
from stoker.store.bulk import Bulk, bulk_of
from stoker.store.reads import (
    SPARKS,
    TOTAL_CAP,
    Attempt,
    Count,
    DeadLetterGroup,
    DeadLetterGroups,
    FailureSample,
    JobFilter,
    JobQuery,
    JobState,
    JobSummary,
    Page,
    counted,
    fitting,
    has_earlier,
    id_range,
    newest_ids,
    sparkline,
    with_current,
)
from stoker.store.series import gauge_of, tally_of
from stoker.store.sessions import Session, session_of
from stoker.store.sqlite.filters import best_index, filter_sql, union
from stoker.store.sqlite.lists import SqliteLists
from stoker.store.sqlite.read_errors import tell_unreadable
from stoker.store.sqlite.rows import COLUMN_LIST, SUMMARY, SUMMARY_LIST, Q
from stoker.store.sqlite.schedules import SqliteScheduleReads
from stoker.store.walks import SMALL

_BY_ID = Q["job_by_id"].format(columns=COLUMN_LIST)
_BRIEFLY = Q["job_summary"].format(columns=", ".join(JobSummary.__struct_fields__))
# A claim needs nothing that can be large, and these run on the event loop.
_CLAIMED = Q["job_by_id"].format(columns=SUMMARY_LIST)
_OF_SESSION = Q["claims_of_session"].format(columns=SUMMARY_LIST)
_CANCELS = Q["cancels_of_session"].format(columns=SUMMARY_LIST)

_WITH_ERROR: Final = ", ".join(
    SUMMARY.get(column, column) if column != "error" else column for column in COLUMNS
)
_SAMPLE: Final = Q["group_sample"].format(columns=_WITH_ERROR)
_LISTED: Final = Q["list_jobs"].format(columns=COLUMN_LIST)
_SUMMARIES: Final = Q["list_jobs"].format(columns=_WITH_ERROR)


def _json(seqs: list[int]) -> str:
    return msgspec.json.encode(seqs).decode()


@tell_unreadable
class SqliteReader:
    """The reads of the store, over one connection."""

    def __init__(self, db: apsw.Connection, completed_to: Callable[[], int | None] = lambda: None) -> None:
        self._db = db
        self._lists = SqliteLists(db, completed_to)
        self.schedules = SqliteScheduleReads(db)

    def schema_version(self) -> int:
        version: Any = self._db.execute("PRAGMA user_version").fetchall()[0][0]
        return int(version)

    def get(self, id: str) -> Job | None:
        row = self._db.execute(_BY_ID, (id,)).fetchone()
        return None if row is None else Job(*row)

    def summary(self, id: str) -> JobSummary | None:
        row = self._db.execute(_BRIEFLY, (id,)).fetchone()
        return None if row is None else JobSummary(*row)

    def states(self, ids: Sequence[str]) -> list[JobState]:
        rows = self._db.execute(Q["job_states"], (msgspec.json.encode(ids).decode(),))
        return [JobState(*row) for row in rows]

    def ids_like(self, part: ShortId, limit: int) -> list[str]:
        between = id_range(part.beginning)
        begins = self._db.execute(Q["ids_beginning"], (*between, limit)).fetchall() if between else []
        ends = self._db.execute(Q["ids_ending"], (RECENT_JOBS, part.ending, limit)).fetchall()
        return newest_ids((str(id) for (id,) in [*begins, *ends]), limit)

    def line(self, job: Job) -> JobsAhead:
        place = (job.lane_id, job.rank, job.seq, POSITION_CAP)
        (ahead,) = self._db.execute(Q["count_ahead"], place).fetchone() or (0,)
        first = self._db.execute(Q["first_in_lane"], (job.lane_id,)).fetchone() if ahead else None
        return JobsAhead(int(ahead), None if first is None else str(first[0]))

    def claim(self, id: str, claim_id: int) -> Claim | None:
        row = self._db.execute(_CLAIMED, (id,)).fetchone()
        job = None if row is None else Job(*row)
        if job is None or job.claim_id != claim_id or job.status != "running":
            return None
        return claim_of(job)

    def held(self, session_id: str) -> list[Claim]:
        return [claim_of(Job(*row)) for row in self._db.execute(_OF_SESSION, (session_id,))]

    def cancels(self, session_id: str) -> list[Claim]:
        return [claim_of(Job(*row)) for row in self._db.execute(_CANCELS, (session_id,))]

    def attempts(self, id: str) -> list[Attempt]:
        job = self.get(id)
        return [] if job is None else self.attempts_of(job)

    def attempts_of(self, job: Job) -> list[Attempt]:
        if not has_earlier(job):
            return with_current([], job)
        rows = self._db.execute(Q["attempts_of"], (job.seq,)).fetchall()
        return with_current([_attempt(row) for row in rows], job)

    def counts(self) -> list[Count]:
        return [Count(*row) for row in self._db.execute(Q["all_counts"])]

    def oldest_due(self) -> dict[str, int]:
        return dict(self._db.execute(Q["oldest_due"]))

    def noted_types(self) -> dict[str, bytes]:
        return dict(self._db.execute(Q["noted_types"]))

    def paused(self) -> dict[str, int]:
        return dict(self._db.execute(Q["paused_queues"]))

    def sessions(self) -> list[Session]:
        return [session_of(row) for row in self._db.execute(Q["all_sessions"])]

    def next_limit_at(self) -> int | None:
        (at,) = self._db.execute(Q["next_limit"]).fetchone() or (None,)
        return None if at is None else int(at)

    def key_holder(self, key: str) -> str | None:
        row = self._db.execute(Q["key_holder"], (key,)).fetchone()
        return None if row is None else str(row[0])

    def keys_taken(self, filter: JobFilter) -> int:
        where, values = filter_sql(replace(filter, status=None, dead_letters=False))
        sql = Q["count_keys_taken"].format(
            index=best_index(replace(filter, status=None, dead_letters=True), few=True),
            free=Q["key_is_free"],
            where=where,
        )
        (count,) = self._db.execute(sql, (*values, TOTAL_CAP)).fetchone() or (0,)
        return int(count)

    def known_key(self, client: str, key: str, now: int) -> bool:
        return self._db.execute(Q["get_key"], (client, key, now)).fetchone() is not None

    def next_due_at(self) -> int | None:
        row = self._db.execute(Q["next_due"]).fetchone()
        return None if row is None else row[0]

    def page(self, query: JobQuery) -> Page:
        with self._db:  # one snapshot for the page and its total
            found, total, capped = self._lists.page(query, self.counts())
            seqs = found.seqs if query.summary else self._fitting(found.seqs)
            jobs = self._listed(seqs, summary=query.summary)
        following = found.next_before_seq if len(seqs) == len(found.seqs) else seqs[-1]
        return Page(jobs, total, capped, following)

    def _fitting(self, seqs: list[int]) -> list[int]:
        """Return the first of these jobs, as many as a page takes by their bytes."""
        return seqs[: fitting(size for (size,) in self._db.execute(Q["list_sizes"], (_json(seqs),)))]

    def last_completed(self) -> int:
        """Return the highest number of a job that completed; 0 where there is none. May take long."""
        row = self._db.execute(Q["last_completed"]).fetchone()
        return 0 if row is None else int(str(row[0]))

    def _listed(self, seqs: list[int], *, summary: bool) -> list[Job]:
        rows = self._db.execute(_SUMMARIES if summary else _LISTED, (_json(seqs),))
        return [Job(*row) for row in rows]

    def _matching(self, filter: JobFilter, after_seq: int) -> tuple[str, list[Any]]:
        """Return the statement that finds the numbers of all that match behind a number, and its values."""
        statuses = filter.statuses
        few = statuses is not None and self._counted(JobFilter(status=statuses)) <= SMALL
        # Several statuses share no index, but each of them has one.
        parts = [replace(filter, status=s) for s in statuses] if few and statuses else [filter]
        statements: list[str] = []
        values: list[Any] = []
        for part in parts:
            where, given = filter_sql(part)
            where, given = f"{where} AND seq > ?", [*given, after_seq]
            statements.append(Q["matching"].format(index=best_index(part, few=few), where=where))
            values += given
        return union(statements), values

    def dead_letter_groups(self, limit: int, now: int) -> DeadLetterGroups:
        with self._db:
            rows: list[Any] = self._db.execute(Q["dead_letter_groups"], (limit,)).fetchall()
            groups = [self._group(row[0], row[1], row[2], row[3], now) for row in rows]
        return DeadLetterGroups(groups, rows[0][4] if rows else 0, rows[0][5] if rows else 0, now)

    def _group(self, name: str, count: int, first: int, last: int, now: int) -> DeadLetterGroup:
        span = max(now - first, 0) + 1
        sparks = sparkline(self._db.execute(Q["group_sparks"], (name, first, span, SPARKS)))
        sample = Job(*(self._db.execute(_SAMPLE, (name,)).fetchone() or ()))
        return DeadLetterGroup(name, count, first, last, sparks, sample)

    def failure_samples(self, limit: int) -> list[FailureSample]:
        return [FailureSample(*row) for row in self._db.execute(Q["failure_samples"], (limit,))]

    def series(
        self, bucket_sec: int, start: int, end: int, queue: str | None, type: str | None, *, folded: bool
    ) -> tuple[list[TallyRow], list[GaugeRow]]:
        with self._db:
            tallies = self._db.execute(
                Q["folded_tallies" if folded else "tallies"], (bucket_sec, start, end, queue, type)
            ).fetchall()
            gauges = self._db.execute(Q["gauges"], (bucket_sec, start, end)).fetchall()
        return [tally_of(row) for row in tallies], [gauge_of(row) for row in gauges]

    def bulk(self, id: str) -> Bulk | None:
        row = self._db.execute(Q["get_bulk"], (id,)).fetchone()
        return None if row is None else bulk_of(row)

    def bulks(self, limit: int, *, running: bool) -> list[Bulk]:
        rows = self._db.execute(Q["running_bulks" if running else "latest_bulks"], (limit,))
        return [bulk_of(row) for row in rows]

    def bulk_candidates(self, bulk: Bulk, limit: int) -> list[tuple[int, str]]:
        with self._db:
            matching, values = self._matching(bulk.wanted, bulk.cursor)
            sql = Q["next_matching"].format(matching=matching)
            rows: list[Any] = self._db.execute(sql, (*values, limit)).fetchall()
        return [(seq, id) for seq, id in rows]

    def _counted(self, filter: JobFilter) -> int:
        return counted(self.counts(), filter)


def _attempt(row: tuple[Any, ...]) -> Attempt:
    fields = list(row)
    fields[7] = bool(fields[7])
    return Attempt(*fields)
