"""`claim`: a job that waits for a thread is not overtaken by lower ranks that could be held ahead of time."""

from typing import Any

import pytest

from stoker.domain.placement import PREFETCH_US, WorkerView
from stoker.store.base import Store
from stoker.store.first_in_line import KEEP_US
from tests.conformance.steps import a_job, a_worker, claim, ends, ids, report, submit, submitted
from tests.support.clock import FakeClock

RUN_US = {"short": 1_000, "slow": 10 * PREFETCH_US}


def busy(**fields: Any) -> WorkerView:
    """A worker without a free thread whose prefetch has room."""
    return a_worker(threads=2, free=0, prefetch_us=PREFETCH_US, types=("short", "slow", "unknown"), **fields)


async def flood(store: Store, **fields: Any) -> None:
    await submit(store, *[a_job(store, type="short", priority=2, **fields) for _ in range(90)])


@pytest.mark.parametrize(
    "urgent",
    [
        {"type": "unknown"},
        {"type": "slow"},
        {"type": "short", "max_attempts": 1},
        {"type": "slow", "thread_demand": 2},
    ],
    ids=["unknown", "slow", "one attempt", "two threads"],
)
async def test_an_urgent_job_stops_the_flood_until_a_thread_is_free(
    store: Store, urgent: dict[str, Any]
) -> None:
    await flood(store)
    assert len(await claim(store, busy(), run_us=RUN_US)) == 20
    job = await submitted(store, priority=0, **urgent)
    for _ in range(3):
        assert await claim(store, busy(), run_us=RUN_US) == []
    thread = a_worker(threads=2, prefetch_us=PREFETCH_US * 3 // 2, types=("short", "slow", "unknown"))
    granted = await claim(store, thread, run_us=RUN_US)
    assert granted[0].id == job.id
    assert len(await claim(store, busy(), run_us=RUN_US)) == 20, "and then the flood goes on"


async def test_the_flood_does_not_go_on_while_more_urgent_jobs_wait_than_threads_are_free(
    store: Store,
) -> None:
    await flood(store)
    await submit(store, *[a_job(store, type="unknown", priority=0) for _ in range(2)])
    worker = a_worker(threads=3, free=1, prefetch_us=2 * PREFETCH_US, types=("short", "unknown"))
    assert [job.type for job in await claim(store, worker, run_us=RUN_US)] == ["unknown"]


async def test_an_urgent_job_that_comes_with_the_claim_stops_the_flood(store: Store) -> None:
    await flood(store)
    assert len(await claim(store, busy(), run_us=RUN_US)) == 20
    await submit(store, *[a_job(store, type="short", priority=2), a_job(store, type="unknown", priority=0)])
    assert await claim(store, busy(), run_us=RUN_US) == []


async def test_jobs_of_a_lower_rank_that_wait_for_a_thread_stop_nothing(store: Store) -> None:
    await submitted(store, type="unknown", priority=3)
    await flood(store)
    for _ in range(2):
        assert len(await claim(store, busy(), run_us=RUN_US)) == 20


async def test_a_better_job_is_noticed_in_a_lane_that_was_looked_at_a_moment_ago(store: Store) -> None:
    await submitted(store, type="unknown", priority=3)
    await flood(store)
    assert len(await claim(store, busy(), run_us=RUN_US)) == 20
    await submitted(store, type="unknown", priority=0)
    assert await claim(store, busy(), run_us=RUN_US) == []


async def test_a_job_that_comes_back_is_noticed_too(store: Store) -> None:
    job = await submitted(store, type="unknown", priority=0)
    (running,) = await claim(store, a_worker(types=("unknown",)))
    await flood(store)
    assert len(await claim(store, busy(), run_us=RUN_US)) == 20
    await ends(store, [report(running, "handed_back")])
    assert await claim(store, busy(), run_us=RUN_US) == []
    assert ids(await claim(store, a_worker(types=("unknown",)))) == [job.id]
    assert len(await claim(store, busy(), run_us=RUN_US)) == 20


async def test_a_job_that_was_cancelled_stops_the_flood_for_a_moment_at_most(
    store: Store, clock: FakeClock
) -> None:
    urgent = await submitted(store, type="unknown", priority=0)
    await flood(store)
    assert await claim(store, busy(), run_us=RUN_US) == []
    await store.cancel([urgent.id])
    clock.advance(KEEP_US / 1_000_000)
    assert len(await claim(store, busy(), run_us=RUN_US)) == 20


async def test_of_equals_the_first_is_not_overtaken(store: Store) -> None:
    await submitted(store, type="unknown", priority=2)
    await flood(store)
    assert await claim(store, busy(), run_us=RUN_US) == []


async def test_nothing_waits_for_a_paused_queue(store: Store) -> None:
    await submitted(store, type="unknown", queue="quiet", priority=0)
    await store.set_paused("quiet", True)
    await flood(store)
    assert len(await claim(store, busy(), run_us=RUN_US)) == 20
