"""`correct_times`: what a clock that was ahead wrote down, after it was set right."""

import asyncio
from typing import Any

import pytest

from stoker.clock import SECOND
from stoker.domain.job import Job
from stoker.store.base import Store
from tests.conformance.steps import (
    HOUR,
    SILENT,
    STEADY,
    a_session,
    claim,
    claim_again,
    claimed,
    end,
    failed,
    ids,
    look,
    status_of,
    submitted,
)
from tests.conformance.stores import every_job
from tests.support.clock import FakeClock

DELAY = 2 * SECOND
"""Of the first retry, with `STEADY`."""


async def backing_off(store: Store, **fields: Any) -> Job:
    """A job that failed once and waits for its retry."""
    job = await claimed(store, **fields)
    assert await end(store, job, "error") == "scheduled"
    return await look(store, job)


async def corrected(store: Store) -> int:
    return await store.correct_times(100)


async def test_a_retry_that_a_clock_put_too_far_ahead_waits_its_own_delay_from_now(
    store: Store, clock: FakeClock
) -> None:
    clock.jump(3_600)
    job = await backing_off(store)
    clock.jump(-3_600)
    assert await corrected(store) == 1
    assert (await look(store, job)).run_at == clock.now_us() + DELAY
    clock.advance(2)
    assert await store.promote(10) == 1
    assert ids(await claim(store)) == [job.id]


async def test_doing_it_twice_changes_nothing_twice(store: Store, clock: FakeClock) -> None:
    clock.jump(3_600)
    job = await backing_off(store)
    clock.jump(-3_600)
    assert await corrected(store) == 1
    clock.advance(1)
    assert await corrected(store) == 0
    assert (await look(store, job)).run_at == clock.now_us() + SECOND


async def test_a_retry_that_is_within_its_delay_is_left_alone(store: Store, clock: FakeClock) -> None:
    job = await backing_off(store)
    clock.advance(0.5)
    assert await corrected(store) == 0
    assert (await look(store, job)).run_at == job.run_at


async def test_each_retry_waits_its_own_delay(store: Store, clock: FakeClock) -> None:
    clock.jump(3_600)
    first = await backing_off(store)
    second = await backing_off(store)
    clock.advance(2)
    await store.promote(10)
    assert await end(store, await claim_again(store, second), "error") == "scheduled"
    first = await look(store, first)
    assert first.status == "running"  # it was due as well, and claimed with the other
    assert await end(store, first, "error") == "scheduled"
    third = await backing_off(store)
    clock.jump(-3_600)
    assert await corrected(store) == 3
    waits = [(await look(store, job)).run_at - clock.now_us() for job in (first, second, third)]
    assert waits == [2 * DELAY, 2 * DELAY, DELAY]


async def test_a_time_that_a_person_gave_is_kept(store: Store, clock: FakeClock) -> None:
    clock.jump(3_600)
    job = await submitted(store, delay_us=HOUR)
    clock.jump(-3_600)
    assert await corrected(store) == 0
    assert (await look(store, job)).run_at == job.run_at


async def test_the_retry_of_a_job_that_was_given_a_time_is_a_retry(store: Store, clock: FakeClock) -> None:
    job = await submitted(store, delay_us=SECOND)
    clock.advance(1)
    await store.promote(10)
    clock.jump(3_600)
    await end(store, await claim_again(store, job), "error")
    clock.jump(-3_600)
    assert await corrected(store) == 1
    assert (await look(store, job)).run_at == clock.now_us() + DELAY


async def test_a_job_that_was_handed_back_and_one_that_was_replayed_are_left_alone(
    store: Store, clock: FakeClock
) -> None:
    clock.jump(3_600)
    back = await claimed(store)
    assert await end(store, back, "handed_back") == "queued"
    (again,) = await store.replay([(await failed(store, type="other")).id])
    assert again is not None
    clock.jump(-3_600)
    assert await corrected(store) == 0
    assert [await status_of(store, job) for job in (back, again)] == ["queued", "queued"]


async def test_no_more_than_the_limit_are_changed_those_furthest_ahead_first(
    store: Store, clock: FakeClock
) -> None:
    jobs = []
    for seconds in (60, 180, 120):
        clock.jump(seconds)
        jobs.append(await backing_off(store))
        clock.jump(-seconds)
    assert await store.correct_times(2) == 2
    ahead = [(await look(store, job)).run_at - clock.now_us() for job in jobs]
    assert ahead == [60 * SECOND + DELAY, DELAY, DELAY]
    assert await store.correct_times(2) == 1
    assert await store.correct_times(2) == 0


async def test_a_session_that_was_heard_of_in_the_future_is_given_up_one_timeout_after_now(
    store: Store, clock: FakeClock
) -> None:
    """Otherwise what a dead worker holds would be stuck until the clock has caught up."""
    clock.jump(3_600)
    await store.open_session(a_session(store))
    job = await claimed(store)
    clock.jump(-3_600)
    await corrected(store)
    clock.advance(9)
    assert (await store.expire(store.now_us() - SILENT, STEADY)).sessions == []
    clock.advance(2)
    assert (await store.expire(store.now_us() - SILENT, STEADY)).sessions == ["w1"]
    assert await status_of(store, job) == "queued"


@pytest.mark.parametrize("seconds", [0, 10])
async def test_a_session_that_was_heard_of_now_or_before_stays_as_it_is(
    store: Store, clock: FakeClock, seconds: int
) -> None:
    heard_at = clock.now_us()
    await store.open_session(a_session(store))
    clock.advance(seconds)
    await corrected(store)
    (session,) = await store.sessions()
    assert session.last_heartbeat_at == heard_at


async def test_several_who_do_it_at_once_change_each_job_once(store: Store, clock: FakeClock) -> None:
    clock.jump(3_600)
    for _ in range(10):
        await backing_off(store)
    clock.jump(-3_600)
    assert sum(await asyncio.gather(*(corrected(store) for _ in range(5)))) == 10
    assert {job.run_at for job in await every_job(store)} == {clock.now_us() + DELAY}
