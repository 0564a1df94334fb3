"""Transactions on PostgreSQL that are one statement: new jobs, if they are few or alike, and reports of completed ones."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from stoker.domain.job import Job
from stoker.store.base import Store
from stoker.store.claims import Granted
from stoker.store.postgres.lazy_transaction import LazyTransaction
from stoker.store.postgres.rows import Q
from stoker.store.submissions import Accepted
from tests.conformance.steps import (
    a_job,
    a_request,
    a_worker,
    claim,
    claimed,
    end,
    ends,
    report,
    status_of,
    submit,
)
from tests.conformance.stores import STORES, books_balance, opened
from tests.conformance.test_write_pipelines import somebody_else, until_waiting
from tests.support.clock import FakeClock
from tests.support.jobs import a_submission, jobs_of

(POSTGRES,) = [kind for kind in STORES if kind.name == "postgres"]


@asynccontextmanager
async def a_store(place: Path, clock: FakeClock) -> AsyncIterator[Store]:
    """A store that knows the lane of the jobs here, and that nothing waits in it."""
    async with opened(POSTGRES, place, clock) as store:
        await claimed(store)
        clock.advance(1)
        assert await claim(store) == []
        yield store
        await books_balance(store)


def named(store: Store, **fields: Any) -> Job:
    """A job whose id a client made."""
    return replace(a_job(store, **fields), digest=b"what was asked..")


async def in_and_claimed(store: Store, *jobs: Job) -> tuple[list[Accepted], Granted]:
    """Insert jobs and claim, in one transaction."""
    accepted, granted = await asyncio.gather(
        store.insert([a_submission(job) for job in jobs]), store.claim(a_request(a_worker(threads=8)))
    )
    return accepted, granted


@pytest.mark.parametrize(("count", "expected"), [(1, 0), (3, 0), (8, 0), (9, 1)])
async def test_a_few_jobs_are_stored_and_claimed_without_a_begin(
    place: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, count: int, expected: int
) -> None:
    async with a_store(place, clock) as store:
        begins = count_begins(monkeypatch)
        accepted, granted = await in_and_claimed(store, *(named(store) for _ in range(count)))
        assert len(begins) == expected
        assert not any(item.repeated for item in accepted)
        running = jobs_of(granted.grants)
        assert len(running) == min(count, 8)
        assert {await status_of(store, job) for job in running} == {"running"}


def alike(store: Store, count: int, **fields: Any) -> list[Job]:
    """Jobs that make one batch."""
    one = a_job(store, **fields)
    return [replace(one, id=a_job(store).id, payload=b"%d" % number) for number in range(count)]


@pytest.mark.parametrize(("kinds", "each", "expected"), [(1, 9, 0), (2, 300, 0), (9, 2, 1)])
async def test_jobs_that_are_alike_are_stored_and_claimed_without_a_begin(
    place: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, kinds: int, each: int, expected: int
) -> None:
    async with a_store(place, clock) as store:
        begins = count_begins(monkeypatch)
        jobs = [job for kind in range(kinds) for job in alike(store, each, name=f"kind {kind}")]
        accepted, granted = await in_and_claimed(store, *jobs)
        assert len(begins) == expected
        assert [item.job.id for item in accepted] == [job.id for job in jobs]
        running = {job.id for job in jobs_of(granted.grants)}
        assert len(running) == 8
        for job, stored in zip(jobs, await store.get([job.id for job in jobs]), strict=True):
            assert stored is not None
            assert (stored.payload, stored.name, stored.run_at) == (job.payload, job.name, job.run_at)
            assert stored.status == ("running" if job.id in running else "queued")


async def test_jobs_that_are_alike_and_large_are_not_sent_as_arrays(
    place: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_store(place, clock) as store:
        begins = count_begins(monkeypatch)
        jobs = [replace(job, payload=b'"%b"' % (b"x" * 200_000)) for job in alike(store, 9)]
        await in_and_claimed(store, *jobs)
        assert len(begins) == 1
        assert [job.payload for job in jobs] == [
            job.payload for job in await store.get([job.id for job in jobs]) if job is not None
        ]


async def test_jobs_with_ids_of_clients_that_are_alike_are_recognised(place: Path, clock: FakeClock) -> None:
    async with a_store(place, clock) as store:
        jobs = [replace(job, digest=b"what was asked..") for job in alike(store, 20)]
        first, _ = await in_and_claimed(store, *jobs)
        again, _ = await in_and_claimed(store, *jobs)
        assert not any(item.repeated for item in first)
        assert all(item.repeated for item in again)


@pytest.mark.parametrize("paused", [True, False])
async def test_jobs_that_a_claim_spreads_over_many_workers(
    place: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, *, paused: bool
) -> None:
    """More batches than one statement writes, which is known only when the claim was made without a look at pauses."""
    async with a_store(place, clock) as store:
        if paused:
            await store.set_paused("default", True)
        begins = count_begins(monkeypatch)
        workers = [a_worker(session_id=f"w{number}", threads=2) for number in range(12)]
        jobs = alike(store, 40)
        _, granted = await asyncio.gather(
            store.insert([a_submission(job) for job in jobs]), store.claim(a_request(*workers))
        )
        assert begins
        running = {job.id for job in jobs_of(granted.grants)}
        assert len(running) == (0 if paused else 24)
        for job in jobs:
            assert await status_of(store, job) == ("running" if job.id in running else "queued")


def count_begins(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that gets an entry for every BEGIN from now on."""
    made: list[None] = []
    begin = LazyTransaction.begin

    async def counted(self: LazyTransaction) -> None:
        if not self.begun:
            made.append(None)
        await begin(self)

    monkeypatch.setattr(LazyTransaction, "begin", counted)
    return made


async def test_a_claim_that_can_claim_nothing_asks_the_server_nothing(
    place: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_store(place, clock) as store:
        begins = count_begins(monkeypatch)
        assert await claim(store) == []
        assert begins == []


async def test_a_job_of_a_paused_queue_is_stored_and_not_claimed(place: Path, clock: FakeClock) -> None:
    async with a_store(place, clock) as store:
        await store.set_paused("default", True)
        accepted, granted = await in_and_claimed(store, named(store))
        assert granted.grants == []
        assert await status_of(store, accepted[0].job) == "queued"
        assert not accepted[0].repeated


async def test_a_job_that_comes_while_its_queue_is_paused_is_not_claimed(
    place: Path, clock: FakeClock
) -> None:
    """The pause has not been committed when the job is to be written, and is when it is."""
    async with a_store(place, clock) as store, somebody_else(place) as link, somebody_else(place) as eye:
        async with link.transaction():
            await link.execute(Q["lock_pauses"])
            both = asyncio.create_task(in_and_claimed(store, named(store)))
            await until_waiting(eye, 1)
            await link.execute(Q["pause_queue"], "default", 1)
        accepted, granted = await both
        assert granted.grants == []
        assert await status_of(store, accepted[0].job) == "queued"
        assert not accepted[0].repeated


async def test_a_job_that_moves_to_the_history_while_its_id_is_sent_again_is_not_stored_twice(
    place: Path, clock: FakeClock
) -> None:
    """The second statement began before the job was over, and waited at the index for the one that ends it."""
    async with a_store(place, clock) as store, somebody_else(place) as link, somebody_else(place) as eye:
        job = named(store)
        _, granted = await in_and_claimed(store, job)
        (running,) = jobs_of(granted.grants)
        async with link.transaction():
            await complete(link, running)
            again = asyncio.create_task(in_and_claimed(store, replace(job, created_at=job.created_at + 1)))
            await until_waiting(eye, 1)
        accepted, granted = await again
        assert (accepted[0].job.id, accepted[0].repeated) == (job.id, True)
        assert granted.grants == []
        await link.execute(Q["add_counts"], 99, *zip(*moved(running), strict=True))


async def complete(link: "asyncpg.Connection[Any]", job: Job) -> None:
    """End a job as another coordinator does."""
    row = (job.seq, job.claim_id, job.claimed_at, job.claimed_at, 1, 1, b"1")
    await link.fetch(Q["complete_jobs"], *([value] for value in row))


def moved(job: Job) -> list[tuple[str, str, str, int]]:
    """What the end of a job changes in the counters."""
    return [(job.queue, job.type, "completed", 1), (job.queue, job.type, "running", -1)]


async def test_a_refused_job_leaves_the_others_of_its_transaction_alone(
    place: Path, clock: FakeClock
) -> None:
    async with a_store(place, clock) as store:
        known = named(store)
        await submit(store, known)
        late = replace(known, created_at=known.created_at + 1)
        new = named(store)
        answers = await asyncio.gather(
            store.insert([a_submission(late)]),
            store.insert([a_submission(replace(known, digest=b"something else.."))]),
            store.insert([a_submission(new)]),
            return_exceptions=True,
        )
        assert [item.repeated for item in answers[0]] == [True]  # type: ignore[union-attr]
        assert isinstance(answers[1], Exception)
        assert [item.job.id for item in answers[2]] == [new.id]  # type: ignore[union-attr]


@pytest.mark.parametrize("count", [1, 5, 16, 17, 40])
async def test_completions_are_stored_and_counted_without_a_begin(
    place: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Of two lanes. The counters are compared at the end."""
    async with a_store(place, clock) as store:
        running = [await claimed(store, type="ab"[number % 2]) for number in range(count)]
        begins = count_begins(monkeypatch)
        assert await ends(store, [report(job) for job in running]) == ["completed"] * count
        assert begins == []


async def test_a_completion_that_is_refused_or_sent_twice_leaves_the_counters_alone(
    place: Path, clock: FakeClock
) -> None:
    async with a_store(place, clock) as store:
        done, running, moved_on = [await claimed(store) for _ in range(3)]
        assert await end(store, done) == "completed"
        stale = replace(moved_on, claim_id=moved_on.claim_id + 1)
        sent = [report(job) for job in (done, running, stale)]
        assert await ends(store, sent) == ["completed", "completed", None]
        assert await status_of(store, moved_on) == "running"
