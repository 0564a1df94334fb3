"""Jobs that are alike, stored, handed out and completed by the batch: nobody can tell it from the jobs themselves."""

import asyncio

import pytest
from msgspec.structs import replace

from stoker.domain.job import Job
from stoker.domain.job_batch import JobBatch, batches_of
from stoker.domain.placement import PREFETCH_US
from stoker.domain.retry import claim_of
from stoker.store.base import Store
from stoker.store.outcomes import Completions
from stoker.store.reads import JobFilter, JobQuery
from stoker.store.submissions import Submission
from tests.conformance.steps import a_job, a_request, a_worker, claim, look, status_of
from tests.support.clock import FakeClock
from tests.support.jobs import jobs_of

SIZES = [1, 2, 7, 8, 9, 150]
QUICK = {"echo": 100}


def a_batch(store: Store, size: int, **fields: object) -> JobBatch:
    """So many jobs, created one after the other, that differ in what is their own."""
    template = a_job(store, **fields)  # type: ignore[arg-type]
    jobs = [
        replace(
            a_job(store, **fields),  # type: ignore[arg-type]
            seq=n,
            payload=b'{"n": %d}' % n,
            created_at=template.created_at + n,
            run_at=template.run_at + n if template.run_at == template.created_at else template.run_at,
        )
        for n in range(size)
    ]
    (batch,) = batches_of(jobs)
    return batch


async def insert(store: Store, *batches: JobBatch) -> list[Job]:
    accepted = await store.insert([Submission(batch) for batch in batches])
    assert not any(item.repeated for item in accepted)
    return [job for item in accepted for job in item.batch]


async def stored(store: Store, jobs: list[Job]) -> list[Job]:
    return [await look(store, job) for job in jobs]


def own(jobs: list[Job]) -> list[tuple[str, bytes, int, int]]:
    return [(job.id, job.payload, job.created_at, job.run_at) for job in jobs]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("delay_us", [0, 5_000_000])
async def test_a_batch_is_stored_as_its_jobs(store: Store, size: int, delay_us: int) -> None:
    batch = a_batch(store, size, delay_us=delay_us, name="n", labels={"a": "b"}, metadata={"c": "d"})
    jobs = await insert(store, batch)
    assert own(jobs) == own(list(batch))
    assert await stored(store, jobs) == jobs
    assert {job.status for job in jobs} == {"scheduled" if delay_us else "queued"}
    assert sum(count.count for count in await store.counts()) == size


async def test_the_answer_is_in_the_order_of_the_question(store: Store) -> None:
    batches = [
        a_batch(store, 9),
        a_batch(store, 1, priority=5),
        a_batch(store, 20),
        a_batch(store, 3, type="other"),
    ]
    jobs = await insert(store, *batches)
    assert own(jobs) == [place for batch in batches for place in own(list(batch))]
    assert [job.seq for job in jobs] == sorted(job.seq for job in jobs)


async def test_batches_of_several_callers_share_a_transaction(store: Store) -> None:
    batches = [a_batch(store, size) for size in (1, 1, 12, 1, 8)]
    answers = await asyncio.gather(*(insert(store, batch) for batch in batches))
    for batch, jobs in zip(batches, answers, strict=True):
        assert own(jobs) == own(list(batch))
        assert await stored(store, jobs) == jobs


async def test_ids_of_any_length_can_be_alike(store: Store) -> None:
    """Where a store takes other ids than UUIDs at all."""
    batch = a_batch(store, 12)
    odd = batch.changed(replace(batch.template, id="a"))
    odd.ids[:] = ["a", "bb", *odd.ids[2:]]
    if store.shared:
        return
    jobs = await insert(store, odd)
    assert [job.id for job in await stored(store, jobs)] == odd.ids


@pytest.mark.parametrize("size", SIZES)
async def test_a_batch_beside_a_claim_is_stored_as_claimed_as_far_as_there_is_room(
    store: Store, size: int
) -> None:
    batch = a_batch(store, size)
    worker = a_worker(threads=2, prefetch_us=50 * 100)
    jobs, granted = await asyncio.gather(insert(store, batch), store.claim(a_request(worker, run_us=QUICK)))
    running = jobs_of(granted.grants)
    assert [job.id for job in running] == [job.id for job in jobs][: len(running)]
    if running:
        assert len(running) == min(size, 50)
    assert await stored(store, running) == running
    rest = await claim(store, a_worker("w2", threads=200))
    assert [job.id for job in running + rest] == [job.id for job in jobs]
    assert {job.claim_id for job in running + rest} == {1}


@pytest.mark.parametrize("size", [1, 5, 40])
@pytest.mark.parametrize("before", [True, False])
async def test_a_batch_is_dealt_out_in_turns(store: Store, size: int, before: bool) -> None:
    """Stored long before or in the same moment: to each worker its own, none to two of them."""
    batch = a_batch(store, size)
    workers = [a_worker(name, threads=1, prefetch_us=PREFETCH_US) for name in ("a", "b", "c")]
    if before:
        await insert(store, batch)
        granted = await store.claim(a_request(*workers, run_us=QUICK))
    else:
        _, granted = await asyncio.gather(
            insert(store, batch), store.claim(a_request(*workers, run_us=QUICK))
        )
        again = await store.claim(a_request(*workers, run_us=QUICK))
        granted = replace(granted, grants=[*granted.grants, *again.grants])
    running = jobs_of(granted.grants)
    assert sorted(job.id for job in running) == sorted(batch.ids)
    assert await stored(store, running) == running
    shares = [
        sum(len(grant.batch) for grant in granted.grants if grant.session_id == name)
        for name in ("a", "b", "c")
    ]
    assert max(shares) - min(shares) <= 1
    for grant in granted.grants:
        assert {job.worker_id for job in grant.batch} == {grant.session_id}


def completed(jobs: list[Job]) -> list[Completions]:
    """These jobs, as the coordinator tells that they completed."""
    return [
        Completions(
            claim_of(batch.template),
            batch.ids,
            list(batch.seqs),
            batch.created,
            [at + 5 for at in batch.created],
            [at + 9 for at in batch.created],
            [3] * len(batch),
            [4] * len(batch),
            [b'"of %b"' % payload.replace(b'"', b"'") for payload in batch.payloads],
        )
        for batch in batches_of(jobs)
    ]


@pytest.mark.parametrize("size", SIZES)
async def test_a_batch_is_completed_as_its_jobs(store: Store, size: int) -> None:
    await insert(store, a_batch(store, size))
    jobs = await claim(store, a_worker(threads=size))
    assert await store.complete(completed(jobs)) == set()
    for n, job in enumerate(await stored(store, jobs)):
        assert (job.status, job.result, job.error) == ("completed", b"\"of {'n': %d}\"" % n, None)
        assert (job.started_at, job.completed_at) == (job.created_at + 5, job.created_at + 9)
        assert (job.cpu_us, job.peak_memory_kb) == (3, 4)
    page = await store.page(JobQuery(JobFilter(status="completed"), limit=1))
    assert page.total == size


async def test_of_a_batch_only_the_stale_are_refused_and_the_same_again_is_not(
    store: Store, clock: FakeClock
) -> None:
    await insert(store, a_batch(store, 130))
    jobs = await claim(store, a_worker(threads=130))
    assert await store.complete(completed(jobs[:3])) == set()
    late = {(jobs[n].id, 7) for n in (50, 120)}
    mixed = [replace(job, claim_id=7) if n in (50, 120) else job for n, job in enumerate(jobs)]
    assert await store.complete(completed(mixed)) == late
    assert await status_of(store, jobs[50]) == "running"
    assert await store.complete(completed(jobs)) == set()
    counts = {count.status: count.count for count in await store.counts()}
    assert {status: number for status, number in counts.items() if number} == {"completed": 130}


async def test_nothing_completed_is_nothing_to_do(store: Store) -> None:
    assert await store.complete([]) == set()
