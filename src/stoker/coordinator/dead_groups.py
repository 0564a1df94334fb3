"""Groups of dead letters for the API. Counting them reads the index of all failed jobs, so with many of those an answer is
kept for a while."""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from stoker.coordinator.events import sum_by_status
from stoker.store.base import DeadLetterGroups, Store

COUNTED_FRESH: Final = 20_000
"""Up to so many failed jobs the groups are counted for every request."""
RENEW_SECONDS: Final = 5.0
OLD_SECONDS: Final = 30.0
"""A kept answer is renewed in the background when it is older than the first, and not given any more after the second."""


class Kept(NamedTuple):
    groups: DeadLetterGroups
    at: float


class DeadGroups:
    """`forget` is for who changed dead letters: the next answer is counted anew."""

    def __init__(self, store: Store, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._monotonic = monotonic
        self._kept: dict[int, Kept] = {}
        self._counting: dict[int, asyncio.Task[DeadLetterGroups]] = {}

    async def get(self, limit: int) -> DeadLetterGroups:
        if sum_by_status(await self._store.counts())["failed"] <= COUNTED_FRESH:
            return await self._store.dead_letter_groups(limit)
        kept = self._kept.get(limit)
        age = OLD_SECONDS if kept is None else self._monotonic() - kept.at
        if kept is None or age >= OLD_SECONDS:
            return await asyncio.shield(self._count(limit))
        if age >= RENEW_SECONDS:
            self._count(limit)
        return kept.groups

    def forget(self) -> None:
        self._kept.clear()
        self._counting.clear()

    def _count(self, limit: int) -> "asyncio.Task[DeadLetterGroups]":
        """One count at a time for each limit, whoever waits for it."""
        if limit not in self._counting:
            task = self._counting[limit] = asyncio.create_task(self._counted(limit))
            task.add_done_callback(_retrieved)
        return self._counting[limit]

    async def _counted(self, limit: int) -> DeadLetterGroups:
        me = asyncio.current_task()
        at = self._monotonic()
        try:
            groups = await self._store.dead_letter_groups(limit)
            if self._counting.get(limit) is me:
                self._kept[limit] = Kept(groups, at)
            return groups
        finally:
            if self._counting.get(limit) is me:
                del self._counting[limit]


def _retrieved(task: "asyncio.Task[DeadLetterGroups]") -> None:
    """A count that failed in the background is tried again by the next request that needs it."""
    if not task.cancelled():
        task.exception()
