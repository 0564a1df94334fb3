"""The stores that the suite holds to `stoker.store.base.Store`. A new store is added to `STORES`, and nowhere else."""

import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from stoker.clock import Clock
from stoker.domain.job import Job, PriorityOrder
from stoker.domain.unique import holds_key, key_of
from stoker.store.base import Store
from stoker.store.postgres.store import PostgresStore
from stoker.store.reads import JobQuery
from stoker.store.sqlite.store import SqliteStore
from tests.support.servers import databases


class Opener(Protocol):
    def __call__(
        self, place: Path, clock: Clock, *, order: PriorityOrder = "lowest_first"
    ) -> Awaitable[Store]:
        """Open the store that belongs to `place`: the same place again is the same store."""
        ...


class StoreKind(msgspec.Struct, frozen=True):
    name: str
    open: Opener
    exclusive: bool
    """Whether it has one owner at a time, who refuses a second."""
    one_transaction: bool
    """Whether calls made at the same time surely share a transaction."""


async def _sqlite_inline(place: Path, clock: Clock, *, order: PriorityOrder = "lowest_first") -> Store:
    return await SqliteStore.open(place / "stoker.db", clock, priority_order=order, threads=False)


async def _sqlite_threads(place: Path, clock: Clock, *, order: PriorityOrder = "lowest_first") -> Store:
    return await SqliteStore.open(place / "stoker.db", clock, priority_order=order, threads=True)


async def _postgres(place: Path, clock: Clock, *, order: PriorityOrder = "lowest_first") -> Store:
    return await PostgresStore.open(databases.url(place), clock, priority_order=order, own_clock=True)


STORES = [
    StoreKind("sqlite", _sqlite_inline, exclusive=True, one_transaction=True),
    StoreKind("sqlite-threads", _sqlite_threads, exclusive=True, one_transaction=True),
    StoreKind("postgres", _postgres, exclusive=False, one_transaction=True),
]


def fast_folder() -> Path | None:
    """A folder in memory where there is one: what a sync costs is not what these tests are about."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else None


@asynccontextmanager
async def opened(
    kind: StoreKind, place: Path, clock: Clock, *, order: PriorityOrder = "lowest_first"
) -> AsyncIterator[Store]:
    """An open store, closed afterwards; whatever was done to it, its books must balance."""
    store = await kind.open(place, clock, order=order)
    try:
        yield store
        await books_balance(store)
    finally:
        await store.close()


async def books_balance(store: Store) -> None:
    """The counters equal a full recount, and no job broke a rule that holds at any time."""
    jobs = await every_job(store)
    recount = Counter((job.queue, job.type, job.status) for job in jobs)
    counted = {(count.queue, count.type, count.status): count.count for count in await store.counts()}
    assert counted == recount
    for job in jobs:
        assert 0 <= job.attempt <= job.max_attempts
        assert (job.completed_at is not None) == (job.status in ("completed", "failed", "cancelled"))
        assert (job.fingerprint is not None) == (job.status == "failed")
        assert job.status != "running" or (job.worker_id and job.threads_granted and job.claimed_at)
    await keys_are_held(store, jobs)


async def keys_are_held(store: Store, jobs: list[Job]) -> None:
    """Each unique key belongs to the one job that should hold it, and to none that should not."""
    keys = {key_of(job.extras) for job in jobs} - {None}
    holders = {key: await store.key_holder(str(key)) for key in keys}
    expected = {key_of(job.extras): job.id for job in jobs if key_of(job.extras) and holds_key(job)}
    assert {key: id for key, id in holders.items() if id is not None} == expected


async def every_job(store: Store) -> list[Job]:
    """All jobs, newest first, by walking the cursor."""
    jobs: list[Job] = []
    before: int | None = None
    while True:
        page = await store.page(JobQuery(limit=1000, before_seq=before))
        jobs += page.jobs
        before = page.next_before_seq
        if before is None:
            return jobs
