"""`cancel`, `replay`, `discard`: durable, from each status what the table says, and never a second way out."""

import pytest

from stoker.domain.retry import Kind
from stoker.store.base import Store
from stoker.store.reads import JobFilter, JobQuery
from tests.conformance.steps import (
    HOUR,
    SILENT,
    STEADY,
    a_session,
    blocked,
    claim,
    claim_again,
    claimed,
    end,
    failed,
    look,
    session_status,
    status_of,
    submitted,
)
from tests.support.clock import FakeClock

# ── cancel ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_queued_job_that_was_cancelled_never_starts(store: Store, clock: FakeClock) -> None:
    job = await submitted(store)
    clock.advance(1)
    (after,) = await store.cancel([job.id])
    assert after is not None
    assert (after.status, after.completed_at, after.cancel_requested_at) == (
        "cancelled",
        clock.now_us(),
        clock.now_us(),
    )
    assert await claim(store) == []
    assert await look(store, job) == after


async def test_a_scheduled_job_that_was_cancelled_never_becomes_due(store: Store, clock: FakeClock) -> None:
    job = await submitted(store, delay_us=HOUR)
    await store.cancel([job.id])
    clock.advance(7200)
    assert await store.promote(10) == 0
    assert await store.next_due_at() is None
    assert await status_of(store, job) == "cancelled"


async def test_a_blocked_job_can_be_cancelled(store: Store) -> None:
    job = await blocked(store)
    await store.cancel([job.id])
    assert await status_of(store, job) == "cancelled"


async def test_cancelling_a_running_job_records_the_wish(store: Store, clock: FakeClock) -> None:
    job = await claimed(store)
    (after,) = await store.cancel([job.id])
    assert after is not None
    assert (after.status, after.cancel_requested_at) == ("running", clock.now_us())
    first = clock.now_us()
    clock.advance(1)
    (again,) = await store.cancel([job.id])
    assert again is not None
    assert again.cancel_requested_at == first


@pytest.mark.parametrize("kind", ["completed", "invalid", "cancelled"])
async def test_cancelling_a_finished_job_changes_nothing(store: Store, kind: Kind) -> None:
    job = await claimed(store)
    await end(store, job, kind)
    before = await look(store, job)
    assert await store.cancel([job.id]) == [before]
    assert await look(store, job) == before


async def test_cancel_answers_in_order_and_says_what_it_does_not_know(store: Store) -> None:
    job = await submitted(store)
    nothing, found = await store.cancel(["no-such-job", job.id])
    assert nothing is None
    assert found is not None
    assert found.id == job.id


@pytest.mark.parametrize("kind", ["error", "timeout", "crash", "invalid", "handed_back", "cancelled"])
async def test_a_job_whose_cancel_was_requested_ends_as_cancelled(store: Store, kind: Kind) -> None:
    job = await claimed(store)
    await store.cancel([job.id])
    assert await end(store, job, kind) == "cancelled"
    after = await look(store, job)
    assert (after.status, after.completed_at) == ("cancelled", store.now_us())
    assert await claim(store) == []


async def test_a_job_that_completes_despite_a_cancel_is_completed(store: Store) -> None:
    job = await claimed(store)
    await store.cancel([job.id])
    assert await end(store, job) == "completed"


async def test_a_job_whose_cancel_was_requested_is_cancelled_when_its_worker_is_lost(
    store: Store, clock: FakeClock
) -> None:
    await store.open_session(a_session(store))
    job = await claimed(store)
    await store.cancel([job.id])
    clock.advance(11)
    expired = await store.expire(store.now_us() - SILENT, STEADY)
    assert [(lost.claim.id, lost.status) for lost in expired.losses] == [(job.id, "cancelled")]
    assert await session_status(store) == "lost"


@pytest.mark.parametrize("kind", ["error", "handed_back", "cancelled"])
async def test_the_same_report_twice_after_a_cancel_gets_the_same_answer(store: Store, kind: Kind) -> None:
    job = await claimed(store)
    await store.cancel([job.id])
    assert await end(store, job, kind) == "cancelled"
    assert await end(store, job, kind) == "cancelled"
    assert len(await store.attempts(job.id)) == 1


# ── replay ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_replayed_dead_letter_starts_afresh_under_a_growing_claim(
    store: Store, clock: FakeClock
) -> None:
    job = await claimed(store, max_attempts=1)
    await end(store, job, "crash")
    clock.advance(9)
    (after,) = await store.replay([job.id])
    assert after is not None
    assert (after.status, after.attempt, after.crashes, after.claim_id) == ("queued", 0, 0, 1)
    assert (after.error, after.completed_at, after.worker_id, after.run_at) == (
        None,
        None,
        None,
        clock.now_us(),
    )
    again = await claim_again(store, job)
    assert (again.claim_id, again.attempt) == (2, 1)
    assert await end(store, again) == "completed"


async def test_a_replayed_job_is_no_longer_wanted_cancelled(store: Store) -> None:
    job = await claimed(store)
    await store.cancel([job.id])
    await end(store, job, "cancelled")
    await store.replay([job.id])
    again = await claim_again(store, job)
    assert again.cancel_requested_at is None
    assert await end(store, again, "error") == "scheduled"


async def test_replay_hurries_a_job_that_backs_off_and_keeps_its_attempts(
    store: Store, clock: FakeClock
) -> None:
    job = await claimed(store)
    await end(store, job, "error")
    (after,) = await store.replay([job.id])
    assert after is not None
    assert (after.status, after.attempt, after.run_at) == ("queued", 1, clock.now_us())
    assert (await claim_again(store, job)).attempt == 2


async def test_replay_keeps_the_history_of_earlier_attempts(store: Store) -> None:
    job = await failed(store)
    await store.replay([job.id])
    again = await claim_again(store, job)
    await end(store, again)
    assert [(a.claim_id, a.kind) for a in await store.attempts(job.id)] == [(1, "invalid"), (2, "completed")]


async def test_replay_leaves_all_others_as_they_are(store: Store) -> None:
    queued, waiting = await submitted(store, type="x"), await blocked(store)
    running = await claimed(store)
    done = await claimed(store)
    await end(store, done)
    before = [await look(store, job) for job in (queued, waiting, running, done)]
    assert await store.replay([job.id for job in before]) == before
    assert await store.replay(["no-such-job"]) == [None]


async def test_replay_where_takes_matching_dead_letters_up_to_the_limit(store: Store) -> None:
    mine = [await failed(store, queue="a") for _ in range(3)]
    other = await failed(store, queue="b")
    discarded = await failed(store, queue="a")
    await store.discard([discarded.id])
    assert await store.replay_where(JobFilter(queue="a"), 2) == 2
    assert await store.replay_where(JobFilter(queue="a"), 2) == 1
    assert await store.replay_where(JobFilter(queue="a"), 2) == 0
    assert [await status_of(store, job) for job in mine] == ["queued"] * 3
    assert [await status_of(store, job) for job in (other, discarded)] == ["failed"] * 2


@pytest.mark.parametrize(
    "filter",
    [JobFilter(type="b"), JobFilter(name="two"), JobFilter(priority=9), JobFilter(queue="q", type="b")],
)
async def test_bulk_verbs_honour_every_filter(store: Store, filter: JobFilter) -> None:
    await failed(store, type="a", name="one", priority=1, queue="q")
    match = await failed(store, type="b", name="two", priority=9, queue="q")
    assert await store.replay_where(filter, 10) == 1
    assert await status_of(store, match) == "queued"
    again = await claim_again(store, match)
    await end(store, again, "invalid")
    assert await store.discard_where(filter, 10) == 1
    assert (await look(store, match)).discarded_at is not None


# ── discard ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_discarded_dead_letter_stays_failed_and_leaves_the_list(
    store: Store, clock: FakeClock
) -> None:
    job, kept = await failed(store), await failed(store)
    assert await store.discard([job.id, "no-such-job"]) == 1
    after = await look(store, job)
    assert (after.status, after.discarded_at) == ("failed", clock.now_us())
    dead = await store.page(JobQuery(JobFilter(dead_letters=True)))
    assert ([found.id for found in dead.jobs], dead.total) == ([kept.id], 1)
    assert await store.discard([job.id]) == 0


async def test_only_dead_letters_can_be_discarded(store: Store) -> None:
    queued = await submitted(store, type="x")
    running = await claimed(store)
    cancelled = await submitted(store)
    await store.cancel([cancelled.id])
    assert await store.discard([queued.id, running.id, cancelled.id]) == 0


async def test_discard_where_takes_matching_dead_letters_up_to_the_limit(store: Store) -> None:
    mine = [await failed(store, type="a") for _ in range(3)]
    other = await failed(store, type="b")
    assert await store.discard_where(JobFilter(type="a"), 2) == 2
    assert await store.discard_where(JobFilter(type="a"), 9) == 1
    assert [(await look(store, job)).discarded_at is None for job in [*mine, other]] == [False] * 3 + [True]


async def test_a_discarded_job_that_is_replayed_is_an_ordinary_job_again(store: Store) -> None:
    job = await failed(store)
    await store.discard([job.id])
    await store.replay([job.id])
    again = await claim_again(store, job)
    await end(store, again, "invalid")
    assert (await store.page(JobQuery(JobFilter(dead_letters=True)))).total == 1
