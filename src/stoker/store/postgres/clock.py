"""The clock of the shared store is the server's.

Whatever judges (leases, due times) reads it in the statement; `now_us` is an estimate of it for everything else, taken from
the monotonic clock since the last reading, so that a jump of this machine's clock means nothing.
"""

import asyncio
from typing import Final

from stoker.clock import Clock
from stoker.domain.errors import StoreUnavailable
from stoker.store.postgres.database import Database
from stoker.store.postgres.rows import Q

CLOCK_SECONDS: Final = 5.0


class ServerClock:
    """The server's clock, as seen from here."""

    def __init__(self, clock: Clock, *, own: bool) -> None:
        self._clock = clock
        self._own = own
        self._server_us = 0
        self._read_at = 0.0

    def now_us(self) -> int:
        if self._own:
            return self._clock.now_us()
        return self._server_us + int((self._clock.monotonic() - self._read_at) * 1_000_000)

    def judge(self) -> int | None:
        """Return the time to judge by, None for the server's own."""
        return self._clock.now_us() if self._own else None

    async def set(self, database: Database) -> None:
        asked_at = self._clock.monotonic()
        ((server_us, read_only),) = await database.fetch(Q["now"])
        answered_at = self._clock.monotonic()
        self._server_us, self._read_at = int(server_us), (asked_at + answered_at) / 2
        if read_only:
            # Reads would go on for ever from a server that is not the primary any more, and find nothing new.
            await database.replace_connections("the server is read-only")

    async def keep(self, database: Database) -> None:
        while True:
            await asyncio.sleep(CLOCK_SECONDS)
            try:
                await self.set(database)
            except StoreUnavailable:
                pass  # the last reading is good for a long time
