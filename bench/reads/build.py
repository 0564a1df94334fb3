"""Databases with millions of jobs, written in bulk."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import asyncpg
from msgspec.structs import astuple

from bench.reads import population
from bench.reads.population import POSTGRES, SQLITE, Columns, Dialect
from stoker.domain.placement import Lane
from stoker.store.postgres.database import Database, migrate
from stoker.store.postgres.rows import Q as POSTGRES_Q
from stoker.store.sqlite import database
from stoker.store.sqlite.rows import Q

_STEP: Final = 1_000_000
"""Jobs in a statement."""
_SEQ_BLOCK: Final = 10_000
_ATTEMPTS: Final = (
    "INSERT INTO {prefix}attempts "
    "(seq, claim_id, attempt, worker_id, claimed_at, started_at, finished_at, kind, charged, status) "
    "SELECT seq, 1, 1, worker_id, claimed_at, started_at, completed_at, 'error', {true}, 'failed' "
    "FROM {prefix}{failed} WHERE status = 'failed'"
)

Progress = Callable[[str], None]


_METADATA = (
    "INSERT INTO {prefix}job_metadata (key, value, seq) "
    "SELECT 'customer', CASE WHEN seq % 9999 = 0 THEN 'rare' ELSE 'common' END, seq FROM {prefix}{table} WHERE seq % 3 = 0"
)
"""One job in three has an entry, and few of them a rare one."""


def _lanes() -> list[tuple[Any, ...]]:
    """The rows of the lanes."""
    return [(id, *astuple(Lane(queue, type, None, 1, None, None))) for id, queue, type in population.lanes()]


def _inserts(jobs: int, now: int, dialect: Dialect) -> Iterator[tuple[str, str]]:
    """What is written, for people, and the statement."""
    backlog = "jobs" if dialect is SQLITE else "stoker.jobs"
    history = "jobs" if dialect is SQLITE else "stoker.history"
    end = 2 * jobs
    parts: list[tuple[str, Columns, str, int, int]] = [
        ("finished", population.finished(jobs, now, dialect), history, 1, jobs),
        ("queued", population.queued(jobs, now, dialect), backlog, jobs + 1, end),
        ("scheduled", population.scheduled(jobs, now, dialect), backlog, end + 1, end + population.SCHEDULED),
    ]
    end += population.SCHEDULED
    parts.append(
        ("running", population.running(jobs, now, dialect), backlog, end + 1, end + population.RUNNING)
    )
    for what, columns, table, first, last in parts:
        for start in range(first, last + 1, _STEP):
            stop = min(start + _STEP - 1, last)
            yield (
                f"{what} jobs {start:,} to {stop:,}",
                population.insert(table, columns, start, stop, dialect),
            )


def write_sqlite(path: Path, jobs: int, progress: Progress) -> None:
    """Fill a new SQLite database. The indexes of jobs are made when it is full, and the counters counted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    now = time.time_ns() // 1_000
    db = database.open_writer(path)
    database.migrate(db)
    for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -500000"):
        db.execute(f"PRAGMA {pragma}").fetchall()
    indexes: list[Any] = db.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'jobs'"
    ).fetchall()
    for name, _ in indexes:
        db.execute(f"DROP INDEX {name}")
    db.executemany(Q["insert_lane"], _lanes())
    for what, statement in _inserts(jobs, now, SQLITE):
        progress(what)
        db.execute(statement)
    for name, sql in indexes:
        progress(f"index {name}")
        db.execute(sql)
    progress("counters and attempts")
    db.execute("INSERT INTO counts SELECT queue, type, status, count(*) FROM jobs GROUP BY 1, 2, 3")
    db.execute(_ATTEMPTS.format(prefix="", failed="jobs", true=1))
    db.execute(_METADATA.format(prefix="", table="jobs"))
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.close()


async def write_postgres(url: str, jobs: int, progress: Progress) -> None:
    """Fill a new PostgreSQL database, in the same way."""
    store = await Database.open(url)
    await migrate(store)
    await store.close()
    now = time.time_ns() // 1_000
    link = await asyncpg.connect(url)
    try:
        indexes = await link.fetch(
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'stoker' AND tablename IN ('jobs', 'history')"
        )
        kept = {"jobs_pkey", "history_pkey"}
        for name, _ in indexes:
            if name not in kept:
                await link.execute(f"DROP INDEX stoker.{name}")
        await link.execute("SET maintenance_work_mem = '512MB'")
        await link.execute(
            POSTGRES_Q["insert_lanes"],
            *zip(*_lanes(), strict=True),
        )
        for what, statement in _inserts(jobs, now, POSTGRES):
            progress(what)
            await link.execute(statement, timeout=600)
        for name, sql in indexes:
            if name not in kept:
                progress(f"index {name}")
                await link.execute(sql, timeout=600)
        progress("counters and attempts")
        for table in ("jobs", "history"):
            await link.execute(
                "INSERT INTO stoker.counts SELECT 0, queue, type, status, count(*) "  # noqa: S608
                f"FROM stoker.{table} JOIN stoker.lanes ON lanes.id = lane_id GROUP BY 2, 3, 4",
                timeout=600,
            )
        await link.execute(_ATTEMPTS.format(prefix="stoker.", failed="history", true="true"), timeout=600)
        for table in ("jobs", "history"):
            await link.execute(_METADATA.format(prefix="stoker.", table=table), timeout=600)
        await link.execute("SELECT setval('stoker.seq_blocks', $1)", 2 * jobs // _SEQ_BLOCK + 100)
        progress("vacuum")
        await link.execute("VACUUM (ANALYZE)", timeout=600)
    finally:
        await link.close()
