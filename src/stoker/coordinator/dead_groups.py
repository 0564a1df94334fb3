"""Groups of dead letters for the API. Counting them reads the index of all failed jobs, so with many of those the last
answer is kept, and counted anew in the background.

An answer says when it was counted. The first is counted when a coordinator starts, before anything asks for it.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog
from msgspec.structs import replace

from stoker.coordinator.counts import sum_by_status
from stoker.coordinator.observers import JobObserver
from stoker.domain.errors import StoreUnavailable
from stoker.domain.job import Job
from stoker.store.base import Store
from stoker.store.reads import DeadLetterGroups

MOST: Final = 1_000
"""Groups that are kept: as many as a request can ask for."""
COUNTED_FRESH: Final = 20_000
"""Up to this many failed jobs the groups are counted for every request."""
RENEW_SECONDS: Final = 5.0
"""An answer that is older than this is counted anew when it is asked for."""
RENEW_TIMES: Final = 50
"""An answer is kept for this many times as long as it took to count, so that counting takes 2% of a core at most."""
LOOK_SECONDS: Final = 30.0
"""How often to check whether jobs failed or were purged; if so, groups are counted before a request needs them."""
OLD_SECONDS: Final = 300.0
"""Older than this they are counted then in any case: another coordinator may have discarded some."""
WAIT_SECONDS: Final = 0.02
"""A request waits so long for a count under way, if there is an earlier answer to give."""

log = structlog.get_logger()


class Kept(NamedTuple):
    """An answer that is kept."""

    groups: DeadLetterGroups
    at: float
    failed: int
    changes: int
    """How many changes were known when the count began."""
    seconds: float
    """How long it took to count."""


class DeadGroups(JobObserver):
    """Counts dead letters by group. Code that changes dead letters calls `outdated`."""

    def __init__(self, store: Store, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._monotonic = monotonic
        self._kept: Kept | None = None
        self._changes = 0
        self._counting: asyncio.Task[Kept] | None = None

    async def run(self) -> None:
        """Keep an answer at hand while there are many dead letters."""
        while True:
            try:
                await self._look()
            except (StoreUnavailable, MemoryError) as error:
                log.warning("dead_letter_groups_not_counted", detail=str(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        failed = await self._failed()
        if failed <= COUNTED_FRESH:
            self._kept = None
        elif self._kept is None or self._kept.failed != failed or self._is_older(OLD_SECONDS):
            await asyncio.shield(self._count(failed))

    async def get(self, limit: int) -> DeadLetterGroups:
        failed = await self._failed()
        if failed <= COUNTED_FRESH:
            return await self._store.dead_letter_groups(limit)
        kept = self._kept
        if kept is None:
            kept = await asyncio.shield(self._count(failed))
        elif self._is_older(max(RENEW_SECONDS, RENEW_TIMES * kept.seconds)):
            await asyncio.wait({self._count(failed)}, timeout=WAIT_SECONDS)
            kept = self._kept or kept
        return replace(kept.groups, groups=kept.groups.groups[:limit])

    def outdated(self) -> None:
        """Dead letters changed: what was counted before is out of date."""
        self._changes += 1

    def ended_waiting(self, jobs: Sequence[Job], *, overdue: bool) -> None:
        if overdue:
            self.outdated()

    def close(self) -> None:
        """Give up a count under way."""
        if self._counting is not None:
            self._counting.cancel()

    def _is_older(self, seconds: float) -> bool:
        kept = self._kept
        return kept is None or kept.changes != self._changes or self._monotonic() - kept.at >= seconds

    async def _failed(self) -> int:
        return sum_by_status(await self._store.counts())["failed"]

    def _count(self, failed: int) -> "asyncio.Task[Kept]":
        """Count, one count at a time for all callers that wait for it."""
        if self._counting is None:
            self._counting = asyncio.create_task(self._counted(failed), name="stoker-dead-letter-groups")
            self._counting.add_done_callback(self._over)
        return self._counting

    async def _counted(self, failed: int) -> Kept:
        at, changes = self._monotonic(), self._changes
        groups = await self._store.dead_letter_groups(MOST)
        self._kept = Kept(groups, at, failed, changes, self._monotonic() - at)
        return self._kept

    def _over(self, task: "asyncio.Task[Kept]") -> None:
        """A count that failed in the background is tried again by the next request that needs it."""
        self._counting = None
        if not task.cancelled():
            task.exception()
