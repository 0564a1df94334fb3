"""`claim` by bytes: what it carries is bounded, one job always gets through, large payloads are read when placed."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stoker.domain.byte_bounds import INLINE_BYTES, ByteBounds
from stoker.domain.job import Job
from stoker.domain.job_batch import JobBatch
from stoker.domain.placement import Plan, WorkerView
from stoker.store.base import Store
from stoker.store.claims import ClaimRequest, Granted, plan_for
from stoker.store.postgres import claims as postgres_claims
from stoker.store.reads import WHOLE_JOBS, JobFilter
from stoker.store.sqlite import claims as sqlite_claims
from tests.conformance.steps import (
    SILENT,
    STEADY,
    a_job,
    a_request,
    a_session,
    a_worker,
    claim,
    end,
    ids,
    look,
    status_of,
    submit,
)
from tests.conformance.test_bulk import accepted, worked_off
from tests.support.clock import FakeClock
from tests.support.jobs import jobs_of

KIB = 1024
LARGE = 10 * KIB
BOUNDS = ByteBounds(claim=4 * LARGE, line=4 * LARGE, held=8 * LARGE)


def payload(size: int, mark: int = 0) -> msgspec.Raw:
    return msgspec.Raw(b'"' + b"%06d" % mark + b"x" * (size - 8) + b'"')


async def some(store: Store, count: int, size: int = LARGE) -> list[Job]:
    """Queued jobs, stored one by one, with payloads of this many bytes that all differ."""
    jobs = [a_job(store, payload=payload(size, mark)) for mark in range(count)]
    return [stored for job in jobs for stored in await submit(store, job)]


async def claim_within(store: Store, *workers: WorkerView, bounds: ByteBounds = BOUNDS) -> Granted:
    return await store.claim(replace(a_request(*workers), bounds=bounds))


def bytes_in(granted: Granted) -> int:
    return sum(len(payload) for grant in granted.grants for payload in grant.batch.payloads)


@pytest.mark.parametrize("size", [LARGE, INLINE_BYTES, 100])
async def test_a_claim_never_carries_more_than_its_bytes(store: Store, size: int) -> None:
    jobs = await some(store, 12, size)
    bounds = ByteBounds(claim=4 * size + 1, line=100 * size, held=100 * size)
    taken: list[Job] = []
    while len(taken) < len(jobs):
        granted = await claim_within(
            store, a_worker("a", threads=50), a_worker("b", threads=50), bounds=bounds
        )
        assert bytes_in(granted) <= 4 * size + 1
        assert granted.more == (len(taken) < 8)
        taken += jobs_of(granted.grants)
    assert ids(taken) == ids(jobs)
    assert [job.payload for job in taken] == [job.payload for job in jobs]


async def test_a_payload_that_is_larger_than_every_bound_is_claimed_alone(store: Store) -> None:
    jobs = await some(store, 3)
    tiny = ByteBounds(claim=1, line=1, held=1)
    for job in jobs:
        granted = await claim_within(store, a_worker(threads=50), bounds=tiny)
        assert [(found.id, found.payload) for found in jobs_of(granted.grants)] == [(job.id, job.payload)]


async def test_a_connection_on_which_something_waits_gets_no_more_than_fits(store: Store) -> None:
    jobs = await some(store, 4)
    busy = replace(a_worker("busy", threads=9), unsent_bytes=BOUNDS.line - LARGE)
    granted = await claim_within(store, busy)
    assert (ids(jobs_of(granted.grants)), granted.more) == (ids(jobs[:1]), False)
    stuck = replace(a_worker("stuck", threads=9), unsent_bytes=BOUNDS.line)
    assert (await claim_within(store, stuck)).grants == []
    granted = await claim_within(store, stuck, a_worker("idle", threads=9))
    assert {grant.session_id for grant in granted.grants} == {"idle"}


async def test_small_jobs_do_not_overtake_a_large_one_for_which_there_is_no_room_yet(store: Store) -> None:
    (large,) = await some(store, 1)
    small = await some(store, 3, 100)
    full = replace(a_worker(threads=9), unsent_bytes=BOUNDS.line - 1_000)
    assert (await claim_within(store, full)).grants == []
    assert ids(jobs_of((await claim_within(store, a_worker(threads=9))).grants)) == ids([large, *small])


async def test_beyond_its_free_threads_a_worker_holds_a_bounded_number_of_bytes(store: Store) -> None:
    jobs = await some(store, 12)
    wide = replace(BOUNDS, claim=100 * LARGE, line=100 * LARGE)
    worker = a_worker(threads=4, free=2, prefetch_us=80_000)
    worker.held_bytes = 7 * LARGE
    request = ClaimRequest([worker], "round_robin", 0, {"echo": 100}, wide)
    granted = await store.claim(request)
    assert ids(jobs_of(granted.grants)) == ids(jobs[:2])  # for its two free threads, and no prefetch
    worker = replace(worker, free=0, held_bytes=7 * LARGE)
    granted = await store.claim(replace(request, workers=[worker]))
    assert ids(jobs_of(granted.grants)) == ids(jobs[2:3])


async def test_jobs_that_are_claimed_as_they_are_inserted_are_bounded_too(store: Store) -> None:
    """What does not fit is stored as queued, whole, and comes with the next claim."""
    first = a_job(store, payload=payload(LARGE))
    jobs = [first] + [a_job(store, payload=payload(LARGE, n)) for n in range(1, 10)]
    taken, stored = await together(store, jobs)
    assert bytes_in(taken) <= BOUNDS.claim
    while len(taken.grants) and len(found := jobs_of(taken.grants)) < len(jobs):
        more = await claim_within(store, a_worker(threads=50))
        assert bytes_in(more) <= BOUNDS.claim
        taken = Granted([*taken.grants, *more.grants], more.cursor)
        assert len(jobs_of(taken.grants)) > len(found)
    assert ids(jobs_of(taken.grants)) == ids(stored)
    assert [job.payload for job in jobs_of(taken.grants)] == [job.payload for job in stored]


async def together(store: Store, jobs: list[Job]) -> tuple[Granted, list[Job]]:
    """A claim in the transaction of a submission, as dispatch makes it."""
    inserting = asyncio.ensure_future(submit(store, *jobs))
    await asyncio.sleep(0)
    granted = await claim_within(store, a_worker(threads=50))
    return granted, await inserting


async def test_large_payloads_of_jobs_that_were_not_placed_are_not_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = await some(store, 20)
    seen: list[bytes] = []

    def spied(candidates: list[JobBatch], *rest: Any) -> Plan:
        seen.extend(payload for batch in candidates for payload in batch.payloads)
        return plan_for(candidates, *rest)

    monkeypatch.setattr(sqlite_claims, "plan_for", spied)
    monkeypatch.setattr(postgres_claims, "plan_for", spied)
    granted = await claim_within(store, a_worker(threads=2, free=2, prefetch_us=40_000))
    assert len(jobs_of(granted.grants)) == 2
    assert set(seen) == {b""}
    assert [await status_of(store, job) for job in jobs[2:]] == ["queued"] * 18


async def test_what_was_left_in_the_queue_is_whole(store: Store) -> None:
    jobs = await some(store, 6)
    await claim_within(store, a_worker(threads=50))
    for job in jobs:
        assert (await look(store, job)).payload == job.payload


async def test_without_large_payloads_bounds_change_nothing(store: Store) -> None:
    jobs = await some(store, 30, 100)
    assert ids(await claim(store, a_worker(threads=30))) == ids(jobs)


# ── large payloads of jobs that are not handed out ─────────────────────────────────────────────────────────────────


async def test_a_large_payload_survives_a_failure_and_a_replay(store: Store) -> None:
    """It moves with its job and is never brought into the coordinator."""
    jobs = await some(store, 3)
    for running in await claim(store, a_worker(threads=3)):
        assert await end(store, running, "invalid") == "failed"
    assert [(await look(store, job)).payload for job in jobs] == [job.payload for job in jobs]
    assert await store.replay_where(JobFilter(dead_letters=True), 10) == 3
    again = await claim(store, a_worker(threads=3))
    assert [job.payload for job in again] == [job.payload for job in jobs]


async def test_a_large_payload_survives_a_cancel_and_a_replay_of_many(store: Store) -> None:
    jobs = await some(store, WHOLE_JOBS + 2)
    cancelled = [job for id in ids(jobs) for job in await store.cancel([id])]
    assert [job and job.payload for job in cancelled] == [job.payload for job in jobs]
    replayed = await store.replay(ids(jobs))
    assert [job and job.status for job in replayed] == ["queued"] * len(jobs)
    assert [(await look(store, job)).payload for job in jobs] == [job.payload for job in jobs]


async def test_a_replay_of_one_returns_the_whole_job_beside_one_of_many(store: Store) -> None:
    jobs = await some(store, WHOLE_JOBS + 2)
    for job in jobs:
        await store.cancel([job.id])
    (alone,), _ = await asyncio.gather(store.replay([jobs[0].id]), store.replay(ids(jobs[1:])))
    assert alone is not None
    assert alone.payload == jobs[0].payload


async def test_a_large_payload_survives_a_lost_lease_and_a_bulk_operation(
    store: Store, clock: FakeClock
) -> None:
    jobs = await some(store, 2)
    await store.open_session(a_session(store, "w1"))
    await claim(store, a_worker(threads=2))
    assert [claim.id for claim in await store.held("w1")] == ids(jobs)
    clock.advance(60)
    lost = await store.expire(store.now_us() - SILENT, STEADY)
    assert len(lost.losses) == 2
    assert (await worked_off(store, await accepted(store, type="echo"))).changed == 2
    assert [(await look(store, job)).payload for job in jobs] == [job.payload for job in jobs]
