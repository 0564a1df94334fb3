"""Bulk operations: cancel, retry or discard whatever matches a filter, however many that are.

An operation is a row of the store. Any coordinator works on any of them: it reads which jobs come next, then does it to
them and moves the operation's cursor, both in one transaction. When two want the same step, one gets it. When a coordinator
dies, another, or the same after its restart, goes on at the cursor: nothing is done twice, and nothing is left out.
"""

import asyncio
from typing import Final

import structlog

from stoker.bus.cache import JobCache
from stoker.coordinator.dead_groups import DeadGroups
from stoker.coordinator.events import LATEST_BULKS, Events
from stoker.coordinator.jobs import JobService
from stoker.coordinator.observers import Observers
from stoker.coordinator.text_search import with_text
from stoker.domain.errors import MissingError, StoreUnavailable
from stoker.ids import NewId
from stoker.store.base import Store
from stoker.store.bulk import Bulk, BulkAction, BulkStep, BulkStepped, changeable
from stoker.store.reads import JobFilter, JobQuery

STEP: Final = 250
"""Jobs in a step. On SQLite a step of 250 blocks the event loop for 2.4 ms; one of 1,000 for 15 ms."""
LOOK_SECONDS: Final = 1.0
AT_ONCE: Final = 20
"""Operations that are worked on side by side."""

log = structlog.get_logger()


class Bulks:
    """Accepts bulk operations, shows them, and works them off."""

    def __init__(
        self,
        store: Store,
        cache: JobCache,
        *,
        jobs: JobService,
        groups: DeadGroups,
        events: Events,
        observers: Observers,
        new_id: NewId,
    ) -> None:
        self._store = store
        self._cache = cache
        self._jobs = jobs
        self._groups = groups
        self._events = events
        self._observers = observers
        self._new_id = new_id
        self._nudge = asyncio.Event()

    # ── for requests ───────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self, action: BulkAction, filter: JobFilter) -> Bulk:
        """Accept an operation on all jobs that match; it is worked off in the background."""
        filter = await with_text(self._store, filter)
        # Counted before it is narrowed to those that are there now: the counters know more totals than the jobs do.
        page = await self._store.page(JobQuery(changeable(action, filter), limit=1, summary=True))
        now = self._store.now_us()
        bulk = Bulk(self._new_id(), action, filter, "running", page.total, page.total_capped, 0, 0, now)
        await self._store.put_bulk(bulk)
        self._nudge.set()
        self._events.look_soon()
        log.info("bulk_accepted", bulk_id=bulk.id, action=action, total=bulk.total)
        return bulk

    async def get(self, id: str) -> Bulk:
        """Raises MissingError."""
        return _found(await self._store.bulk(id), id)

    async def latest(self) -> list[Bulk]:
        return await self._store.bulks(LATEST_BULKS)

    async def stop(self, id: str) -> Bulk:
        """Raises MissingError."""
        bulk = _found(await self._store.stop_bulk(id), id)
        self._events.look_soon()
        log.info("bulk_stopped", bulk_id=id, status=bulk.status, changed=bulk.changed)
        return bulk

    # ── in the background ──────────────────────────────────────────────────────────────────────────────────────────

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
        if (
            found and bulk.action != "cancel"
        ):  # the cache holds only jobs that are over, which no cancel changes
            await self._cache.forget([id for _, id in found])
        step = BulkStep(bulk, [seq for seq, _ in found], len(found) < STEP)
        stepped = await self._store.bulk_step(step)
        if stepped is not None:
            self._tell(stepped)
        return stepped is not None

    def _tell(self, stepped: BulkStepped) -> None:
        bulk = stepped.bulk
        self._groups.outdated()
        if bulk.action == "cancel":
            self._observers.cancelled(stepped.jobs, 0)
        elif bulk.action == "retry":
            self._jobs.tell_replayed(stepped.jobs)
        elif stepped.jobs:
            self._events.changed([job.id for job in stepped.jobs])
            log.info("dead_letters_discarded", count=len(stepped.jobs))
        self._events.look_soon()
        if bulk.status == "done":
            log.info("bulk_done", bulk_id=bulk.id, done=bulk.done, changed=bulk.changed)

    async def _rest(self) -> None:
        self._nudge.clear()
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._nudge.wait()
        except TimeoutError:
            pass


def _found(bulk: Bulk | None, id: str) -> Bulk:
    if bulk is None:
        raise MissingError(f"there is no bulk operation {id}; GET /bulk lists the latest")
    return bulk
