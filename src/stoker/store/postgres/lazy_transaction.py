"""A transaction on PostgreSQL that costs no exchange with the server for its BEGIN before it has something to say.

A transaction of one statement needs neither BEGIN nor COMMIT; see docs/decisions/0015.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from asyncpg.pool import PoolConnectionProxy


class Statements(Protocol):
    """What runs statements: a connection, or a transaction that begins with the first of them."""

    async def execute(self, sql: str, /, *values: Any) -> str: ...
    async def fetch(self, sql: str, /, *values: Any) -> list[Any]: ...
    async def fetchval(self, sql: str, /, *values: Any) -> Any: ...


class LazyTransaction:
    """A write transaction that begins with its first statement, so that one without any exchanges nothing with the server.

    `link` is the connection itself, for reads that need no transaction. One statement may be all of it (`alone`), which
    saves the exchanges for BEGIN and COMMIT.
    """

    def __init__(self, link: PoolConnectionProxy, begin: str) -> None:
        self.link = link
        self._begin = begin
        self.begun = False

    async def begin(self) -> None:
        if not self.begun:
            self.begun = True
            await self.link.execute(self._begin)

    async def alone(self, sql: str, /, *values: Any) -> list[Any]:
        """Run a statement which is a transaction by itself, unless one has begun."""
        return await (self.link.fetch(sql, *values) if self.begun else self.end(sql, *values))

    async def commit(self) -> None:
        if self.begun:
            await self.end("COMMIT")

    async def end(self, sql: str, /, *values: Any) -> list[Any]:
        """Run the statement with which everything is durable."""
        if values:
            return await self.link.fetch(sql, *values)
        await self.link.execute(sql)
        return []

    async def execute(self, sql: str, /, *values: Any) -> str:
        await self.begin()
        return await self.link.execute(sql, *values)

    async def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> None:
        await self.begin()
        await self.link.executemany(sql, rows)

    async def fetch(self, sql: str, /, *values: Any) -> list[Any]:
        await self.begin()
        return await self.link.fetch(sql, *values)

    async def fetchrow(self, sql: str, /, *values: Any) -> Any:
        await self.begin()
        return await self.link.fetchrow(sql, *values)

    async def fetchval(self, sql: str, /, *values: Any) -> Any:
        await self.begin()
        return await self.link.fetchval(sql, *values)

    async def copy_records_to_table(
        self, table: str, *, schema_name: str, columns: Sequence[str], records: Iterable[Sequence[Any]]
    ) -> None:
        await self.begin()
        await self.link.copy_records_to_table(
            table, schema_name=schema_name, columns=columns, records=records
        )
