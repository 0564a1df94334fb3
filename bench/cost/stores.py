"""The databases that jobs are kept in: a new one for each round, and how many transactions have written to it.

Both are counted from outside, so that revisions that do not count themselves can be measured. SQLite's WAL index begins with
a number that every commit raises (`iChange`); PostgreSQL gives each transaction that writes a number of its own, and
`pg_current_snapshot` tells the next one.
"""

import itertools
import shutil
import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final, Protocol

import apsw

from bench.cost.roles import POSTGRES, Role
from bench.postgres.database import Database
from bench.system import DATABASE
from tests.support.servers import Postgres

_COMMITS: Final = struct.Struct("=8xI")
_WRITTEN: Final = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"


class Place(Protocol):
    """One new database."""

    folder: Path
    url: str
    roles: Sequence[Role]
    """Processes that belong to the database."""

    def transactions(self) -> int:
        """How many transactions have written so far."""

    def tidy(self) -> None:
        """Clear away what the jobs before left behind, so that the next ones do not pay for it."""


class Store(Protocol):
    name: str

    def place(self, label: str) -> AbstractContextManager[Place]: ...


class SqlitePlace:
    url = ""
    roles: Sequence[Role] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def transactions(self) -> int:
        """Of the jobs and of their output, which has a file of its own."""
        return sum(_commits(index) for index in self.folder.glob("*.db-shm"))

    def tidy(self) -> None:
        """Move the write-ahead log into the database: otherwise the workload in which it happens to be full pays for all."""
        with closing(apsw.Connection(str(self.folder / DATABASE))) as db:
            db.set_busy_timeout(5_000)
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _commits(index: Path) -> int:
    with index.open("rb") as file:
        head = file.read(_COMMITS.size)
    return int(_COMMITS.unpack(head)[0]) if len(head) == _COMMITS.size else 0


class Sqlite:
    name = "SQLite"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)

    @contextmanager
    def place(self, label: str) -> Iterator[SqlitePlace]:
        folder = self._folder / f"{label}-sqlite-{next(self._numbers)}"
        folder.mkdir()
        yield SqlitePlace(folder)
        assert (folder / DATABASE).exists()
        shutil.rmtree(folder)


class PostgresPlace:
    def __init__(self, folder: Path, url: str, server: int, database: Database) -> None:
        self.folder = folder
        self.url = url
        self.roles: Sequence[Role] = (Role(POSTGRES, server),)
        self._database = database

    def transactions(self) -> int:
        return int(self._database.value(_WRITTEN))

    def tidy(self) -> None:
        self._database.rows("VACUUM")


SETTINGS: Final = {"autovacuum": "off"}
"""It wakes by the clock: a slow round would pay for more of it than a quick one. `tidy` does its work between workloads."""


class OnPostgres:
    name = "PostgreSQL"

    def __init__(self, folder: Path, server: Postgres) -> None:
        self._folder = folder
        self._server = server
        self._numbers = itertools.count(1)

    @contextmanager
    def place(self, label: str) -> Iterator[PostgresPlace]:
        name = f"{label}-{next(self._numbers)}"
        folder = self._folder / f"{name}-postgres"
        folder.mkdir()
        url = self._server.create_database(name)
        self._server.psql("CHECKPOINT")
        with Database(url) as database:
            yield PostgresPlace(folder, url, self._server.pid, database)
        self._server.psql(f'DROP DATABASE "{name}" WITH (FORCE)')
        shutil.rmtree(folder)
