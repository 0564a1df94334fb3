"""The benchmark's own look into a database: what is stored after a run, and nothing while it is measured."""

import asyncio
from types import TracebackType
from typing import Any, Final, Self

import asyncpg

_STOKER_STORED: Final = """
    SELECT
        count(*) AS rows,
        count(DISTINCT payload) FILTER (
            WHERE status = 'completed'
            AND convert_from(payload, 'UTF8')::jsonb = convert_from(result, 'UTF8')::jsonb
        ) AS right,
        (SELECT count(*) FROM stoker.jobs) AS unfinished,
        (SELECT coalesce(sum(count), 0) FROM stoker.counts WHERE status = 'completed') AS counted
    FROM stoker.history
"""
_STOKER_STARTS: Final = """
    SELECT (convert_from(payload, 'UTF8')::jsonb ->> 'n')::int, created_at, started_at FROM stoker.history
"""


class Database:
    """One connection, used from code that is not async."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._connection = self._runner.run(asyncpg.connect(url))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._runner.run(self._connection.fetch(sql))]

    def row(self, sql: str) -> tuple[Any, ...]:
        (row,) = self.rows(sql)
        return row

    def value(self, sql: str) -> Any:
        (value,) = self.row(sql)
        return value


def count_wrong(database: Database, expected: int) -> int:
    """Read every row after a run of Stoker; how many jobs are missing, doubled, not completed or hold another's result."""
    rows, right, unfinished, counted = map(int, database.row(_STOKER_STORED))
    return max(rows + unfinished - right, abs(expected - right), abs(expected - counted))


def started_at_us(database: Database) -> dict[int, tuple[int, int]]:
    """When each of Stoker's jobs was created and started, by the number in its payload, in µs since the epoch."""
    return {number: (created, started) for number, created, started in database.rows(_STOKER_STARTS)}
