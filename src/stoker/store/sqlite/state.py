"""What the steps of a write transaction of the embedded store share."""

from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

import apsw

from stoker.domain.job import Job
from stoker.domain.placement import Lane
from stoker.store.sqlite.memory import SqliteMemory
from stoker.store.sqlite.rows import COLUMN_LIST, LIGHT_LIST, Q
from stoker.store.sqlite.time_limits import SqliteTimeLimits
from stoker.store.sqlite.unique import SqliteUniqueKeys
from stoker.store.transaction_state import TransactionState

_BY_SEQ: Final = Q["job_by_seq"].format(columns=COLUMN_LIST)
_BY_ID: Final = Q["job_by_id"].format(columns=COLUMN_LIST)
_LIGHT_BY_SEQ: Final = Q["job_by_seq"].format(columns=LIGHT_LIST)
_LIGHT_BY_ID: Final = Q["job_by_id"].format(columns=LIGHT_LIST)

ROWS_PER_STATEMENT: Final = 100


class SqliteTransactionState(TransactionState):
    """The connection, the store's memory, and what the transaction changes in it."""

    def __init__(self, db: apsw.Connection, memory: SqliteMemory, now: int) -> None:
        super().__init__(now)
        self._db = db
        self._memory = memory
        self._lanes: dict[Lane, int] = {}
        """Lanes that this transaction makes."""
        self._lane_ids: dict[tuple[Any, ...], int] = {}
        self._paused = memory.paused
        self._seq = memory.next_seq
        self._unique = SqliteUniqueKeys(db, now)
        self._limits = SqliteTimeLimits(db)

    def _changed(self, statement: str, *values: Any) -> bool:
        self._db.execute(statement, values)
        return self._db.changes() > 0

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._db.execute(statement, values).fetchall()

    def _by_seq(self, seq: int) -> Job | None:
        row = self._db.execute(_BY_SEQ, (seq,)).fetchone()
        return None if row is None else Job(*row)

    def _by_id(self, id: str) -> Job | None:
        row = self._db.execute(_BY_ID, (id,)).fetchone()
        return None if row is None else Job(*row)

    def _light_by_seq(self, seq: int) -> Job | None:
        row = self._db.execute(_LIGHT_BY_SEQ, (seq,)).fetchone()
        return None if row is None else Job(*row)

    def _light_by_id(self, id: str) -> Job | None:
        row = self._db.execute(_LIGHT_BY_ID, (id,)).fetchone()
        return None if row is None else Job(*row)

    def _write_rows(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Run a multi-row statement over all rows in as few steps as the statement's size allows; rows changed."""
        changed = 0
        for first in range(0, len(rows), ROWS_PER_STATEMENT):
            chunk = rows[first : first + ROWS_PER_STATEMENT]
            sql = for_rows(statement, len(chunk), len(chunk[0]))
            self._db.execute(sql, list(chain.from_iterable(chunk)))
            changed += self._db.changes()
        return changed


@cache
def for_rows(statement: str, rows: int, columns: int) -> str:
    """A statement over so many rows, of which there are at most `ROWS_PER_STATEMENT`."""
    one = "(" + ", ".join("?" * columns) + ")"
    return statement.format(rows=", ".join([one] * rows))
