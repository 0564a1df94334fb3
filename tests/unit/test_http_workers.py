"""Workers that lease over HTTP: a job that was claimed for a request which is not there any more finds its way back."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from stoker.coordinator.assembly import Coordinator
from stoker.coordinator.http_workers import Ask
from stoker.domain.byte_bounds import ByteBounds
from stoker.domain.job import Job
from stoker.logs.log import JobLog
from stoker.settings import Settings
from stoker.store.sqlite.logs import SqliteLogs
from stoker.store.sqlite.store import SqliteStore
from stoker.wire.http import HttpAssignment, HttpHello
from tests.conformance.steps import a_job
from tests.support.clock import FakeClock
from tests.support.in_loop import in_loop
from tests.support.jobs import a_submission

SOON_SECONDS = 5


class House:
    """A coordinator over a real store, and one worker that speaks HTTP."""

    def __init__(self, coordinator: Coordinator, store: SqliteStore) -> None:
        self.coordinator = coordinator
        self.store = store
        self.worker = ""

    async def submit(self) -> Job:
        job = a_job(self.store, type="echo")
        (accepted,) = (await self.coordinator.jobs.submit([a_submission(job)])).accepted
        return accepted.job

    async def lease(self, wait: float = SOON_SECONDS) -> list[HttpAssignment]:
        return await self.coordinator.http_workers.lease(self.worker, 1, wait)

    async def waiting(self) -> "asyncio.Task[list[HttpAssignment]]":
        """A lease that waits."""
        before = len(self.asks)
        task = asyncio.create_task(self.lease())
        async with asyncio.timeout(SOON_SECONDS):
            while len(self.asks) == before:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
        return task

    @property
    def asks(self) -> list[Ask]:
        return self.coordinator.http_workers._mail[self.worker].asks

    async def attempts(self, job: Job) -> list[Any]:
        return [(attempt.kind, attempt.charged) for attempt in await self.store.attempts(job.id)]


@pytest.fixture
def house(tmp_path: Path, clock: FakeClock) -> House:
    @asynccontextmanager
    async def make() -> AsyncIterator[House]:
        store = await SqliteStore.open(tmp_path / "stoker.db", clock, threads=False)
        logs = SqliteLogs.open(tmp_path / "stoker-logs.db", threads=False)
        coordinator = Coordinator(Settings(), store, clock, JobLog(stream=io.StringIO()), logs)
        coordinator.start()
        house = House(coordinator, store)
        house.worker = (await coordinator.http_workers.register(HttpHello("w", 1, ("echo",)))).id
        yield house
        await coordinator.stop()
        await store.close()
        await logs.close()

    return in_loop(make)


async def given_up(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_lease_that_is_given_up_leaves_the_job_to_the_next(house: House) -> None:
    await given_up(await house.waiting())
    job = await house.submit()
    (leased,) = await house.lease()
    assert (leased.id, leased.attempt) == (job.id, 1)


async def test_a_job_that_comes_for_a_lease_in_the_moment_it_is_given_up_goes_back_uncharged(
    house: House,
) -> None:
    waiting = await house.waiting()
    (ask,) = house.asks
    arrived = ask.arrived.set
    ask.arrived.set = lambda: (arrived(), waiting.cancel())  # type: ignore[method-assign,assignment]
    job = await house.submit()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    (leased,) = await house.lease()
    assert (leased.id, leased.attempt, leased.claim_id) == (job.id, 1, 2)
    assert await house.attempts(job) == [("handed_back", False), (None, True)]


async def test_a_job_that_comes_when_nobody_waits_any_more_goes_back_uncharged(house: House) -> None:
    await given_up(await house.waiting())
    session = house.coordinator._sessions.get(house.worker)
    assert session is not None
    session.wanted = 1  # the claim was being made when it left
    job = await house.submit()
    (leased,) = await house.lease()
    assert (leased.id, leased.attempt) == (job.id, 1)
    assert await house.attempts(job) == [("handed_back", False), (None, True)]


async def test_an_answer_that_reached_nobody_gives_its_jobs_back(house: House) -> None:
    job = await house.submit()
    lost = await house.lease()
    house.coordinator.http_workers.undelivered(house.worker, lost)
    (leased,) = await house.lease()
    assert (leased.id, leased.attempt, leased.claim_id) == (job.id, 1, 2)
    house.coordinator.http_workers.undelivered(house.worker, lost)
    assert await house.lease(wait=0.01) == []
    assert await house.attempts(job) == [("handed_back", False), (None, True)], "what is held now stays"


async def test_the_latest_lease_is_served_first(house: House) -> None:
    """The earlier one may wait for a client whose network is gone, without a word of it."""
    early, late = await house.waiting(), await house.waiting()
    job = await house.submit()
    assert [leased.id for leased in await late] == [job.id]
    assert not early.done()
    await given_up(early)


async def test_an_answer_to_a_lease_has_as_many_jobs_as_fit_by_bytes(house: House) -> None:
    house.coordinator._dispatch.bounds = ByteBounds(claim=30_000, line=30_000, held=30_000)
    worker = (await house.coordinator.http_workers.register(HttpHello("many", 50, ("echo",)))).id
    payload = Raw(b'"' + b"x" * 10_000 + b'"')
    jobs = [a_job(house.store, type="echo", payload=payload) for _ in range(5)]
    await house.store.insert([a_submission(job) for job in jobs])
    leased: list[str] = []
    while len(leased) < len(jobs):
        answer = await house.coordinator.http_workers.lease(worker, 50, SOON_SECONDS)
        assert 1 <= len(answer) <= 2
        leased += [job.id for job in answer]
    assert leased == [job.id for job in jobs]
