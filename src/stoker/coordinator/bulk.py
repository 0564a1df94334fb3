"""Bulk operations: cancel, retry or discard whatever matches a filter, however many that are.

An operation is a row of the store. Any coordinator works on any of them: it reads which jobs come next, then does it to
them and moves the operation's cursor, both in one transaction. When two want the same step, one gets it. When a coordinator
dies, another, or the same after its restart, goes on at the cursor: nothing is done twice, and nothing is left out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from stoker.domain.errors import StoreUnavailable
from stoker.store.base import Store
from stoker.store.bulk import Bulk, BulkAction, BulkStep, BulkStepped

STEP: Final = 250
"""Jobs in a step. On SQLite a step of 250 blocks the event loop for 2.4 ms; one of 1,000 for 15 ms."""
LOOK_SECONDS: Final = 1.0
AT_ONCE: Final = 20
"""Operations that are worked on side by side."""

log = structlog.get_logger()


class Bulks:
    """`before` is told which jobs are about to be changed, `done` what a step did."""

    def __init__(
        self,
        store: Store,
        *,
        before: Callable[[BulkAction, Sequence[str]], Awaitable[None]],
        done: Callable[[BulkStepped], None],
    ) -> None:
        self._store = store
        self._before = before
        self._done = done
        self._nudge = asyncio.Event()

    def nudge(self) -> None:
        """An operation was accepted: begin now."""
        self._nudge.set()

    async def run(self) -> None:
        while True:
            try:
                worked = await self.work()
            except Exception as error:
                log.error("bulk_failed", detail=str(error), exc_info=not isinstance(error, StoreUnavailable))
                worked = False
            if not worked:
                await self._rest()

    async def work(self) -> bool:
        """A step of each operation that is not over; whether there was one to take."""
        bulks = await self._store.bulks(AT_ONCE, running=True)
        taken = [await self._step(bulk) for bulk in bulks]
        return any(taken)

    async def _step(self, bulk: Bulk) -> bool:
        found = await self._store.bulk_candidates(bulk, STEP)
        await self._before(bulk.action, [id for _, id in found])
        step = BulkStep(bulk, [seq for seq, _ in found], len(found) < STEP)
        stepped = await self._store.bulk_step(step)
        if stepped is not None:
            self._done(stepped)
        return stepped is not None

    async def _rest(self) -> None:
        self._nudge.clear()
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._nudge.wait()
        except TimeoutError:
            pass
