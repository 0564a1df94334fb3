"""Two transactions on PostgreSQL that change the same jobs, or sessions, wait for each other and never in a circle.

In each test one transaction locks the first of three rows and waits for the second, which somebody else holds. Meanwhile
another wants the first and the third. Had it locked the third one already, the two would wait in a circle.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stoker.domain import extras
from stoker.domain.edit import Changes
from stoker.domain.extras import Extras
from stoker.domain.job import Job
from stoker.domain.retry import claim_of
from stoker.ids import new_id
from stoker.store.base import Store
from stoker.store.bulk import Bulk, BulkStep
from stoker.store.move_format import MovingJob
from stoker.store.outcomes import Start
from stoker.store.postgres.move import PostgresTarget
from stoker.store.reads import WHOLE_JOBS, JobFilter
from stoker.store.sessions import Renewal
from tests.conformance.circles import noticed
from tests.conformance.steps import (
    STEADY,
    a_job,
    a_session,
    a_worker,
    claim,
    end,
    ends,
    look,
    report,
    status_of,
    submit,
)
from tests.conformance.stores import every_job
from tests.conformance.test_bulk import accepted
from tests.conformance.test_shared import Pair, pair
from tests.conformance.test_write_pipelines import LANES, somebody_else, until_waiting
from tests.support.clock import FakeClock
from tests.support.schedules import ScheduleDriver
from tests.support.servers import databases

__all__ = ["pair"]

Action = Callable[[], Awaitable[Any]]


class Crossing:
    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._place = place
        self._circles = noticed(monkeypatch)

    def none(self) -> bool:
        return self._circles == []

    async def meet(self, first: Action, second: Action, *, at: str) -> None:
        """Run both while somebody else holds `at`."""
        async with somebody_else(self._place) as link, somebody_else(self._place) as eye:
            async with link.transaction():
                await link.execute(f"SELECT FROM stoker.{at} FOR UPDATE")
                one = asyncio.ensure_future(first())
                await until_waiting(eye, 1)
                two = asyncio.ensure_future(second())
                await until_waiting(eye, 2)
            await asyncio.gather(one, two)
        assert self._circles == []


@pytest.fixture
def crossing(place: Path, monkeypatch: pytest.MonkeyPatch) -> Crossing:
    return Crossing(place, monkeypatch)


async def three(pair: Pair) -> list[Job]:
    """Three running jobs, in the order of their numbers; the last one was claimed first and so lies before the others."""
    await submit(pair.a, *(a_job(pair.a, priority=3 - number) for number in range(3)))
    return sorted(await claim(pair.a, a_worker(threads=100)), key=lambda job: job.seq)


async def three_failed(pair: Pair) -> list[Job]:
    jobs = await three(pair)
    for job in jobs:
        assert await end(pair.a, job, "invalid") == "failed"
    return jobs


@pytest.mark.parametrize("kind", ["completed", "error"])
async def test_starts_and_ends(pair: Pair, crossing: Crossing, kind: Any) -> None:
    low, mid, high = await three(pair)
    await crossing.meet(
        lambda: pair.b.cancel([low.id, mid.id, high.id]),
        lambda: asyncio.gather(pair.a.started([Start(claim_of(high), 1)]), ends(pair.a, [report(low, kind)])),
        at=f"jobs WHERE seq = {mid.seq}",
    )


async def test_edits(pair: Pair, crossing: Crossing) -> None:
    low, mid, high = await submit(pair.a, *(a_job(pair.a) for _ in range(3)))
    await crossing.meet(
        lambda: asyncio.gather(*(pair.b.edit(job.id, Changes(priority=2)) for job in (low, mid, high))),
        lambda: asyncio.gather(*(pair.a.edit(job.id, Changes(priority=3)) for job in (high, low))),
        at=f"jobs WHERE seq = {mid.seq}",
    )


async def test_discards(pair: Pair, crossing: Crossing) -> None:
    low, mid, high = await three_failed(pair)
    await crossing.meet(
        lambda: pair.b.discard([low.id, mid.id, high.id]),
        lambda: asyncio.gather(*(pair.a.discard([job.id]) for job in (high, low))),
        at=f"history WHERE seq = {mid.seq}",
    )


async def test_a_cancel_and_a_discard(pair: Pair, crossing: Crossing) -> None:
    low, mid, high = await three_failed(pair)
    await crossing.meet(
        lambda: pair.b.discard([low.id, mid.id, high.id]),
        lambda: asyncio.gather(pair.a.cancel([high.id]), pair.a.discard([low.id])),
        at=f"history WHERE seq = {mid.seq}",
    )


async def test_sessions(pair: Pair, crossing: Crossing) -> None:
    """Orders to drain, sessions that come again and heartbeats."""
    names = ("w1", "w2", "w3")
    for name in names:
        await pair.a.open_session(a_session(pair.a, name))

    def drained() -> Awaitable[Any]:
        return asyncio.gather(*(pair.a.set_session_status(name, "draining") for name in ("w3", "w1")))

    def came_again() -> Awaitable[Any]:
        return asyncio.gather(*(pair.a.open_session(a_session(pair.a, name)) for name in ("w3", "w1")))

    def came_again_and_renewed() -> Awaitable[Any]:
        return asyncio.gather(pair.a.open_session(a_session(pair.a, "w3")), pair.a.renew([Renewal("w1", 1)]))

    for second in (drained, came_again, came_again_and_renewed):
        await crossing.meet(
            lambda: pair.b.renew([Renewal(name, 1) for name in names]), second, at="sessions WHERE id = 'w2'"
        )


async def test_a_few_completions(pair: Pair, crossing: Crossing) -> None:
    low, mid, high = await three(pair)
    await crossing.meet(
        lambda: pair.b.cancel([low.id, mid.id, high.id]),
        lambda: ends(pair.a, [report(low), report(high)]),
        at=f"jobs WHERE seq = {mid.seq}",
    )


# ── bulk operations ──────────────────────────────────────────────────────────────────────────────────────────────────


def taken(store: Store, bulk: Bulk, *jobs: Job) -> Awaitable[Any]:
    """A step of a bulk operation that looks at these jobs."""
    return store.bulk_step(BulkStep(bulk, [job.seq for job in jobs], last=False))


async def test_a_cancel_and_a_step_of_a_bulk_operation(pair: Pair, crossing: Crossing) -> None:
    low, mid, high = await submit(pair.a, *(a_job(pair.a) for _ in range(3)))
    bulk = await accepted(pair.a)
    await crossing.meet(
        lambda: pair.b.cancel([low.id, mid.id, high.id]),
        lambda: asyncio.gather(pair.a.cancel([high.id]), taken(pair.a, bulk, low)),
        at=f"jobs WHERE seq = {mid.seq}",
    )


async def test_two_steps_of_bulk_operations(pair: Pair, crossing: Crossing) -> None:
    low, mid, high = await three_failed(pair)
    one, two = await accepted(pair.a, "retry"), await accepted(pair.a, "discard")
    await crossing.meet(
        lambda: pair.b.discard([low.id, mid.id, high.id]),
        lambda: asyncio.gather(taken(pair.a, one, high), taken(pair.a, two, low)),
        at=f"history WHERE seq = {mid.seq}",
    )


async def test_a_cancel_and_the_stop_of_a_bulk_operation(pair: Pair, crossing: Crossing) -> None:
    low, mid, high = await submit(pair.a, *(a_job(pair.a) for _ in range(3)))
    bulk = await accepted(pair.a)
    await crossing.meet(
        lambda: taken(pair.b, bulk, low, mid, high),
        lambda: asyncio.gather(pair.a.cancel([high.id]), pair.a.stop_bulk(bulk.id)),
        at=f"jobs WHERE seq = {mid.seq}",
    )


# ── what comes late ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_discard_after_a_replay_by_filter(pair: Pair, crossing: Crossing) -> None:
    low, mid, high = await three_failed(pair)
    await crossing.meet(
        lambda: pair.b.discard([low.id, mid.id, high.id]),
        lambda: asyncio.gather(
            pair.a.replay_where(JobFilter(priority=high.priority), 10), pair.a.discard([low.id])
        ),
        at=f"history WHERE seq = {mid.seq}",
    )


@pytest.mark.parametrize("way", ["filter", "bulk"])
async def test_unique_keys_of_jobs_that_are_replayed(pair: Pair, crossing: Crossing, way: str) -> None:
    """The keys are found when the jobs are locked already."""
    unique = extras.encode(Extras(unique_key="k"))
    low, mid, _ = await three_failed(pair)
    await submit(pair.a, replace(a_job(pair.a, type="unique"), extras=unique))
    (running,) = await claim(pair.a, a_worker(types=("unique",)))
    await end(pair.a, running, "invalid")
    bulk = await accepted(pair.a, "retry")
    await crossing.meet(
        lambda: asyncio.gather(
            submit(pair.b, replace(a_job(pair.b), extras=unique)),
            pair.b.discard([low.id, mid.id, running.id]),
        ),
        lambda: (
            pair.a.replay_where(JobFilter(type="unique"), 10)
            if way == "filter"
            else taken(pair.a, bulk, running)
        ),
        at=f"history WHERE seq = {mid.seq}",
    )
    assert await status_of(pair.a, running) == "failed"


async def test_replays_of_few_and_of_many(pair: Pair, crossing: Crossing) -> None:
    low, mid, high = await three_failed(pair)
    await crossing.meet(
        lambda: pair.b.discard([low.id, mid.id, high.id]),
        lambda: asyncio.gather(
            pair.a.replay([high.id]), pair.a.replay([low.id, *(new_id() for _ in range(WHOLE_JOBS))])
        ),
        at=f"history WHERE seq = {mid.seq}",
    )


async def test_a_job_that_a_schedule_cancels(pair: Pair, crossing: Crossing, clock: FakeClock) -> None:
    schedules = ScheduleDriver(pair.a)
    await schedules.set(overlap="cancel_previous")
    clock.advance(60)
    await schedules.fire()
    (low,) = await every_job(pair.a)
    mid, high = await submit(pair.a, a_job(pair.a), a_job(pair.a))
    clock.advance(60)
    await crossing.meet(
        lambda: pair.b.cancel([low.id, mid.id, high.id]),
        lambda: asyncio.gather(pair.a.cancel([high.id]), schedules.fire()),
        at=f"jobs WHERE seq = {mid.seq}",
    )
    assert await status_of(pair.a, low) == "cancelled"


async def test_a_job_that_a_schedule_lets_go(pair: Pair, crossing: Crossing, clock: FakeClock) -> None:
    schedules = ScheduleDriver(pair.a)
    await schedules.set(overlap="queue_one")
    for _ in range(2):
        clock.advance(60)
        await schedules.fire()
    (running,) = await claim(pair.a)
    await end(pair.a, running)
    low = next(job for job in await every_job(pair.a) if job.status == "blocked")
    mid, high = await submit(pair.a, a_job(pair.a), a_job(pair.a))
    clock.advance(60)
    await crossing.meet(
        lambda: asyncio.gather(*(pair.b.edit(job.id, Changes(priority=1)) for job in (low, mid, high))),
        lambda: asyncio.gather(pair.a.cancel([high.id]), schedules.fire()),
        at=f"jobs WHERE seq = {mid.seq}",
    )
    assert await status_of(pair.a, low) == "queued"


async def test_a_job_that_a_lost_worker_was_given_meanwhile(
    pair: Pair, crossing: Crossing, place: Path, clock: FakeClock
) -> None:
    """It is found when the other jobs of the worker are locked already."""
    later = [a_job(pair.a, delay_us=1_000_000) for _ in range(3)]
    low, mid, upper, high = await submit(pair.a, *later, a_job(pair.a))
    await claim(pair.a, a_worker("never seen"))
    clock.advance(2)
    await pair.a.promote(10)
    async with somebody_else(place) as link, somebody_else(place) as other, somebody_else(place) as eye:
        async with other.transaction():
            async with link.transaction():
                await link.execute(f"SELECT FROM stoker.jobs WHERE seq = {mid.seq} FOR UPDATE")
                await other.execute(f"SELECT FROM stoker.jobs WHERE seq = {upper.seq} FOR UPDATE")
                expiring = asyncio.gather(pair.a.cancel([mid.id]), pair.a.expire(0, STEADY))
                await until_waiting(eye, 1)
                pair.b.look_again()
                assert [job.id for job in await claim(pair.b, a_worker("never seen", threads=1))] == [low.id]
                cancelling = asyncio.ensure_future(pair.b.cancel([low.id, upper.id, high.id]))
                await until_waiting(eye, 2)
            await asyncio.wait([expiring], timeout=1)
        await asyncio.gather(expiring, cancelling)
    assert crossing.none()


# ── schedules and sessions ───────────────────────────────────────────────────────────────────────────────────────────


async def test_changes_of_schedules(pair: Pair, crossing: Crossing) -> None:
    one, two = ScheduleDriver(pair.b), ScheduleDriver(pair.a)
    for name in ("low", "mid", "zenith"):
        await one.set(name)
    await crossing.meet(
        lambda: asyncio.gather(*(one.set(name) for name in ("low", "mid", "zenith"))),
        lambda: asyncio.gather(two.set("zenith"), two.set("low")),
        at="schedules WHERE name = 'mid'",
    )


async def test_changes_of_schedules_and_a_cancel(pair: Pair, crossing: Crossing) -> None:
    one, two = ScheduleDriver(pair.b), ScheduleDriver(pair.a)
    low, mid = await submit(pair.a, a_job(pair.a), a_job(pair.a))
    await crossing.meet(
        lambda: asyncio.gather(pair.b.cancel([low.id, mid.id]), one.set("s1")),
        lambda: asyncio.gather(two.set("s1"), two.set("s2"), pair.a.cancel([low.id])),
        at=f"jobs WHERE seq = {mid.seq}",
    )


async def test_a_heartbeat_and_sessions_that_are_given_up(pair: Pair, crossing: Crossing) -> None:
    names = ("w1", "w2", "w3")
    for name in names:
        await pair.a.open_session(a_session(pair.a, name))
    await crossing.meet(
        lambda: pair.b.renew([Renewal(name, 1) for name in names]),
        lambda: asyncio.gather(pair.a.renew([Renewal("w3", 1)]), pair.a.expire(pair.a.now_us() + 1, STEADY)),
        at="sessions WHERE id = 'w2'",
    )


# ── submissions ──────────────────────────────────────────────────────────────────────────────────────────────────────


def named(store: Store, id: str) -> Awaitable[Any]:
    """Submit a job whose id the client made."""
    return submit(store, replace(a_job(store), id=id, digest=b"what was asked.."))


@pytest.mark.parametrize("more", [0, 10], ids=["few", "many"])
async def test_ids_that_clients_sent_to_both(pair: Pair, crossing: Crossing, place: Path, more: int) -> None:
    await submit(pair.a, a_job(pair.a))
    low, mid, high = sorted(new_id() for _ in range(3))
    async with somebody_else(place) as link, somebody_else(place) as eye:
        async with link.transaction():
            await link.execute("CREATE TEMP TABLE other AS SELECT * FROM stoker.jobs")
            await link.execute("UPDATE other SET seq = -1, id = $1", mid)
            await link.execute("INSERT INTO stoker.jobs SELECT * FROM other")
            others = [new_id() for _ in range(2 * more)]
            first = asyncio.gather(*(named(pair.b, id) for id in (low, mid, high, *others[:more])))
            await until_waiting(eye, 1)
            second = asyncio.gather(*(named(pair.a, id) for id in (high, low, *others[more:])))
            await until_waiting(eye, 2)
            await link.execute("DELETE FROM stoker.jobs WHERE seq = -1")
        await asyncio.gather(first, second)
    assert crossing.none()


async def test_a_unique_key_of_an_import(
    pair: Pair, crossing: Crossing, place: Path, clock: FakeClock
) -> None:
    unique = extras.encode(Extras(unique_key="k"))
    imported, submitted = (replace(a_job(pair.a, type=type), extras=unique) for type in ("new", "newer"))
    target = await PostgresTarget.open(databases.url(place), clock)
    try:
        async with somebody_else(place) as link, somebody_else(place) as eye:
            async with link.transaction():
                await link.execute(LANES)
                importing = asyncio.ensure_future(target.put_jobs([MovingJob(imported, ())]))
                await until_waiting(eye, 1)
                submitting = asyncio.ensure_future(submit(pair.a, submitted))
                await until_waiting(eye, 2)
            assert await importing == 1
            assert [job.id for job in await submitting] == [imported.id]
    finally:
        await target.close()
    assert crossing.none()


# ── a circle all the same ────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_the_server_ended_for_a_circle_runs_again_and_nobody_is_told(
    pair: Pair, crossing: Crossing, place: Path
) -> None:
    """Somebody else locks in another order. Of the two the store's transaction is ended, because it waits first."""
    low, mid, high = await submit(pair.a, *(a_job(pair.a) for _ in range(3)))
    async with somebody_else(place) as link, somebody_else(place) as eye:
        async with link.transaction():
            await link.execute("SET LOCAL deadlock_timeout = '60s'")
            await link.execute(f"SELECT FROM stoker.jobs WHERE seq = {high.seq} FOR UPDATE")
            cancelling = asyncio.ensure_future(pair.a.cancel([low.id, high.id]))
            editing = asyncio.ensure_future(pair.a.edit(mid.id, Changes(priority=3)))
            adding = asyncio.ensure_future(submit(pair.a, a_job(pair.a)))
            await until_waiting(eye, 1)
            await link.execute(f"SELECT FROM stoker.jobs WHERE seq = {low.seq} FOR UPDATE")
        await asyncio.gather(cancelling, editing, adding)
    assert not crossing.none()
    assert [await status_of(pair.b, job) for job in (low, high)] == ["cancelled", "cancelled"]
    assert (await look(pair.b, mid)).priority == 3
    assert await status_of(pair.b, adding.result()[0]) == "queued"
