"""The stores of output that the suite holds to `stoker.store.logs.Logs`. A new one is added to `LOGS`, and nowhere else."""

import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import msgspec

from stoker.store.logs import Logs
from stoker.store.postgres import database as db
from stoker.store.postgres.database import Database
from stoker.store.postgres.logs import PostgresLogs
from stoker.store.sqlite.logs import SqliteLogs
from tests.support.servers import databases


class CountingLogs(Logs, Protocol):
    @property
    def dropped_bytes(self) -> int: ...


class LogsKind(msgspec.Struct, frozen=True):
    name: str
    opened: Callable[..., AbstractAsyncContextManager[CountingLogs]]
    """`opened(place, max_waiting_bytes=…)`: the same place again is the same store."""
    broken: Callable[[Path], AbstractAsyncContextManager[None]]
    """Makes every write and read at that place fail for a while."""
    stored_bytes: Callable[[Path], Any]
    """How much room the output takes."""


# ── SQLite ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _sqlite(*, threads: bool) -> Callable[..., AbstractAsyncContextManager[CountingLogs]]:
    @asynccontextmanager
    async def opened(place: Path, **options: Any) -> AsyncIterator[CountingLogs]:
        logs = SqliteLogs.open(place / "stoker-logs.db", threads=threads, **options)
        try:
            yield logs
        finally:
            await logs.close()

    return opened


@asynccontextmanager
async def _sqlite_broken(place: Path) -> AsyncIterator[None]:
    with closing(sqlite3.connect(place / "stoker-logs.db")) as other:
        other.execute("ALTER TABLE chunks RENAME TO elsewhere")
        yield
        other.execute("ALTER TABLE elsewhere RENAME TO chunks")


async def _sqlite_bytes(place: Path) -> int:
    return sum(file.stat().st_size for file in os.scandir(place))


# ── PostgreSQL ─────────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def opened_database(url: str) -> AsyncIterator[Database]:
    database = await Database.open(url)
    try:
        await db.migrate(database)
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def postgres_opened(place: Path, **options: Any) -> AsyncIterator[PostgresLogs]:
    async with opened_database(databases.url(place)) as database:
        logs = PostgresLogs(database, **options)
        try:
            yield logs
        finally:
            await logs.close()


@asynccontextmanager
async def _postgres_broken(place: Path) -> AsyncIterator[None]:
    other = await asyncpg.connect(databases.url(place))
    try:
        await other.execute("ALTER TABLE stoker.output_chunks RENAME TO elsewhere")
        yield
        await other.execute("ALTER TABLE stoker.elsewhere RENAME TO output_chunks")
    finally:
        await other.close()


async def _postgres_bytes(place: Path) -> int:
    other = await asyncpg.connect(databases.url(place))
    try:
        # `outputs` is rewritten with each write; what that leaves behind goes with the next vacuum.
        await other.execute("VACUUM stoker.outputs")
        return int(
            await other.fetchval(
                "SELECT pg_total_relation_size('stoker.outputs') + pg_total_relation_size('stoker.output_chunks')"
            )
        )
    finally:
        await other.close()


LOGS = [
    LogsKind("sqlite-threads", _sqlite(threads=True), _sqlite_broken, _sqlite_bytes),
    LogsKind("sqlite", _sqlite(threads=False), _sqlite_broken, _sqlite_bytes),
    LogsKind("postgres", postgres_opened, _postgres_broken, _postgres_bytes),
]
