"""Everything that locks rows, at two owners of one store at once: no two transactions wait for each other in a circle, no
caller is refused, and all of it ends.

`LOCK_ROUNDS=1000` runs it for longer, `LOCK_SEED=2` in another way.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

import pytest
from msgspec.structs import replace

from stoker.domain import extras
from stoker.domain.edit import Changes
from stoker.domain.errors import JobPruned, UniqueConflict
from stoker.domain.extras import Extras
from stoker.domain.job import JobSpec
from stoker.domain.job_batch import batch_of
from stoker.ids import new_id
from stoker.store.base import Store
from stoker.store.bulk import Bulk, BulkAction, BulkStep
from stoker.store.reads import JobFilter
from stoker.store.sessions import Renewal
from stoker.store.submissions import Submission
from stoker.store.upkeep import Retention
from tests.conformance.circles import noticed
from tests.conformance.steps import (
    MINUTE,
    SILENT,
    STEADY,
    a_job,
    a_key,
    a_session,
    a_worker,
    claim,
    ends,
    report,
)
from tests.conformance.stores import books_balance
from tests.conformance.test_shared import Pair, pair
from tests.support.clock import FakeClock
from tests.support.schedules import ScheduleDriver

__all__ = ["pair"]

ROUNDS: Final = int(os.environ.get("LOCK_ROUNDS", "100"))
CALLERS: Final = 12
SEED: Final = os.environ.get("LOCK_SEED", "1")
TYPES: Final = ("a", "b", "c")
SCHEDULES: Final = ("s1", "s2", "s3", "s4")
WORKERS: Final = ("w1", "w2", "w3", "w4")


class Caller:
    """One of many who ask for this and that. All draw from the same few jobs, keys, schedules and sessions."""

    def __init__(self, store: Store, clock: FakeClock, known: list[str], number: int) -> None:
        self.store = store
        self.clock = clock
        self.known = known
        self.random = Random(f"{SEED}/{number}")
        self.schedules = ScheduleDriver(store)

    async def run(self) -> None:
        asked: list[Callable[[], Awaitable[Any]]] = [
            self.submit,
            self.submit,
            self.submit,
            self.cancel,
            self.edit,
            self.replay,
            self.discard,
            self.by_filter,
            self.bulk,
            self.stop_bulk,
            self.work,
            self.work,
            self.keep_up,
            self.set_schedule,
            self.fire,
            self.fire,
        ]
        for _ in range(ROUNDS):
            await self.random.choice(asked)()

    def some(self, count: int) -> list[str]:
        return self.random.sample(self.known, min(count, len(self.known)))

    async def submit(self) -> None:
        made = [self.a_submission() for _ in range(self.random.choice([1, 1, 4]))]
        try:
            accepted = await self.store.insert(made)
        except (UniqueConflict, JobPruned):
            return
        self.known += [item.job.id for item in accepted]
        del self.known[:-60]

    def a_submission(self) -> Submission:
        now = self.store.now_us()
        job = a_job(self.store, type=self.random.choice(TYPES), delay_us=self.random.choice([0, 0, MINUTE]))
        if self.random.random() < 0.7:
            used = Extras(
                unique_key=self.random.choice([None, *"klmnop"]),
                expires_at=self.random.choice([None, now + 2 * MINUTE]),
                keep_sec=self.random.choice([None, 0.0]),
            )
            job = replace(job, extras=extras.encode(used))
        if self.random.random() < 0.3:
            job = replace(job, id=new_id(), digest=b"what was asked..")
        key = (
            a_key(self.store, self.random.choice("xyz"), lives_us=MINUTE)
            if self.random.random() < 0.2
            else None
        )
        on_conflict = self.random.choice(["return", "return", "reject", "replace", "replace"])
        return Submission(batch_of(job), key, on_conflict=on_conflict)  # type: ignore[arg-type]

    async def cancel(self) -> None:
        await self.store.cancel(self.some(3))

    async def edit(self) -> None:
        for id in self.some(1):
            await asyncio.gather(
                self.store.edit(id, Changes(priority=self.random.randrange(1, 4))), return_exceptions=True
            )

    async def replay(self) -> None:
        await self.store.replay(self.some(self.random.choice([1, 12])))

    async def discard(self) -> None:
        await self.store.discard(self.some(3))

    async def by_filter(self) -> None:
        filter = JobFilter(type=self.random.choice(TYPES))
        if self.random.random() < 0.7:
            await self.store.replay_where(filter, 5)
        else:
            await self.store.discard_where(filter, 2)

    async def bulk(self) -> None:
        actions: list[BulkAction] = ["cancel", "retry", "discard"]
        wanted = JobFilter(type=self.random.choice(TYPES))
        now = self.store.now_us()
        bulk = Bulk(new_id(), self.random.choice(actions), wanted, "running", 0, False, 0, 0, now)
        await self.store.put_bulk(bulk)
        for bulk in await self.store.bulks(3, running=True):
            found = await self.store.bulk_candidates(bulk, 4)
            await self.store.bulk_step(BulkStep(bulk, [seq for seq, _ in found], len(found) < 4))

    async def stop_bulk(self) -> None:
        for bulk in await self.store.bulks(2, running=True):
            await self.store.stop_bulk(bulk.id)

    async def work(self) -> None:
        name = self.random.choice(WORKERS)
        await self.store.open_session(a_session(self.store, name))
        self.store.look_again()
        jobs = await claim(self.store, a_worker(name, threads=6, types=TYPES))
        kinds = [
            self.random.choice(["completed", "completed", "invalid", "invalid", "error", None]) for _ in jobs
        ]
        reports = [report(job, kind) for job, kind in zip(jobs, kinds, strict=True) if kind is not None]  # type: ignore[arg-type]
        if reports:
            await ends(self.store, self.random.sample(reports, len(reports)))
        await self.store.renew([Renewal(name, 1) for name in WORKERS[: self.random.randrange(1, 5)]])

    async def keep_up(self) -> None:
        self.clock.advance(self.random.choice([1, 5, 61]))
        await asyncio.gather(
            self.store.expire(self.store.now_us() - SILENT, STEADY),
            self.store.promote(100),
            self.store.end_overdue(100),
            self.store.correct_times(100),
            self.store.purge(Retention(completed_us=5 * MINUTE, failed_us=10 * MINUTE), 100),
        )

    async def set_schedule(self) -> None:
        names = self.random.sample(SCHEDULES, 2)
        await asyncio.gather(*(self.set(name) for name in names))

    async def set(self, name: str) -> None:
        overlap = self.random.choice(["allow", "skip", "queue_one", "cancel_previous"])
        job = JobSpec(type=self.random.choice(TYPES), unique_key=self.random.choice([None, "k", "m"]))
        await self.schedules.set(name, job=job, overlap=overlap)

    async def fire(self) -> None:
        await self.schedules.fire()


async def test_all_together(pair: Pair, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    circles = noticed(monkeypatch)
    known: list[str] = []
    callers = [Caller(pair[number % 2], clock, known, number) for number in range(CALLERS)]
    async with asyncio.timeout(60 + ROUNDS):
        await asyncio.gather(*(caller.run() for caller in callers))
    assert circles == []
    await books_balance(pair.a)
