"""A write transaction that opens asks for capacity and claims for it: what it asks, claims and tells, on every store."""

import asyncio

import pytest

from stoker.domain.errors import StoreUnavailable
from stoker.store.base import Store
from stoker.store.claims import ClaimRequest, Granted
from tests.conformance.steps import (
    a_job,
    a_request,
    a_worker,
    claim,
    claimed,
    end,
    ids,
    look,
    submit,
    submitted,
)
from tests.support.jobs import jobs_of
from tests.support.turns import turns


class Workers:
    """One worker with so many threads, which wants work until it has some."""

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self.wants = True
        self.asked = 0
        self.granted_jobs: list[str] = []
        self.errors: list[Exception] = []
        self._told = asyncio.Event()

    def request(self) -> ClaimRequest | None:
        self.asked += 1
        return a_request(a_worker(threads=self._threads)) if self.wants else None

    def granted(self, granted: Granted) -> None:
        self.granted_jobs += ids(jobs_of(granted.grants))
        self.wants = not self.granted_jobs
        if self.granted_jobs:
            self._told.set()

    def refused(self, error: Exception) -> None:
        self.errors.append(error)
        self._told.set()

    async def told(self) -> list[str]:
        async with asyncio.timeout(10):
            await self._told.wait()
        return self.granted_jobs


async def test_a_job_for_which_a_worker_is_free_is_stored_as_claimed(store: Store) -> None:
    workers, job = Workers(), a_job(store)
    store.claim_for(workers)
    await submit(store, job)
    assert workers.granted_jobs == [job.id], "told before the submitter goes on"
    stored = await look(store, job)
    assert (stored.status, stored.claim_id, stored.worker_id) == ("running", 1, "w1")


async def test_what_was_queued_before_is_claimed_soon(store: Store) -> None:
    job = await submitted(store)
    workers = Workers()
    store.claim_for(workers)
    store.claim_soon()
    assert await workers.told() == [job.id]


async def test_what_a_report_releases_is_claimed(store: Store) -> None:
    job = await claimed(store)
    workers = Workers()
    store.claim_for(workers)
    await end(store, job, "handed_back")
    store.claim_soon()
    assert await workers.told() == [job.id]
    assert (await look(store, job)).claim_id == 2


async def test_once_a_claim_found_nothing_left_no_other_is_opened(store: Store) -> None:
    await submitted(store)
    assert len(await claim(store, a_worker(threads=1))) == 1
    assert await claim(store, a_worker(threads=1)) == []
    workers = Workers()
    store.claim_for(workers)
    for _ in range(3):
        store.claim_soon()
        await turns()
    assert workers.asked == 0


async def test_without_queued_jobs_no_transaction_is_opened_for_a_claim(store: Store) -> None:
    workers = Workers()
    store.claim_for(workers)
    await store.probe()  # which also lets a shared store look at what others left
    asked = workers.asked
    for _ in range(3):
        store.claim_soon()
        await turns()
    assert workers.asked == asked


async def test_no_capacity_claims_nothing(store: Store) -> None:
    workers = Workers()
    workers.wants = False
    store.claim_for(workers)
    job = await submitted(store)
    assert (await look(store, job)).status == "queued"
    assert workers.asked


async def test_once_no_source_is_named_nothing_is_claimed(store: Store) -> None:
    workers = Workers()
    store.claim_for(workers)
    store.claim_for(None)
    job = await submitted(store)
    store.claim_soon()
    await turns()
    assert (await look(store, job)).status == "queued"
    assert workers.asked == 0


async def test_a_claim_that_fails_is_told_and_fails_no_caller(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = Workers()
    monkeypatch.setattr(workers, "request", lambda: "no request at all")
    store.claim_for(workers)
    job = await submitted(store)
    assert (await look(store, job)).status == "queued"
    assert len(workers.errors) == 1
    assert not isinstance(workers.errors[0], StoreUnavailable)
