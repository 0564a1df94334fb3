"""Several owners of one store at the same time: what one did the other sees, and nothing is done twice."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from stoker.domain.errors import IdempotencyMismatch
from stoker.store.base import Store
from stoker.store.reads import JobQuery
from stoker.store.upkeep import Retention
from tests.conformance.steps import (
    MINUTE,
    SILENT,
    STEADY,
    a_job,
    a_key,
    a_request,
    a_session,
    a_worker,
    claim,
    claimed,
    end,
    failed,
    ids,
    status_of,
    submit,
    submitted,
)
from tests.conformance.stores import STORES, StoreKind, books_balance, every_job
from tests.support.clock import FakeClock
from tests.support.in_loop import in_loop
from tests.support.jobs import a_submission, jobs_of

SHARED = [kind for kind in STORES if not kind.exclusive]


class Pair(NamedTuple):
    a: Store
    b: Store


@asynccontextmanager
async def both(kind: StoreKind, place: Path, clock: FakeClock) -> AsyncIterator[Pair]:
    a, b = await asyncio.gather(kind.open(place, clock), kind.open(place, clock))
    try:
        yield Pair(a, b)
        await books_balance(a)
    finally:
        await a.close()
        await b.close()


@pytest.fixture(params=SHARED, ids=lambda kind: kind.name)
def pair(request: pytest.FixtureRequest, place: Path, clock: FakeClock) -> Pair:
    """Two owners that were opened at the same moment on an empty database: one of them made the schema."""
    return in_loop(lambda: both(request.param, place, clock))


async def test_work_of_one_is_claimed_by_the_other(pair: Pair) -> None:
    await claim(pair.b)  # looked around a moment ago, and saw nothing
    job = await submitted(pair.a)
    pair.b.look_again()
    assert ids(await claim(pair.b)) == [job.id]
    assert await status_of(pair.a, job) == "running"


async def test_two_that_claim_at_the_same_time_never_get_the_same_job(pair: Pair) -> None:
    jobs = await submit(pair.a, *(a_job(pair.a) for _ in range(200)))
    pair.b.look_again()
    got: list[str] = []
    while len(got) < len(jobs):
        grants = await asyncio.gather(
            *(
                store.claim(a_request(a_worker(name, threads=7)))
                for name, store in (("w1", pair.a), ("w2", pair.b))
            )
        )
        got += [job.id for granted in grants for job in jobs_of(granted.grants)]
    assert Counter(got) == Counter(ids(jobs))


async def test_one_key_used_at_both_at_once_makes_one_job(pair: Pair) -> None:
    for number in range(10):
        calls = [
            store.insert([a_submission(a_job(store), a_key(store, f"k{number}"))]) for store in (*pair, *pair)
        ]
        answers = await asyncio.gather(*calls)
        assert len({accepted.job.id for (accepted,) in answers}) == 1
        assert [accepted.repeated for (accepted,) in answers].count(False) == 1
    assert len(await every_job(pair.a)) == 10


async def test_one_key_for_two_bodies_at_once_refuses_one_of_them(pair: Pair) -> None:
    calls = [
        store.insert([a_submission(a_job(store), a_key(store, "k", body)), a_submission(a_job(store))])
        for store, body in ((pair.a, b"one"), (pair.b, b"two"))
    ]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(answer, IdempotencyMismatch) for answer in answers) == 1
    assert len(await every_job(pair.a)) == 2, "all of one call, and nothing of the other"


async def test_an_outcome_reported_at_both_is_written_once(pair: Pair) -> None:
    for kind in ("completed", "error", "handed_back"):
        job = await claimed(pair.a)
        answers = await asyncio.gather(end(pair.a, job, kind), end(pair.b, job, kind))
        assert answers[0] == answers[1] != None  # noqa: E711 - both were told the same, and it was stored
        await pair.a.cancel([job.id])


async def test_of_two_different_outcomes_one_wins(pair: Pair) -> None:
    for _ in range(10):
        job = await claimed(pair.a)
        answers = await asyncio.gather(end(pair.a, job, "completed"), end(pair.b, job, "error"))
        assert sum(answer is not None for answer in answers) == 1
        assert await status_of(pair.b, job) in [answer for answer in answers if answer is not None]
        await pair.a.cancel([job.id])


async def test_a_cancel_at_one_and_a_claim_at_the_other_agree(pair: Pair) -> None:
    for _ in range(20):
        job = await submitted(pair.a)
        pair.b.look_again()
        granted, (after,) = await asyncio.gather(pair.b.claim(a_request(a_worker())), pair.a.cancel([job.id]))
        assert after is not None
        if granted.grants:
            assert (after.status, after.cancel_requested_at is None) == ("running", False)
            assert await end(pair.b, granted.grants[0].batch.template, "error") == "cancelled"
        else:
            assert after.status == "cancelled"


async def test_lanes_made_at_both_at_once_are_the_same_lanes(pair: Pair) -> None:
    for round in range(5):
        queues = [f"q{round}-{number}" for number in range(6)]
        await asyncio.gather(
            *(submit(store, *(a_job(store, queue=queue) for queue in queues)) for store in pair)
        )
    for store in pair:
        page = await store.page(JobQuery(limit=1000))
        assert Counter(job.queue for job in page.jobs) == {
            f"q{round}-{number}": 2 for round in range(5) for number in range(6)
        }
        assert len({job.lane_id for job in page.jobs}) == 30
    pair.b.look_again()
    assert len(await claim(pair.b, a_worker(threads=100))) == 60


async def test_both_may_give_up_the_same_session_at_once(pair: Pair, clock: FakeClock) -> None:
    for number in range(5):
        await pair.a.open_session(a_session(pair.a, f"w{number}"))
        job = await claimed(pair.a, f"w{number}")
        clock.advance(11)
        found = await asyncio.gather(*(store.expire(store.now_us() - SILENT, STEADY) for store in pair))
        assert [id for expired in found for id in expired.sessions].count(f"w{number}") == 1
        assert [loss.claim.id for expired in found for loss in expired.losses] == [job.id]
        assert (await status_of(pair.b, job)) == "queued"
        await pair.a.cancel([job.id])


async def test_both_may_promote_and_purge_at_once(pair: Pair, clock: FakeClock) -> None:
    await submit(pair.a, *(a_job(pair.a, delay_us=MINUTE) for _ in range(50)))
    clock.advance(61)
    assert sum(await asyncio.gather(*(store.promote(1000) for store in pair))) == 50
    for store in pair:
        await store.cancel(ids(await every_job(pair.a)))
    clock.advance(61)
    retention = Retention(MINUTE, MINUTE)
    assert sum(await asyncio.gather(*(store.purge(retention, 1000) for store in pair))) == 50
    assert await every_job(pair.b) == []


async def test_a_dead_letter_replayed_at_both_runs_once(pair: Pair) -> None:
    dead = await failed(pair.a)
    await asyncio.gather(pair.a.replay([dead.id]), pair.b.replay([dead.id]))
    pair.b.look_again()
    grants = await asyncio.gather(*(store.claim(a_request(a_worker())) for store in pair))
    assert sum(len(granted.grants) for granted in grants) == 1


async def test_whoever_left_jobs_in_the_queue_says_so(pair: Pair) -> None:
    told: list[str] = []
    pair.a.on_left_over(lambda: told.append("a"))
    await submitted(pair.a)
    assert told == ["a"]
    job = (await claim(pair.a))[0]
    assert told == ["a"], "a claim leaves nothing behind"
    await end(pair.a, job, "handed_back")
    assert told == ["a", "a"]


async def test_coordinators_that_both_notice_a_clock_set_back_bring_each_retry_forward_once(
    pair: Pair, clock: FakeClock
) -> None:
    clock.jump(3_600)
    for _ in range(20):
        assert await end(pair.a, await claimed(pair.a), "error") == "scheduled"
    clock.jump(-3_600)
    corrected = await asyncio.gather(*(store.correct_times(7) for store in (*pair, *pair, *pair, *pair)))
    assert sum(corrected) == 20
    assert {job.run_at - clock.now_us() for job in await every_job(pair.b)} == {2_000_000}
