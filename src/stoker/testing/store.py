"""The SQLite store in memory: the same SQL and the same transactions, without a file.

The migrations run once in a process; each further store begins as a copy of the empty database that they left.
"""

from functools import cache
from pathlib import Path
from typing import Final

import apsw

from stoker.clock import Clock
from stoker.store.sqlite import database, logs
from stoker.store.sqlite.store import SqliteStore

_PLACE: Final = Path(":memory:")


class MemoryDatabase:
    """Stands in for `stoker.store.sqlite.database.DatabaseFile`, in memory."""

    path = _PLACE

    def __init__(self) -> None:
        self.db = apsw.Connection(":memory:", statementcachesize=400)
        self.db.deserialize("main", _empty())
        self.applied: list[int] = []

    def check(self, monotonic: float) -> None:
        """Do nothing: a database in memory cannot be replaced or removed."""

    def reader(self) -> apsw.Connection:
        """Return the one connection: nothing runs concurrently here."""
        return self.db

    def close(self) -> None:
        self.db.close(True)

    def drop(self) -> None:
        self.close()


@cache
def _empty() -> bytes:
    db = apsw.Connection(":memory:")
    database.migrate(db)
    db.execute("INSERT INTO meta VALUES ('priority_order', 'lowest_first')")
    image: bytes = db.serialize("main")
    db.close()
    return image


def memory_store(clock: Clock) -> SqliteStore:
    """Open a store that lives as long as the object."""
    return SqliteStore(MemoryDatabase(), clock, threads=False, max_pending=1_000_000)


def memory_logs() -> logs.SqliteLogs:
    """Open a store of output that lives as long as the object."""
    return logs.SqliteLogs.open_in_memory()
