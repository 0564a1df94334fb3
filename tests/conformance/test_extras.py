"""The column of optional features: it goes with a job wherever the job goes."""

from msgspec.structs import replace

from stoker.domain import extras
from stoker.domain.extras import Extras
from stoker.domain.job import Job
from stoker.domain.job_batch import JobBatch, batches_of
from stoker.domain.retry import claim_of
from stoker.store.base import Store
from stoker.store.submissions import Submission
from tests.conformance.steps import a_job, a_worker, claim, claim_again, end, look, submit

TEXT = extras.encode(Extras(soft_timeout_sec=3.0))


def _with_extras(store: Store) -> Job:
    return replace(a_job(store), extras=TEXT)


async def test_extras_are_there_at_every_step_of_a_job(store: Store) -> None:
    (job,) = await submit(store, _with_extras(store))
    assert (await look(store, job)).extras == TEXT
    (running,) = await claim(store)
    assert running.extras == TEXT
    assert [found.extras for found in await store.held("w1")] == [TEXT]
    await end(store, running, "invalid")
    assert (await look(store, job)).extras == TEXT
    await store.replay([job.id])
    again = await claim_again(store, job)
    assert again.extras == TEXT
    assert claim_of(again).extras == TEXT
    await end(store, again)
    assert (await look(store, job)).extras == TEXT


async def test_a_batch_of_jobs_shares_its_extras(store: Store) -> None:
    jobs = [replace(_with_extras(store), seq=number) for number in range(20)]
    (batch,) = batches_of(
        [replace(job, created_at=jobs[0].created_at, run_at=jobs[0].run_at) for job in jobs]
    )
    assert isinstance(batch, JobBatch)
    await store.insert([Submission(batch)])
    running = await claim(store, a_worker(threads=20))
    assert [job.extras for job in running] == [TEXT] * 20
    stored = await store.get([job.id for job in jobs])
    assert [None if job is None else job.extras for job in stored] == [TEXT] * 20


async def test_a_job_without_extras_has_none(store: Store) -> None:
    (job,) = await submit(store, a_job(store))
    assert (await look(store, job)).extras is None
