"""What the store holds and every change that it saw, read behind the system's back.

Triggers, made before the first job, write each change of a job's status, claim or stored result into a table of their own,
in the transaction that makes the change. So the record is complete, and in the order of commits for any one job.
"""

import asyncio
import contextlib
import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import asyncpg

from tests.checkers.history import Change, StoredAttempt, StoredJob

FINAL: Final = ("completed", "failed", "cancelled")

POSTGRES_TRIGGERS: Final = """
CREATE SCHEMA chaos;
CREATE TABLE chaos.changes (
    n bigserial PRIMARY KEY, at double precision NOT NULL, id uuid NOT NULL, status text NOT NULL,
    claim integer NOT NULL, attempt integer NOT NULL, worker text
);
CREATE FUNCTION chaos.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos.changes (at, id, status, claim, attempt, worker)
    VALUES (extract(epoch FROM clock_timestamp()), NEW.id, NEW.status, NEW.claim_id, NEW.attempt, NEW.worker_id);
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_insert AFTER INSERT ON stoker.jobs FOR EACH ROW EXECUTE FUNCTION chaos.note();
CREATE TRIGGER chaos_update AFTER UPDATE ON stoker.jobs FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status OR OLD.claim_id IS DISTINCT FROM NEW.claim_id)
    EXECUTE FUNCTION chaos.note();
CREATE TRIGGER chaos_end AFTER INSERT ON stoker.history FOR EACH ROW EXECUTE FUNCTION chaos.note();
CREATE TRIGGER chaos_rewrite AFTER UPDATE ON stoker.history FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status OR OLD.claim_id IS DISTINCT FROM NEW.claim_id
        OR OLD.result IS DISTINCT FROM NEW.result)
    EXECUTE FUNCTION chaos.note();
"""

SQLITE_TRIGGERS: Final = """
CREATE TABLE chaos_changes (
    n INTEGER PRIMARY KEY, at REAL NOT NULL, id TEXT NOT NULL, status TEXT NOT NULL,
    claim INTEGER NOT NULL, attempt INTEGER NOT NULL, worker TEXT
);
CREATE TRIGGER chaos_insert AFTER INSERT ON jobs BEGIN
    INSERT INTO chaos_changes (at, id, status, claim, attempt, worker)
    VALUES ((julianday('now') - 2440587.5) * 86400.0, NEW.id, NEW.status, NEW.claim_id, NEW.attempt, NEW.worker_id);
END;
CREATE TRIGGER chaos_update AFTER UPDATE OF status, claim_id, result ON jobs
    WHEN OLD.status <> NEW.status OR OLD.claim_id <> NEW.claim_id OR OLD.result IS NOT NEW.result BEGIN
    INSERT INTO chaos_changes (at, id, status, claim, attempt, worker)
    VALUES ((julianday('now') - 2440587.5) * 86400.0, NEW.id, NEW.status, NEW.claim_id, NEW.attempt, NEW.worker_id);
END;
"""

CHANGES: Final = "SELECT at, id, status, claim, attempt, worker FROM {table} ORDER BY n"
JOBS: Final = """
SELECT id, status, claim_id, attempt, max_attempts, crashes, payload, {result}, timeout_sec FROM {table}
"""
ATTEMPTS: Final = """
SELECT j.id, a.claim_id, a.attempt, a.kind, a.charged, a.worker_id, a.retry_delay_us
FROM {attempts} a JOIN {jobs} j ON j.seq = a.seq ORDER BY a.seq, a.claim_id
"""

Row = Any
"""A row of either driver: something to unpack."""
Clock = Callable[[float], float]
"""From the store's time of day to `time.monotonic()`."""


def monotonic() -> Clock:
    """Return the conversion of now: one offset for all rows, from the tightest of some readings. Between the two readings
    of an offset this process may have to wait for a processor, and what was converted by it would seem to be later."""
    offset = math.inf
    tightest = math.inf
    for _ in range(20):
        before, wall, after = time.monotonic(), time.time(), time.monotonic()
        if after - before < tightest:
            tightest, offset = after - before, wall - (before + after) / 2
    return lambda at: at - offset


class Kept(NamedTuple):
    jobs: list[StoredJob]
    attempts: list[StoredAttempt]
    journal: list[Change]
    counts: dict[str, int]
    sessions: dict[int, str]
    """Process id of a worker → its session, the last one if it had several."""


class Books(Protocol):
    """A store as this side of the tests sees it."""

    def watch(self) -> None:
        """From now on every change is written down. The tables must be there, and no jobs yet."""
        ...

    def read(self, clock: Clock | None = None) -> Kept:
        """`clock`: how times of day are converted; None for that of this machine."""
        ...


class PostgresBooks:
    def __init__(self, url: str) -> None:
        self._url = url

    def watch(self) -> None:
        asyncio.run(self._execute(POSTGRES_TRIGGERS))

    async def _execute(self, sql: str) -> None:
        link = await asyncpg.connect(self._url)
        try:
            await link.execute(sql)
        finally:
            await link.close()

    def read(self, clock: Clock | None = None) -> Kept:
        return asyncio.run(self._read(clock or monotonic()))

    async def _read(self, clock: Clock) -> Kept:
        link = await asyncpg.connect(self._url)
        try:
            async with link.transaction(isolation="repeatable_read", readonly=True):
                everywhere = "(SELECT seq, id FROM stoker.jobs UNION ALL SELECT seq, id FROM stoker.history)"
                rows = await link.fetch(JOBS.format(result="NULL::bytea", table="stoker.jobs"))
                rows += await link.fetch(JOBS.format(result="result", table="stoker.history"))
                changes = (
                    await link.fetch(CHANGES.format(table="chaos.changes"))
                    if await link.fetchval("SELECT to_regclass('chaos.changes')")
                    else []
                )
                return Kept(
                    [_job(row) for row in rows],
                    [
                        _attempt(row)
                        for row in await link.fetch(
                            ATTEMPTS.format(attempts="stoker.attempts", jobs=everywhere)
                        )
                    ],
                    list(_journal(changes, clock)),
                    _counts(
                        await link.fetch(
                            "SELECT status, sum(count)::bigint FROM stoker.counts GROUP BY status"
                        )
                    ),
                    _sessions(await link.fetch("SELECT pid, id FROM stoker.sessions ORDER BY registered_at")),
                )
        finally:
            await link.close()


class SqliteBooks:
    def __init__(self, path: Path) -> None:
        self._path = path

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self._path, timeout=20)
        try:
            yield db
        finally:
            db.close()

    def watch(self) -> None:
        with self._open() as db:
            db.executescript(SQLITE_TRIGGERS)

    def read(self, clock: Clock | None = None) -> Kept:
        clock = clock or monotonic()
        with self._open() as db:
            db.execute("BEGIN")
            return Kept(
                [_job(row) for row in db.execute(JOBS.format(result="result", table="jobs"))],
                [_attempt(row) for row in db.execute(ATTEMPTS.format(attempts="attempts", jobs="jobs"))],
                list(_journal(db.execute(CHANGES.format(table="chaos_changes")), clock)),
                _counts(db.execute("SELECT status, sum(count) FROM counts GROUP BY status")),
                _sessions(db.execute("SELECT pid, id FROM sessions ORDER BY registered_at")),
            )


def _job(row: Row) -> StoredJob:
    id, status, claim, attempt, max_attempts, crashes, payload, result, timeout = row
    sent = json.loads(payload)
    marker = sent.get("marker", "") if isinstance(sent, dict) else ""  # others may have submitted anything
    value = None if result is None else json.loads(result)
    return StoredJob(str(id), marker, status, claim, attempt, max_attempts, crashes, value, timeout)


def _attempt(row: Row) -> StoredAttempt:
    id, claim, attempt, kind, charged, worker, delay_us = row
    delay = None if delay_us is None else delay_us / 1e6
    return StoredAttempt(str(id), claim, attempt, kind, bool(charged), worker, delay)


def _journal(rows: Iterable[Row], clock: Clock) -> Iterator[Change]:
    """Changes with what each of them left."""
    last: dict[str, str] = {}
    for at, id, status, claim, attempt, worker in rows:
        job = str(id)
        yield Change(clock(at), job, last.get(job), status, claim, attempt, worker)
        last[job] = status


def _counts(rows: Iterable[Row]) -> dict[str, int]:
    return {status: int(count) for status, count in rows if count}


def _sessions(rows: Iterable[Row]) -> dict[int, str]:
    return {pid: id for pid, id in rows if pid is not None}
