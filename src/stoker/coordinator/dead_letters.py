"""Dead letters, as the API uses them: run them again, discard them, show them in groups."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from stoker.bus.cache import JobCache
from stoker.coordinator.dead_groups import DeadGroups
from stoker.coordinator.events import Events
from stoker.domain.job import Job
from stoker.domain.lifecycle import FINAL
from stoker.domain.unique import taken_by_replay
from stoker.store.base import Store
from stoker.store.reads import WHOLE_JOBS, JobFilter

STEP: Final = 1_000
"""Jobs that one transaction changes."""

log = structlog.get_logger()


class DeadLetterService:
    """Lists, replays and discards dead letters for the API. They are named by `ids`, or else match `filter`."""

    def __init__(
        self,
        store: Store,
        cache: JobCache,
        *,
        groups: DeadGroups,
        events: Events,
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._cache = cache
        self._groups = groups
        self._events = events
        self._wake = wake
        self.groups = groups.get

    async def replay(
        self, ids: Sequence[str] | None, filter: JobFilter | None, limit: int | None = None
    ) -> int:
        """Run dead letters again; of those that match at most `limit`. Return how many."""
        if ids is not None:
            await self._cache.forget(ids)
            dead = [job.id for job in await self._named(ids)]
            after = await self._store.replay(dead) if dead else []
            count = sum(job is not None and job.status not in FINAL for job in after)
            self._events.changed(dead)
        else:
            wanted = filter or JobFilter()
            count = await self._in_steps(lambda most: self._store.replay_where(wanted, most), limit)
            self._events.changed_many(count)
        self._groups.outdated()
        self._wake()
        log.info("dead_letters_replayed", count=count)
        return count

    async def discard(
        self, ids: Sequence[str] | None, filter: JobFilter | None, limit: int | None = None
    ) -> int:
        """Take dead letters off the list; of those that match at most `limit`. Return how many."""
        if ids is not None:
            await self._cache.forget(ids)
            count = await self._store.discard(ids)
            self._events.changed(ids)
        else:
            wanted = filter or JobFilter()
            count = await self._in_steps(lambda most: self._store.discard_where(wanted, most), limit)
            self._events.changed_many(count)
        self._groups.outdated()
        self._events.look_soon()
        log.info("dead_letters_discarded", count=count)
        return count

    async def keys_taken(self, ids: Sequence[str] | None, filter: JobFilter | None) -> int:
        """Return how many of these dead letters cannot be replayed now, because other jobs hold their unique keys."""
        if ids is None:
            return await self._store.keys_taken(filter or JobFilter())
        return sum(taken_by_replay(job) is not None for job in await self._named(ids))

    async def _named(self, ids: Sequence[str]) -> list[Job]:
        """Return the dead letters among these jobs."""
        return [
            job
            for first in range(0, len(ids), WHOLE_JOBS)
            for job in await self._store.get(ids[first : first + WHOLE_JOBS])
            if job is not None and job.status == "failed" and job.discarded_at is None
        ]

    async def _in_steps(self, step: Callable[[int], Awaitable[int]], limit: int | None) -> int:
        """Repeat the step until it changes nothing, or `limit` is reached. Return how many jobs were changed. The cache is
        emptied before each step, so that no reader gets the jobs as they were."""
        total = 0
        while limit is None or total < limit:
            await self._cache.forget_all()
            count = await step(STEP if limit is None else min(STEP, limit - total))
            if not count:
                break
            total += count
        return total
