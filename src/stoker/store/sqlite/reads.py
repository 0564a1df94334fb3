"""Reading the embedded store: short reads on connections that cannot write.

Point reads answer in microseconds and run where they are called. Lists may have to walk, so they get a thread and a
connection of their own; they never hold a snapshot longer than one page, so the write-ahead log can be emptied.
"""

from typing import Any, Final

import apsw

from stoker.domain.explain import POSITION_CAP, Line
from stoker.domain.job import Job
from stoker.domain.lifecycle import FINAL, Status
from stoker.domain.retry import Claim, claim_of
from stoker.store.base import TOTAL_CAP, Attempt, Count, JobFilter, JobQuery, JobSummary, Page, Session
from stoker.store.common import counted, is_counted, session_of, with_current
from stoker.store.sqlite.round import COLUMN_LIST, Q, filter_sql

_BY_ID = Q["job_by_id"].format(columns=COLUMN_LIST)
_SUMMARY = Q["job_summary"].format(columns=", ".join(JobSummary.__struct_fields__))
_OF_SESSION = Q["claims_of_session"].format(columns=COLUMN_LIST)
_CANCELS = Q["cancels_of_session"].format(columns=COLUMN_LIST)

SMALL: Final = 5_000
"""Up to so many jobs of a status, its own index plus a sort beats walking the table from the newest job down."""

_STATUS_INDEX: Final[dict[Status, str]] = {
    "queued": "jobs_ready",
    "scheduled": "jobs_due",
    "running": "jobs_running",
    "blocked": "jobs_blocked",
}


class Reader:
    """The reads of the store, over one connection."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def get(self, id: str) -> Job | None:
        row = self._db.execute(_BY_ID, (id,)).fetchone()
        return None if row is None else Job(*row)

    def summary(self, id: str) -> JobSummary | None:
        row = self._db.execute(_SUMMARY, (id,)).fetchone()
        return None if row is None else JobSummary(*row)

    def line(self, job: Job) -> Line:
        place = (job.lane_id, job.rank, job.seq, POSITION_CAP)
        (ahead,) = self._db.execute(Q["count_ahead"], place).fetchone() or (0,)
        first = self._db.execute(Q["first_in_lane"], (job.lane_id,)).fetchone() if ahead else None
        return Line(int(ahead), None if first is None else str(first[0]))

    def claim(self, id: str, claim_id: int) -> Claim | None:
        job = self.get(id)
        if job is None or job.claim_id != claim_id or job.status != "running":
            return None
        return claim_of(job)

    def held(self, session_id: str) -> list[Claim]:
        return [claim_of(Job(*row)) for row in self._db.execute(_OF_SESSION, (session_id,))]

    def cancels(self, session_id: str) -> list[Claim]:
        return [claim_of(Job(*row)) for row in self._db.execute(_CANCELS, (session_id,))]

    def attempts(self, id: str) -> list[Attempt]:
        job = self.get(id)
        if job is None:
            return []
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

    def known_key(self, client: str, key: str, now: int) -> bool:
        return self._db.execute(Q["get_key"], (client, key, now)).fetchone() is not None

    def next_due_at(self) -> int | None:
        row = self._db.execute(Q["next_due"]).fetchone()
        return None if row is None else row[0]

    def page(self, query: JobQuery) -> Page:
        with self._db:  # one snapshot for the page and its total
            total, capped = self._total(query.filter)
            jobs = self._page(query)
        more = len(jobs) > query.limit
        jobs = jobs[: query.limit]
        return Page(jobs, total, capped, jobs[-1].seq if more else None)

    def _page(self, query: JobQuery) -> list[Job]:
        where, values = filter_sql(query.filter)
        if query.before_seq is not None:
            where += " AND seq < ?"
            values.append(query.before_seq)
        sql = Q["list_jobs"].format(columns=COLUMN_LIST, where=where, index=self._index(query.filter))
        return [Job(*row) for row in self._db.execute(sql, (*values, query.limit + 1, query.offset))]

    def _index(self, filter: JobFilter) -> str:
        if filter.dead_letters:
            return "INDEXED BY jobs_dead"
        if filter.status is None or self._counted(JobFilter(status=filter.status)) > SMALL:
            return "NOT INDEXED"
        if filter.status in FINAL:
            return "INDEXED BY jobs_finished"
        return f"INDEXED BY {_STATUS_INDEX[filter.status]}"

    def _total(self, filter: JobFilter) -> tuple[int, bool]:
        if is_counted(filter):
            return self._counted(filter), False
        where, values = filter_sql(filter)
        sql = Q["count_jobs"].format(where=where, index=self._index(filter))
        (found,) = self._db.execute(sql, (*values, TOTAL_CAP + 1)).fetchone() or (0,)
        return min(found, TOTAL_CAP), found > TOTAL_CAP

    def _counted(self, filter: JobFilter) -> int:
        return counted(self.counts(), filter)


def _attempt(row: tuple[Any, ...]) -> Attempt:
    fields = list(row)
    fields[7] = bool(fields[7])
    return Attempt(*fields)
