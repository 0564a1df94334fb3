"""Retention of single jobs (`keep_sec`), search by metadata, and deliveries of webhooks: what the end of a job leaves
behind."""

import asyncio
from typing import Any

import msgspec
import pytest

from stoker.clock import SECOND
from stoker.domain import extras
from stoker.domain.extras import extras_of
from stoker.domain.job import NO_DEFAULTS, Job, JobSpec, new_job
from stoker.domain.webhooks import RETRIES, WEBHOOK_QUEUE, WEBHOOK_TYPE, Delivery
from stoker.ids import new_id
from stoker.store.base import Store
from stoker.store.reads import JobFilter, JobQuery
from stoker.store.upkeep import Retention
from tests.conformance.steps import SILENT, STEADY, a_session, a_worker, claim, claim_again, end, look, submit
from tests.support.clock import FakeClock

DAY = 86_400 * SECOND
RETENTION = Retention(7 * DAY, 30 * DAY)
URL = "https://hooks.example.com/stoker"


async def stored(store: Store, **fields: Any) -> Job:
    spec, now = JobSpec(**fields), store.now_us()
    job = new_job(
        spec,
        id=new_id(),
        now=now,
        run_at=now,
        max_attempts=2,
        order="lowest_first",
        extras=extras_of(spec, NO_DEFAULTS, now),
    )
    (found,) = await submit(store, job)
    return found


async def running(store: Store, **fields: Any) -> Job:
    return await claim_again(store, await stored(store, **fields))


async def exists(store: Store, job: Job) -> bool:
    return (await store.get([job.id]))[0] is not None


async def deliveries(store: Store) -> list[Job]:
    page = await store.page(JobQuery(JobFilter(queue=WEBHOOK_QUEUE), limit=100))
    return page.jobs


# ── retention ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["completed", "invalid", "cancelled"])
async def test_a_job_that_is_not_to_be_kept_is_gone_after_the_next_purge(store: Store, kind: Any) -> None:
    job, other = await running(store, keep_sec=0), await running(store)
    await end(store, job, kind)
    await end(store, other, kind)
    assert await store.purge(RETENTION, 10) == 1
    assert (await exists(store, job), await exists(store, other)) == (False, True)
    assert await store.attempts(job.id) == []
    assert sum(count.count for count in await store.counts()) == 1


async def test_a_waiting_job_that_is_cancelled_is_kept_as_it_asked(store: Store, clock: FakeClock) -> None:
    job = await stored(store, keep_sec=60)
    await store.cancel([job.id])
    clock.advance(59)
    assert await store.purge(RETENTION, 10) == 0
    clock.advance(1)
    assert await store.purge(RETENTION, 10) == 1


async def test_a_job_can_be_kept_for_longer_than_others(store: Store, clock: FakeClock) -> None:
    kept, other = await running(store, keep_sec=100 * 86_400), await running(store)
    await end(store, kept)
    await end(store, other)
    clock.advance(50 * 86_400)
    assert await store.purge(RETENTION, 10) == 1
    assert (await exists(store, kept), await exists(store, other)) == (True, False)
    later = await running(store)
    await end(store, later)
    clock.advance(51 * 86_400)
    assert await store.purge(RETENTION, 10) == 2
    assert not await exists(store, kept)
    assert not await exists(store, later)


async def test_a_job_that_waits_or_runs_is_not_purged(store: Store, clock: FakeClock) -> None:
    job = await running(store, keep_sec=0)
    await end(store, job, "error")
    clock.advance(1_000)
    assert await store.purge(RETENTION, 10) == 0
    assert await exists(store, job)


async def test_a_replayed_job_is_kept_from_its_last_end_on(store: Store, clock: FakeClock) -> None:
    job = await running(store, keep_sec=60)
    await end(store, job, "invalid")
    await store.replay([job.id])
    clock.advance(100)
    assert await store.purge(RETENTION, 10) == 0
    await end(store, await claim_again(store, job))
    clock.advance(59)
    assert await store.purge(RETENTION, 10) == 0
    clock.advance(1)
    assert await store.purge(RETENTION, 10) == 1


async def test_there_is_time_for_those_who_wait_for_the_end(store: Store, clock: FakeClock) -> None:
    patient = Retention(7 * DAY, 30 * DAY, keep_grace_us=5 * SECOND)
    job = await running(store, keep_sec=0)
    await end(store, job)
    clock.advance(4)
    assert await store.purge(patient, 10) == 0
    clock.advance(1)
    assert await store.purge(patient, 10) == 1


async def test_a_purge_deletes_no_more_than_its_limit(store: Store) -> None:
    for _ in range(5):
        await end(store, await running(store, keep_sec=0))
    assert [await store.purge(RETENTION, 2) for _ in range(4)] == [2, 2, 1, 0]


# ── search by metadata ─────────────────────────────────────────────────────────────────────────────────────────────────


async def found(store: Store, **fields: Any) -> set[str]:
    return {job.id for job in (await store.page(JobQuery(JobFilter(**fields), limit=100))).jobs}


async def test_jobs_are_found_by_what_their_metadata_says(store: Store) -> None:
    mine = await running(store, metadata={"customer": "42", "region": "eu"})
    also = await stored(store, metadata={"customer": "42"})
    await stored(store, metadata={"customer": "43", "region": "eu"})
    await stored(store)
    await end(store, mine)
    customer, region = ("customer", "42"), ("region", "eu")
    assert await found(store, metadata=(customer,)) == {mine.id, also.id}
    assert await found(store, metadata=(customer, region)) == {mine.id}
    assert await found(store, metadata=(customer,), status="queued") == {also.id}
    assert await found(store, metadata=(customer,), status="failed") == set()
    assert await found(store, metadata=(customer,), type="other") == set()
    assert await found(store, metadata=(("customer", "4"),)) == set()


async def test_a_purged_job_is_not_found(store: Store) -> None:
    job = await running(store, keep_sec=0, metadata={"customer": "42"})
    await end(store, job)
    await store.purge(RETENTION, 10)
    assert await found(store, metadata=(("customer", "42"),)) == set()


async def test_a_replayed_job_is_still_found(store: Store) -> None:
    job = await running(store, metadata={"customer": "42"})
    await end(store, job, "invalid")
    await store.replay([job.id])
    assert await found(store, metadata=(("customer", "42"),)) == {job.id}


async def test_dead_letters_are_found_by_metadata(store: Store) -> None:
    job = await running(store, metadata={"customer": "42"})
    await end(store, job, "invalid")
    await end(store, await running(store, metadata={"customer": "43"}), "invalid")
    page = await store.page(JobQuery(JobFilter(dead_letters=True, metadata=(("customer", "42"),))))
    assert ([job.id for job in page.jobs], page.total) == ([job.id], 1)


# ── webhooks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "status"), [("completed", "completed"), ("invalid", "failed"), ("cancelled", "cancelled")]
)
async def test_the_end_of_a_job_inserts_one_delivery(store: Store, kind: Any, status: str) -> None:
    job = await running(store, notify_url=URL, metadata={"customer": "42"}, name="a name")
    await end(store, job, kind)
    (delivery,) = await deliveries(store)
    assert (delivery.type, delivery.queue, delivery.status) == (WEBHOOK_TYPE, WEBHOOK_QUEUE, "queued")
    assert (delivery.max_attempts, extras.decode(delivery.extras).retry) == (8, RETRIES)
    payload = msgspec.json.decode(delivery.payload, type=Delivery)
    body = msgspec.json.decode(payload.body)
    assert (payload.url, body["type"]) == (URL, f"job.{status}")
    told = body["data"]
    assert (told["id"], told["status"], told["name"]) == (job.id, status, "a name")
    assert told["metadata"] == {"customer": "42"}
    assert told["result"] == ("done" if kind == "completed" else None)


async def test_a_report_that_is_sent_twice_makes_one_delivery(store: Store) -> None:
    job = await running(store, notify_url=URL)
    await end(store, job)
    await end(store, job)
    assert len(await deliveries(store)) == 1


async def test_a_report_that_comes_twice_in_one_transaction_makes_one_delivery(store: Store) -> None:
    job = await running(store, notify_url=URL)
    await asyncio.gather(end(store, job), end(store, job))
    assert len(await deliveries(store)) == 1


async def test_a_retry_makes_no_delivery_and_each_end_makes_one(store: Store, clock: FakeClock) -> None:
    job = await running(store, notify_url=URL)
    await end(store, job, "error")
    assert await deliveries(store) == []
    clock.advance(10)
    await store.promote(10)
    await end(store, await claim_again(store, job), "error")
    assert len(await deliveries(store)) == 1
    await store.replay([job.id])
    await end(store, await claim_again(store, job))
    assert len(await deliveries(store)) == 2


async def test_a_waiting_job_that_is_cancelled_tells_of_it_once(store: Store) -> None:
    job = await stored(store, notify_url=URL)
    await store.cancel([job.id])
    await store.cancel([job.id])
    assert len(await deliveries(store)) == 1


async def test_a_job_that_is_lost_for_the_last_time_tells_of_it(store: Store, clock: FakeClock) -> None:
    await store.open_session(a_session(store))
    await running(store, notify_url=URL, max_attempts=1)
    clock.advance(SILENT / SECOND + 1)
    await store.expire(store.now_us() - SILENT, STEADY)
    (delivery,) = await deliveries(store)
    assert b"job.failed" in delivery.payload


async def test_a_delivery_tells_nobody_of_its_own_end(store: Store) -> None:
    await end(store, await running(store, notify_url=URL))
    (job,) = await claim(store, a_worker(types=(WEBHOOK_TYPE,)))
    await end(store, job)
    assert len(await deliveries(store)) == 1


async def test_a_job_that_is_not_kept_is_told_of_before_it_is_purged(store: Store) -> None:
    job = await running(store, notify_url=URL, keep_sec=0)
    await end(store, job)
    assert await store.purge(RETENTION, 10) == 1
    assert not await exists(store, job)
    (delivery,) = await deliveries(store)
    assert job.id.encode() in delivery.payload


async def test_a_large_result_is_left_out_of_the_body(store: Store) -> None:
    job = await running(store, notify_url=URL)
    await end(store, job, result=b'"' + b"x" * 100_000 + b'"')
    (delivery,) = await deliveries(store)
    whole = await look(store, delivery)
    body = msgspec.json.decode(msgspec.json.decode(whole.payload, type=Delivery).body)
    assert (body["data"]["result"], body["data"]["result_omitted"]) == (None, True)


async def test_many_that_complete_together_are_each_told_of(store: Store) -> None:
    jobs = [await stored(store, notify_url=URL) for _ in range(5)]
    plain = await stored(store)
    taken = await claim(store, a_worker(threads=10))
    for job in taken:
        await end(store, job)
    told = {msgspec.json.decode(job.payload)["body"]["data"]["id"] for job in await deliveries(store)}
    assert told == {job.id for job in jobs}
    assert plain.id not in told
