"""Notifications over PostgreSQL: LISTEN and NOTIFY on a separate connection.

The store's transactions never notify, because NOTIFY takes a lock that all notifying commits of a server share. LISTEN
needs a session, so it does not work through a pooler in transaction mode: the bus then gets no echo and logs that, and
coordinators rely on polling.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import asyncpg

from stoker.bus.connected import ConnectedBus, Hear

CHANNEL: Final = "stoker_news"
MAX_BYTES: Final = 7_900
"""PostgreSQL refuses a payload of 8000 bytes."""
ANSWER_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 1.0

_NOTIFY: Final = (
    "SELECT current_setting('transaction_read_only') = 'on', count(pg_notify($1, message)) "
    "FROM unnest($2::text[]) AS message"
)


class PostgresBus(ConnectedBus):
    """A bus over LISTEN and NOTIFY."""

    name = "postgresql"
    max_bytes = MAX_BYTES
    answer_seconds = ANSWER_SECONDS

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    async def _open(self, hear: Hear) -> "PostgresBusConnection":
        connection = await asyncpg.connect(
            self._url,
            timeout=self.answer_seconds,
            command_timeout=self.answer_seconds,
            server_settings={"application_name": "stoker bus"},
        )
        try:
            # A hint is not worth a wait for the disk.
            await connection.execute("SET synchronous_commit = off")
            return await PostgresBusConnection.over(connection, hear)
        except BaseException:
            connection.terminate()
            raise


class PostgresBusConnection:
    """One connection that notifies and listens."""

    def __init__(self, connection: "asyncpg.Connection[Any]") -> None:
        self._connection = connection
        self._lost = asyncio.Event()

    @classmethod
    async def over(cls, connection: "asyncpg.Connection[Any]", hear: Hear) -> "PostgresBusConnection":
        opened = cls(connection)
        connection.add_termination_listener(lambda _: opened._lost.set())
        await connection.add_listener(CHANNEL, lambda _, __, ___, payload: hear(str(payload)))
        return opened

    async def send(self, messages: Sequence[bytes]) -> None:
        read_only = await self._connection.fetchval(
            _NOTIFY, CHANNEL, [message.decode() for message in messages]
        )
        if read_only:
            # It may no longer be the primary, and then the other coordinators use another server.
            raise ConnectionError("the server is read-only")

    async def listen(self) -> None:
        await self._lost.wait()
        raise ConnectionError("the server closed the connection")

    async def close(self) -> None:
        await self._connection.close(timeout=CLOSE_SECONDS)
