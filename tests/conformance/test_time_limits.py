"""Expiry and deadline: a job whose time is up never starts, and ends by the store's clock."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stoker.clock import SECOND
from stoker.domain import extras
from stoker.domain.extras import Extras
from stoker.domain.job import Job
from stoker.domain.retry import Kind
from stoker.store.base import Store
from tests.conformance.steps import (
    HOUR,
    SILENT,
    STEADY,
    a_job,
    a_request,
    a_session,
    a_worker,
    blocked,
    claim,
    claim_again,
    end,
    ids,
    look,
    submit,
)
from tests.support.clock import FakeClock


def a_timed_job(
    store: Store, *, expires: float | None = None, deadline: float | None = None, **fields: Any
) -> Job:
    job = a_job(store, **fields)
    used = Extras(
        expires_at=None if expires is None else job.created_at + int(expires * SECOND),
        deadline_at=None if deadline is None else job.created_at + int(deadline * SECOND),
    )
    return replace(job, extras=extras.encode(used))


def error_type(job: Job) -> str:
    assert job.error is not None
    return str(msgspec.json.decode(job.error)["type"])


async def counted(store: Store) -> dict[str, int]:
    return {count.status: count.count for count in await store.counts()}


# ── expiry ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("delay_us", [0, HOUR])
async def test_a_job_that_has_not_started_in_time_is_ended_by_upkeep(
    store: Store, clock: FakeClock, delay_us: int
) -> None:
    (job,) = await submit(store, a_timed_job(store, expires=10, delay_us=delay_us))
    assert await store.next_limit_at() == job.created_at + 10 * SECOND
    clock.advance(9)
    assert await store.end_overdue(10) == []
    clock.advance(1)
    assert ids(await store.end_overdue(10)) == [job.id]
    after = await look(store, job)
    assert (after.status, after.completed_at, error_type(after)) == ("cancelled", clock.now_us(), "expired")
    assert await store.next_limit_at() is None
    assert await counted(store) == {"cancelled": 1}
    assert await claim(store) == []


async def test_a_blocked_job_expires_too(store: Store, clock: FakeClock) -> None:
    text = extras.encode(Extras(expires_at=clock.now_us() + SECOND))
    (job,) = await submit(store, replace(a_job(store), status="blocked", pending_deps=1, extras=text))
    clock.advance(1)
    assert ids(await store.end_overdue(10)) == [job.id]


async def test_a_claim_never_starts_an_expired_job_and_ends_it(store: Store, clock: FakeClock) -> None:
    late = await submit(store, *(a_timed_job(store, expires=10) for _ in range(12)))
    (good,) = await submit(store, a_job(store, priority=9))
    clock.advance(10)
    started, over = [], []
    for _ in range(5):
        granted = await store.claim(a_request(a_worker(threads=4)))
        started += [job.id for grant in granted.grants for job in grant.batch]
        over += ids(granted.ended)
        if not granted.more:
            break
    assert started == [good.id]
    assert sorted(over) == sorted(ids(late))
    assert {(await look(store, job)).status for job in late} == {"cancelled"}
    assert await counted(store) == {"cancelled": 12, "running": 1}


async def test_a_job_that_expires_while_it_is_stored_does_not_start(store: Store, clock: FakeClock) -> None:
    job = replace(a_job(store), extras=extras.encode(Extras(expires_at=clock.now_us())))
    _, running = await asyncio.gather(submit(store, job), claim(store))
    assert running == []
    assert ids(await store.end_overdue(10)) == [job.id]


async def test_a_job_that_has_started_does_not_expire(store: Store, clock: FakeClock) -> None:
    (job,) = await submit(store, a_timed_job(store, expires=10))
    (running,) = await claim(store)
    clock.advance(11)
    assert await store.end_overdue(10) == []
    await end(store, running, "error")
    clock.advance(10)
    await store.promote(10)
    assert await store.end_overdue(10) == []
    assert (await claim_again(store, job)).attempt == 2


async def test_a_job_that_was_handed_back_has_not_started(store: Store, clock: FakeClock) -> None:
    (job,) = await submit(store, a_timed_job(store, expires=10))
    (running,) = await claim(store)
    clock.advance(11)
    assert await store.end_overdue(10) == []
    await end(store, running, "handed_back")
    assert ids(await store.end_overdue(10)) == [job.id]


async def test_an_expired_job_that_is_replayed_has_no_expiry(store: Store, clock: FakeClock) -> None:
    (job,) = await submit(store, a_timed_job(store, expires=10))
    clock.advance(10)
    await store.end_overdue(10)
    await store.replay([job.id])
    assert ids(await claim(store)) == [job.id]


async def test_a_job_with_an_expiry_is_not_held_ahead_of_time(store: Store) -> None:
    await submit(store, a_timed_job(store, expires=10), a_job(store, priority=2))
    worker = a_worker(threads=1, free=0, prefetch_us=20_000)
    assert await claim(store, worker, run_us={"echo": 100}) == []


# ── deadline ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_job_that_waits_past_its_deadline_fails(store: Store, clock: FakeClock) -> None:
    (job,) = await submit(store, a_timed_job(store, deadline=10))
    clock.advance(10)
    assert ids(await store.end_overdue(10)) == [job.id]
    after = await look(store, job)
    assert (after.status, error_type(after)) == ("failed", "deadline")
    assert after.fingerprint is not None


@pytest.mark.parametrize("kind", ["error", "timeout", "crash"])
async def test_a_retry_that_would_begin_after_the_deadline_is_not_made(
    store: Store, clock: FakeClock, kind: Kind
) -> None:
    (job,) = await submit(store, a_timed_job(store, deadline=10))
    (running,) = await claim(store)
    clock.advance(9)
    assert await end(store, running, kind) == "failed"
    after = await look(store, job)
    assert error_type(after) == "deadline"
    assert msgspec.json.decode(after.error or b"")["cause"]["type"] == kind
    assert [attempt.kind for attempt in await store.attempts(job.id)] == [kind]
    assert await counted(store) == {"failed": 1}


async def test_a_job_that_backs_off_past_its_deadline_is_ended_by_upkeep(
    store: Store, clock: FakeClock
) -> None:
    (job,) = await submit(store, a_timed_job(store, deadline=100))
    (running,) = await claim(store)
    await end(store, running, "error")
    clock.advance(100)
    assert ids(await store.end_overdue(10)) == [job.id]


async def test_a_lost_job_past_its_deadline_fails(store: Store, clock: FakeClock) -> None:
    await store.open_session(a_session(store))
    (job,) = await submit(store, a_timed_job(store, deadline=5))
    await claim(store)
    clock.advance(11)
    expired = await store.expire(store.now_us() - SILENT, STEADY)
    assert [lost.status for lost in expired.losses] == ["failed"]
    assert error_type(await look(store, job)) == "deadline"


async def test_a_job_that_completes_keeps_its_result(store: Store, clock: FakeClock) -> None:
    (job,) = await submit(store, a_timed_job(store, deadline=10))
    (running,) = await claim(store)
    clock.advance(11)
    assert await end(store, running) == "completed"
    assert await store.end_overdue(10) == []
    assert (await look(store, job)).status == "completed"


async def test_jobs_without_limits_are_not_noted(store: Store) -> None:
    await submit(store, a_job(store))
    await blocked(store)
    assert await store.next_limit_at() is None
