"""`claim`: exactly the planned jobs, in order, on workers that can run them, each under a number that only grows."""

import asyncio
import time
from pathlib import Path

import pytest

from stoker.clock import SECOND
from stoker.domain.retry import claim_of
from stoker.store.base import Store
from stoker.store.outcomes import Start
from tests.conformance.steps import (
    HOUR,
    a_job,
    a_request,
    a_worker,
    blocked,
    claim,
    claim_again,
    claimed,
    end,
    ids,
    look,
    status_of,
    submit,
    submitted,
)
from tests.conformance.stores import StoreKind, opened
from tests.support.clock import FakeClock
from tests.support.jobs import jobs_of


async def test_nothing_waits_nothing_is_granted(store: Store) -> None:
    assert await claim(store) == []


async def test_equal_priorities_run_first_in_first_out(store: Store) -> None:
    jobs = [await submitted(store) for _ in range(6)]
    assert ids(await claim(store, a_worker(threads=3))) == ids(jobs[:3])
    assert ids(await claim(store, a_worker(threads=3))) == ids(jobs[3:])


async def test_lower_priorities_run_first_by_default(store: Store) -> None:
    jobs = await submit(store, *[a_job(store, priority=p) for p in (9, 1, 5, 0, 5)])
    order = await claim(store, a_worker(threads=5))
    assert ids(order) == [jobs[3].id, jobs[1].id, jobs[2].id, jobs[4].id, jobs[0].id]


async def test_the_most_urgent_job_comes_first_however_many_came_before_it(store: Store) -> None:
    await submit(store, *[a_job(store, priority=9) for _ in range(50)])
    urgent = await submitted(store, priority=0)
    assert ids(await claim(store, a_worker(threads=1))) == [urgent.id]


async def test_higher_priorities_run_first_when_the_store_says_so(
    store_kind: StoreKind, place: Path, clock: FakeClock
) -> None:
    async with opened(store_kind, place, clock, order="highest_first") as store:
        jobs = await submit(store, *[a_job(store, priority=p, order="highest_first") for p in (1, 9, 5)])
        order = await claim(store, a_worker(threads=3))
        assert ids(order) == [jobs[1].id, jobs[2].id, jobs[0].id]
        assert [job.priority for job in order] == [9, 5, 1]


async def test_priority_counts_across_types_and_queues(store: Store) -> None:
    jobs = await submit(
        store,
        a_job(store, type="a", queue="x", priority=3),
        a_job(store, type="b", queue="y", priority=1),
        a_job(store, type="a", queue="y", priority=2),
    )
    order = await claim(store, a_worker(threads=3, types=("a", "b")))
    assert ids(order) == [jobs[1].id, jobs[2].id, jobs[0].id]


async def test_a_granted_job_is_running_under_its_claim(store: Store, clock: FakeClock) -> None:
    job = await submitted(store)
    clock.advance(1)
    (running,) = await claim(store, a_worker("w7"))
    assert running == await look(store, job)
    assert (running.status, running.claim_id, running.attempt) == ("running", 1, 1)
    assert (running.worker_id, running.threads_granted) == ("w7", 1)
    assert running.claimed_at == clock.now_us()
    assert running.started_at is None


async def test_a_running_job_is_not_granted_again(store: Store) -> None:
    await claimed(store)
    assert await claim(store, a_worker("w2")) == []


async def test_claim_numbers_only_grow(store: Store) -> None:
    job = await claimed(store)
    for number in range(2, 6):
        assert await end(store, job, "handed_back") == "queued"
        job = await claim_again(store, job)
        assert job.claim_id == number


async def test_never_more_than_the_free_threads_are_granted(store: Store) -> None:
    await submit(store, *[a_job(store) for _ in range(20)])
    assert len(await claim(store, a_worker("a", threads=8, free=3), a_worker("b", threads=4, free=0))) == 3


async def test_thread_demands_add_up_to_no_more_than_the_free_threads(store: Store) -> None:
    await submit(store, *[a_job(store, thread_demand=d) for d in (2, 3, 1, 2, 1, 4)])
    granted = await claim(store, a_worker("a", threads=4), a_worker("b", threads=3))
    by_session: dict[str, int] = {}
    for job in granted:
        by_session[job.worker_id or ""] = by_session.get(job.worker_id or "", 0) + (job.threads_granted or 0)
    assert by_session["a"] <= 4
    assert by_session["b"] <= 3


async def test_a_job_gets_the_threads_that_it_demands(store: Store) -> None:
    job = await claimed(store, thread_demand=3)
    assert job.threads_granted == 3


async def test_an_oversized_job_waits_and_then_runs_on_one_thread(store: Store, clock: FakeClock) -> None:
    job = await submitted(store, thread_demand=8)
    assert await claim(store, a_worker(threads=4)) == []
    clock.advance(5)
    (running,) = await claim(store, a_worker(threads=4))
    assert (running.id, running.threads_granted) == (job.id, 1)


async def test_an_oversized_job_that_may_not_be_degraded_goes_on_waiting(
    store: Store, clock: FakeClock
) -> None:
    await submitted(store, thread_demand=8, on_oversize="wait")
    clock.advance(3600)
    assert await claim(store, a_worker(threads=4)) == []


async def test_a_large_job_is_not_starved_by_small_ones(store: Store, clock: FakeClock) -> None:
    large = await submitted(store, thread_demand=4)
    clock.advance(3)
    await submit(store, *[a_job(store) for _ in range(10)])
    assert await claim(store, a_worker(threads=4, free=2)) == []
    assert ids(await claim(store, a_worker(threads=4, free=4))) == [large.id]


async def test_only_types_that_the_worker_has_are_granted(store: Store) -> None:
    await submitted(store, type="b")
    mine = await submitted(store, type="a")
    assert ids(await claim(store, a_worker(types=("a", "c")))) == [mine.id]


async def test_a_worker_that_takes_any_type_is_granted_those_that_nobody_names(store: Store) -> None:
    await submitted(store, type="named")
    own, odd = await submitted(store, type="own"), await submitted(store, type="odd")
    anything = a_worker(types=("own",), any_but=frozenset({"named", "own"}))
    assert ids(await claim(store, anything)) == [own.id, odd.id]


async def test_a_large_job_of_any_type_waits_for_the_worker_that_could_run_it(
    store: Store, clock: FakeClock
) -> None:
    await submitted(store, type="odd", thread_demand=8)
    clock.advance(60)
    large = a_worker("large", threads=8, free=0, types=(), any_but=frozenset())
    small = a_worker("small", threads=1, types=(), any_but=frozenset())
    assert await claim(store, large, small) == []
    large.any_but = frozenset({"odd"})
    (degraded,) = await claim(store, large, small)
    assert (degraded.worker_id, degraded.threads_granted) == ("small", 1)


async def test_only_queues_that_the_worker_serves_are_granted(store: Store) -> None:
    await submitted(store, queue="slow")
    mine = await submitted(store, queue="fast")
    assert ids(await claim(store, a_worker(queues=("fast",)))) == [mine.id]


async def test_a_worker_without_queues_serves_them_all(store: Store) -> None:
    jobs = [await submitted(store, queue=queue) for queue in ("a", "b")]
    assert ids(await claim(store, a_worker())) == ids(jobs)


async def test_only_workers_with_all_labels_get_a_labelled_job(store: Store) -> None:
    job = await submitted(store, labels={"gpu": "yes", "zone": "eu"})
    assert await claim(store, a_worker(labels={"gpu": "yes"})) == []
    assert await claim(store, a_worker(labels={"gpu": "yes", "zone": "us"})) == []
    assert ids(await claim(store, a_worker(labels={"zone": "eu", "gpu": "yes", "x": "y"}))) == [job.id]


async def test_a_job_without_labels_runs_on_a_labelled_worker(store: Store) -> None:
    job = await submitted(store)
    assert ids(await claim(store, a_worker(labels={"gpu": "yes"}))) == [job.id]


async def test_ten_thousand_jobs_that_nobody_serves_do_not_stand_in_the_way(store: Store) -> None:
    await submit(store, *[a_job(store, type="unserved", priority=0) for _ in range(10_000)])
    job = await submitted(store, priority=100)
    before = time.process_time()
    assert ids(await claim(store, a_worker(threads=2))) == [job.id]
    assert time.process_time() - before < 0.25


async def test_a_job_that_is_not_due_is_not_granted(store: Store) -> None:
    await submitted(store, delay_us=HOUR)
    assert await claim(store) == []


async def test_a_job_that_waits_for_others_is_not_granted(store: Store) -> None:
    await blocked(store)
    assert await claim(store) == []


@pytest.mark.parametrize("ending", ["completed", "invalid", "cancelled"])
async def test_a_finished_job_is_not_granted(store: Store, ending: str) -> None:
    job = await claimed(store)
    await end(store, job, ending)  # type: ignore[arg-type]
    assert await claim(store) == []


# ── the prefetch ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_short_jobs_fill_the_prefetch_beyond_the_free_threads(store: Store) -> None:
    await submit(store, *[a_job(store) for _ in range(50)])
    granted = await claim(store, a_worker(threads=1, prefetch_us=20_000), run_us={"echo": 1_000})
    assert len(granted) == 20


async def test_a_type_of_unknown_run_time_gets_no_prefetch(store: Store) -> None:
    await submit(store, *[a_job(store) for _ in range(5)])
    assert len(await claim(store, a_worker(threads=1, prefetch_us=20_000))) == 1
    assert await claim(store, a_worker(threads=1, free=0, prefetch_us=20_000)) == []


async def test_a_slow_type_gets_no_prefetch(store: Store) -> None:
    await submit(store, *[a_job(store) for _ in range(5)])
    granted = await claim(store, a_worker(threads=1, prefetch_us=20_000), run_us={"echo": SECOND})
    assert len(granted) == 1


async def test_a_job_with_one_attempt_never_enters_the_prefetch(store: Store) -> None:
    await submit(store, *[a_job(store, max_attempts=1) for _ in range(5)])
    granted = await claim(store, a_worker(threads=2, prefetch_us=40_000), run_us={"echo": 100})
    assert len(granted) == 2


# ── who gets what ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_cursor_carries_transaction_robin_from_claim_to_claim(store: Store) -> None:
    sessions = []
    cursor = 0
    for _ in range(4):
        await submitted(store)
        request = a_request(a_worker("a"), a_worker("b"))
        granted = await store.claim(type(request)(request.workers, "round_robin", cursor, {}))
        cursor = granted.cursor
        sessions += [grant.session_id for grant in granted.grants]
    assert sessions == ["a", "b", "a", "b"]


async def test_concurrent_claims_never_grant_a_job_twice(store: Store) -> None:
    await submit(store, *[a_job(store) for _ in range(30)])
    answers = await asyncio.gather(*[store.claim(a_request(a_worker(f"w{n}", threads=7))) for n in range(6)])
    granted = [job.id for answer in answers for job in jobs_of(answer.grants)]
    assert len(granted) == len(set(granted)) == 30


async def test_a_request_can_be_used_again(store: Store) -> None:
    """The planner spends capacity on its own copy: what the caller holds is a snapshot, not a purse."""
    await submit(store, *[a_job(store) for _ in range(2)])
    request = a_request(a_worker(threads=1))
    assert len((await store.claim(request)).grants) == 1
    assert len((await store.claim(request)).grants) == 1


# ── started ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_real_start_is_recorded_once(store: Store, clock: FakeClock) -> None:
    job = await claimed(store)
    clock.advance(1)
    await store.started([Start(claim_of(job), clock.now_us())])
    await store.started([Start(claim_of(job), clock.now_us() + 5)])
    assert (await look(store, job)).started_at == clock.now_us()


async def test_a_start_under_an_old_claim_is_left_alone(store: Store) -> None:
    old = await claimed(store)
    await end(store, old, "handed_back")
    await store.started([Start(claim_of(old), store.now_us())])
    assert (await look(store, old)).started_at is None
    new = await claim_again(store, old)
    await store.started([Start(claim_of(old), store.now_us())])
    assert (await look(store, new)).started_at is None


async def test_a_start_after_the_end_changes_nothing(store: Store, clock: FakeClock) -> None:
    job = await claimed(store)
    await end(store, job)
    before = await look(store, job)
    clock.advance(1)
    await store.started([Start(claim_of(job), clock.now_us())])
    assert await look(store, job) == before
    assert await status_of(store, job) == "completed"


# ── what a session holds ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_session_holds_what_was_claimed_for_it_and_has_not_ended(store: Store) -> None:
    mine = [await claimed(store, "w1") for _ in range(3)]
    await claimed(store, "w2")
    await end(store, mine[0])
    await end(store, mine[1], "error")
    assert await store.held("w1") == [claim_of(mine[2])]
    assert await store.held("nobody") == []


async def test_a_claim_is_found_by_job_and_number_while_it_is_current(store: Store) -> None:
    job = await claimed(store)
    keys = [(job.id, 1), (job.id, 2), (job.id, 0), ("no-such-job", 1)]
    assert await store.claims(keys) == [claim_of(job), None, None, None]
    await end(store, job, "handed_back")
    assert await store.claims([(job.id, 1)]) == [None]
    again = await claim_again(store, job)
    assert await store.claims([(job.id, 1), (job.id, 2)]) == [None, claim_of(again)]


async def test_a_claim_tells_that_its_cancel_was_requested(store: Store) -> None:
    job = await claimed(store)
    await store.cancel([job.id])
    (held,) = await store.held("w1")
    assert held.cancel_requested
