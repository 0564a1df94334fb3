"""Reading the embedded store: short reads on connections that cannot write.

Point reads answer in microseconds and run where they are called. Lists may have to walk, so they get a thread and a
connection of their own; they never hold a snapshot longer than one page, so the write-ahead log can be emptied.
"""

from typing import Any, Final

import apsw
import msgspec

from stoker.domain.job import Job
from stoker.domain.lifecycle import FINAL, Status
from stoker.domain.retry import Claim, claim_of
from stoker.store.base import TOTAL_CAP, Attempt, Count, JobFilter, JobQuery, Page, Session
from stoker.store.sqlite.round import COLUMN_LIST, Q, filter_sql

_BY_ID = Q["job_by_id"].format(columns=COLUMN_LIST)
_OF_SESSION = Q["claims_of_session"].format(columns=COLUMN_LIST)

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

    def claim(self, id: str, claim_id: int) -> Claim | None:
        job = self.get(id)
        if job is None or job.claim_id != claim_id or job.status != "running":
            return None
        return claim_of(job)

    def held(self, session_id: str) -> list[Claim]:
        return [claim_of(Job(*row)) for row in self._db.execute(_OF_SESSION, (session_id,))]

    def attempts(self, id: str) -> list[Attempt]:
        job = self.get(id)
        if job is None:
            return []
        rows = self._db.execute(Q["attempts_of"], (job.seq,)).fetchall()
        earlier = [_attempt(row) for row in rows]
        current = _current_attempt(job)
        if current is not None and all(attempt.claim_id != current.claim_id for attempt in earlier):
            earlier.append(current)
        return earlier

    def counts(self) -> list[Count]:
        return [Count(*row) for row in self._db.execute(Q["all_counts"])]

    def sessions(self) -> list[Session]:
        return [_session(row) for row in self._db.execute(Q["all_sessions"])]

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
        if filter.priority is None and filter.name is None and not filter.dead_letters:
            return self._counted(filter), False
        where, values = filter_sql(filter)
        sql = Q["count_jobs"].format(where=where, index=self._index(filter))
        (found,) = self._db.execute(sql, (*values, TOTAL_CAP + 1)).fetchone() or (0,)
        return min(found, TOTAL_CAP), found > TOTAL_CAP

    def _counted(self, filter: JobFilter) -> int:
        return sum(
            count.count
            for count in self.counts()
            if filter.status in (None, count.status)
            and filter.queue in (None, count.queue)
            and filter.type in (None, count.type)
        )


def _attempt(row: tuple[Any, ...]) -> Attempt:
    fields = list(row)
    fields[7] = bool(fields[7])
    return Attempt(*fields)


def _current_attempt(job: Job) -> Attempt | None:
    """The attempt that lives on the job itself: the one under way, or the one that completed or cancelled it."""
    if job.claim_id == 0 or job.claimed_at is None:
        return None
    kind = job.status if job.status in ("completed", "cancelled") else None
    return Attempt(
        job.claim_id,
        job.attempt,
        job.worker_id,
        job.claimed_at,
        job.started_at,
        job.completed_at,
        kind,  # a final status here is also the kind of its attempt
        True,
        job.error,
        None,
        job.cpu_us,
        job.peak_memory_kb,
    )


def _session(row: tuple[Any, ...]) -> Session:
    fields = list(row)
    fields[3] = msgspec.json.decode(fields[3], type=tuple[str, ...])
    fields[4] = None if fields[4] is None else msgspec.json.decode(fields[4], type=tuple[str, ...])
    fields[5] = msgspec.json.decode(fields[5], type=dict[str, str])
    return Session(*fields)
