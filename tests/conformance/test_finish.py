"""`finish`: of all the attempts at a job exactly one writes its outcome, and each end means what the table says."""

import pytest
from msgspec.structs import replace

from stoker.clock import SECOND
from stoker.domain.job import Job
from stoker.domain.retry import Kind, claim_of, problem
from stoker.store.base import Store
from stoker.store.upkeep import Retention
from tests.conformance.steps import (
    SILENT,
    STEADY,
    a_job,
    a_session,
    a_worker,
    claim,
    claim_again,
    claimed,
    end,
    ends,
    failed,
    look,
    report,
    status_of,
    submit,
)
from tests.support.clock import FakeClock

CHARGED: tuple[Kind, ...] = ("error", "timeout", "crash")


# ── each way to end ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_completed_job_keeps_its_result_and_its_figures(store: Store, clock: FakeClock) -> None:
    job = await claimed(store)
    clock.advance(2)
    now = clock.now_us()
    status = await end(
        store,
        job,
        result=b'{"n":1}',
        started_at=now - SECOND,
        finished_at=now,
        cpu_us=5,
        peak_memory_kb=7,
    )
    assert status == "completed"
    after = await look(store, job)
    assert (after.status, after.result, after.error) == ("completed", b'{"n":1}', None)
    assert (after.started_at, after.completed_at) == (now - SECOND, now)
    assert (after.cpu_us, after.peak_memory_kb) == (5, 7)
    assert (after.attempt, after.claim_id, after.worker_id) == (1, 1, "w1")


async def test_a_completion_without_times_is_dated_by_the_store(store: Store, clock: FakeClock) -> None:
    job = await claimed(store)
    clock.advance(2)
    await end(store, job)
    after = await look(store, job)
    assert (after.started_at, after.completed_at) == (job.claimed_at, clock.now_us())


@pytest.mark.parametrize("kind", CHARGED)
async def test_a_charged_failure_backs_off_and_runs_again(store: Store, clock: FakeClock, kind: Kind) -> None:
    job = await claimed(store)
    assert await end(store, job, kind) == "scheduled"
    after = await look(store, job)
    assert (after.attempt, after.run_at) == (1, clock.now_us() + 2 * SECOND)
    assert (after.worker_id, after.claimed_at, after.started_at, after.threads_granted) == (None,) * 4
    assert after.error == problem(kind, "for a test")
    clock.advance(2)
    assert await store.promote(10) == 1
    again = await claim_again(store, job)
    assert (again.attempt, again.claim_id) == (2, 2)


@pytest.mark.parametrize("kind", CHARGED)
async def test_a_failure_of_the_last_attempt_is_final(store: Store, kind: Kind) -> None:
    job = await claimed(store, max_attempts=1)
    assert await end(store, job, kind) == "failed"
    after = await look(store, job)
    assert (after.status, after.completed_at, after.error) == (
        "failed",
        store.now_us(),
        problem(kind, "for a test"),
    )


async def test_an_invalid_job_fails_at_once(store: Store) -> None:
    job = await claimed(store, max_attempts=9)
    assert await end(store, job, "invalid") == "failed"


async def test_crashes_are_counted_and_the_third_is_the_last(store: Store, clock: FakeClock) -> None:
    job = await claimed(store, max_attempts=50)
    for crashes, status in ((1, "scheduled"), (2, "scheduled"), (3, "failed")):
        assert await end(store, job, "crash") == status
        assert (await look(store, job)).crashes == crashes
        if status == "scheduled":
            clock.advance(60)
            await store.promote(10)
            job = await claim_again(store, job)


async def test_other_failures_are_not_counted_as_crashes(store: Store) -> None:
    job = await claimed(store)
    await end(store, job, "error")
    assert (await look(store, job)).crashes == 0


async def test_a_hand_back_gives_the_attempt_back_and_keeps_the_place(store: Store, clock: FakeClock) -> None:
    job = await claimed(store, max_attempts=1)
    clock.advance(3)
    assert await end(store, job, "handed_back") == "queued"
    after = await look(store, job)
    assert (after.attempt, after.claim_id, after.run_at) == (0, 1, job.run_at)
    again = await claim_again(store, job)
    assert (again.attempt, again.claim_id) == (1, 2)


async def test_a_hundred_hand_backs_cost_no_attempt(store: Store) -> None:
    job = await claimed(store, max_attempts=1)
    for _ in range(100):
        await end(store, job, "handed_back")
        job = await claim_again(store, job)
    assert await end(store, job) == "completed"


async def test_a_cancelled_attempt_ends_the_job(store: Store) -> None:
    job = await claimed(store)
    assert await end(store, job, "cancelled") == "cancelled"
    assert (await look(store, job)).completed_at == store.now_us()


# ── the fence ──────────────────────────────────────────────────────────────────────────────────────────────────────

ENDS: tuple[Kind, ...] = ("completed", "error", "invalid", "handed_back", "cancelled")


async def _refused(store: Store, stale: Job, kind: Kind) -> None:
    before = await look(store, stale)
    attempts = await store.attempts(stale.id)
    assert await end(store, stale, kind) is None
    assert await look(store, stale) == before
    assert await store.attempts(stale.id) == attempts


@pytest.mark.parametrize("kind", ENDS)
async def test_a_report_under_a_number_that_was_never_given_is_refused(store: Store, kind: Kind) -> None:
    job = await claimed(store)
    await _refused(store, replace(job, claim_id=2), kind)
    await _refused(store, replace(job, claim_id=0), kind)


@pytest.mark.parametrize("kind", ENDS)
async def test_a_report_after_the_lease_expired_is_refused(
    store: Store, clock: FakeClock, kind: Kind
) -> None:
    await store.open_session(a_session(store))
    job = await claimed(store)
    clock.advance(11)
    assert len((await store.expire(store.now_us() - SILENT, STEADY)).losses) == 1
    await _refused(store, job, kind)
    await claim_again(store, job, "w2")
    await _refused(store, job, kind)


@pytest.mark.parametrize("kind", ENDS)
async def test_a_report_of_an_attempt_that_was_handed_back_and_claimed_again_is_refused(
    store: Store, kind: Kind
) -> None:
    job = await claimed(store)
    await end(store, job, "handed_back")
    await claim_again(store, job, "w2")
    await _refused(store, job, kind)


@pytest.mark.parametrize("kind", ENDS)
async def test_a_report_after_cancel_and_replay_is_refused(store: Store, kind: Kind) -> None:
    job = await claimed(store)
    await end(store, job, "handed_back")
    await store.cancel([job.id])
    await store.replay([job.id])
    await claim_again(store, job, "w2")
    await _refused(store, job, kind)


@pytest.mark.parametrize("kind", ["completed", "error", "handed_back", "cancelled"])
async def test_a_report_after_failure_and_replay_is_refused(store: Store, kind: Kind) -> None:
    job = await claimed(store)
    await end(store, job, "invalid")
    await store.replay([job.id])
    await _refused(store, job, kind)
    await claim_again(store, job, "w2")
    await _refused(store, job, kind)


@pytest.mark.parametrize("kind", ["error", "invalid", "handed_back", "cancelled"])
async def test_a_completed_job_cannot_end_another_way(store: Store, kind: Kind) -> None:
    job = await claimed(store)
    await end(store, job)
    await _refused(store, job, kind)


async def test_a_failed_job_cannot_be_completed_by_the_attempt_that_failed_it(store: Store) -> None:
    job = await failed(store)
    await _refused(store, job, "completed")


async def test_a_report_about_a_job_that_is_gone_is_refused(store: Store, clock: FakeClock) -> None:
    job = await claimed(store)
    await end(store, job)
    clock.advance(10)
    assert await store.purge(Retention(SECOND, SECOND), 10) == 1
    assert await end(store, job) is None
    assert await end(store, job, "error") is None


# ── the same report again ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [*ENDS, *CHARGED[1:]])
async def test_the_same_report_twice_gets_the_same_answer_and_counts_once(store: Store, kind: Kind) -> None:
    job = await claimed(store)
    first = await end(store, job, kind)
    after, attempts = await look(store, job), await store.attempts(job.id)
    assert first is not None
    assert await end(store, job, kind) == first
    assert await look(store, job) == after
    assert await store.attempts(job.id) == attempts


@pytest.mark.parametrize("kind", ENDS)
async def test_the_same_report_twice_in_one_batch_counts_once(store: Store, kind: Kind) -> None:
    job = await claimed(store)
    first, second = await ends(store, [report(job, kind), report(job, kind)])
    assert first == second == await status_of(store, job)
    assert len(await store.attempts(job.id)) == 1


async def test_a_retry_reported_again_after_its_time_came_gets_the_same_answer(
    store: Store, clock: FakeClock
) -> None:
    job = await claimed(store)
    assert await end(store, job, "error") == "scheduled"
    clock.advance(60)
    await store.promote(10)
    assert await end(store, job, "error") == "scheduled"
    assert await status_of(store, job) == "queued"


# ── batches ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_one_stale_report_among_a_hundred_and_twenty_good_ones_is_the_only_one_refused(
    store: Store,
) -> None:
    await submit(store, *[a_job(store) for _ in range(121)])
    jobs = await claim(store, a_worker(threads=121))
    batch = [report(job) for job in jobs]
    batch[77] = report(replace(jobs[77], claim_id=9))
    answers = await ends(store, batch)
    assert answers == ["completed"] * 77 + [None] + ["completed"] * 43
    assert await status_of(store, jobs[77]) == "running"


async def test_a_batch_of_all_kinds_of_ends_answers_in_order(store: Store) -> None:
    await submit(store, *[a_job(store) for _ in range(6)])
    jobs = await claim(store, a_worker(threads=6))
    kinds: list[Kind] = ["error", "completed", "handed_back", "invalid", "cancelled", "completed"]
    answers = await ends(store, [report(job, kind) for job, kind in zip(jobs, kinds, strict=True)])
    assert answers == ["scheduled", "completed", "queued", "failed", "cancelled", "completed"]
    assert [await status_of(store, job) for job in jobs] == answers


async def test_an_empty_batch_has_no_answers(store: Store) -> None:
    assert await ends(store, []) == []


# ── attempts ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_every_attempt_is_listed_oldest_first(store: Store, clock: FakeClock) -> None:
    job = await claimed(store)
    clock.advance(1)
    await end(store, job, "error", started_at=clock.now_us(), cpu_us=3)
    clock.advance(60)
    await store.promote(10)
    job = await claim_again(store, job, "w2")
    await end(store, job, "handed_back")
    job = await claim_again(store, job, "w3")
    attempts = await store.attempts(job.id)
    assert [(a.claim_id, a.attempt, a.worker_id, a.kind, a.charged) for a in attempts] == [
        (1, 1, "w1", "error", True),
        (2, 2, "w2", "handed_back", False),
        (3, 2, "w3", None, True),
    ]
    assert attempts[0].retry_delay_us == 2 * SECOND
    assert attempts[0].cpu_us == 3
    assert attempts[0].error == problem("error", "for a test")
    await end(store, job)
    assert [(a.claim_id, a.kind) for a in await store.attempts(job.id)] == [
        (1, "error"),
        (2, "handed_back"),
        (3, "completed"),
    ]


@pytest.mark.parametrize("kind", ["error", "timeout", "crash", "handed_back"])
async def test_an_attempt_that_runs_shows_nothing_of_the_one_before(
    store: Store, clock: FakeClock, kind: Kind
) -> None:
    job = await claimed(store)
    await end(store, job, kind, cpu_us=3, peak_memory_kb=4)
    clock.advance(60)
    await store.promote(10)
    job = await claim_again(store, job)
    before, current = await store.attempts(job.id)
    assert before.error == problem(kind, "for a test")
    assert (current.kind, current.error, current.cpu_us, current.peak_memory_kb) == (None, None, None, None)
    await end(store, job, "cancelled")
    _, current = await store.attempts(job.id)
    assert current.error == problem("cancelled", "for a test")


async def test_a_job_that_never_ran_has_no_attempts(store: Store) -> None:
    (job,) = await submit(store, a_job(store))
    assert await store.attempts(job.id) == []
    await store.cancel([job.id])
    assert await store.attempts(job.id) == []
    assert await store.attempts("no-such-job") == []


async def test_starts_minus_hand_backs_never_exceed_the_maximum(store: Store, clock: FakeClock) -> None:
    job = await claimed(store, max_attempts=3)
    for kind in ("handed_back", "error", "handed_back", "timeout", "handed_back", "error"):
        status = await end(store, job, kind)
        clock.advance(600)
        await store.promote(10)
        if status != "failed":
            job = await claim_again(store, job)
    attempts = await store.attempts(job.id)
    assert await status_of(store, job) == "failed"
    assert len(attempts) - sum(not attempt.charged for attempt in attempts) == 3


async def test_a_claim_that_a_coordinator_remembers_is_what_the_store_holds(store: Store) -> None:
    job = await claimed(store, thread_demand=2, timeout_sec=3.0, queue="q")
    assert await store.held("w1") == [claim_of(job)]
