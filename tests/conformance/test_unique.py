"""Unique keys: at most one unfinished job holds a key, on every path that stores, claims, ends or replays a job."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stoker.clock import SECOND
from stoker.domain import extras
from stoker.domain.edit import Changes
from stoker.domain.errors import StateConflict, UniqueConflict
from stoker.domain.extras import Extras
from stoker.domain.job import Job, JobSpec, OnConflict, UniqueUntil
from stoker.domain.job_batch import batch_of
from stoker.domain.retry import Kind
from stoker.domain.unique import key_of
from stoker.store.base import Store
from stoker.store.reads import JobFilter
from stoker.store.submissions import Accepted, Submission
from tests.conformance.steps import (
    HOUR,
    SILENT,
    STEADY,
    a_job,
    a_key,
    a_session,
    a_worker,
    claim,
    claim_again,
    end,
    ids,
    look,
    status_of,
)
from tests.conformance.stores import books_balance, every_job
from tests.support.clock import START_US, FakeClock
from tests.support.schedules import ScheduleDriver


def a_unique_job(store: Store, key: str = "k", until: UniqueUntil = "finished", **fields: Any) -> Job:
    text = extras.encode(Extras(unique_key=key, unique_until=until))
    return replace(a_job(store, **fields), extras=text)


async def put(store: Store, job: Job, on_conflict: OnConflict = "return", **more: Any) -> Accepted:
    (accepted,) = await store.insert([Submission(batch_of(job), on_conflict=on_conflict, **more)])
    return accepted


# ── schedules ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_job_of_a_schedule_takes_its_key_and_finds_it_taken(store: Store, clock: FakeClock) -> None:
    driver = ScheduleDriver(store)
    for name in ("one", "two"):
        await driver.set(name, job=JobSpec(unique_key="k"))
    clock.advance(60)
    await driver.fire_all()
    (job,) = await every_job(store)
    assert await store.key_holder("k") == job.id
    assert (await put(store, a_unique_job(store))).unique == "existing"
    fired = [(await driver.ticks(name, 9))[0].outcome for name in ("one", "two")]
    assert sorted(fired) == ["fired", "skipped"]
    (running,) = await claim(store)
    await end(store, running)
    assert await store.key_holder("k") is None
    clock.advance(60)
    await driver.fire_all()
    assert len(await every_job(store)) == 2


async def test_a_trigger_and_a_backfill_respect_keys(store: Store, clock: FakeClock) -> None:
    driver = ScheduleDriver(store)
    first = await put(store, a_unique_job(store))
    await driver.set(paused=True, job=JobSpec(unique_key="k"))
    assert (await driver.trigger("s")).batch.template.id == first.job.id
    clock.advance(300)
    await driver.resume("s")
    done = await driver.backfill("s", START_US, START_US + 300 * SECOND)
    assert (done.jobs, len(await every_job(store))) == ([], 1)
    await driver.set(job=JobSpec(unique_key="k", on_conflict="reject"))
    with pytest.raises(StateConflict, match=first.job.id):
        await driver.trigger("s")
    await driver.set(job=JobSpec(payload=msgspec.Raw(b"2"), unique_key="k", on_conflict="replace"))
    assert (await driver.trigger("s")).batch.template.id == first.job.id
    assert (await look(store, first.job)).payload == b"2"


async def test_submissions_and_schedules_that_come_together_share_one_holder(
    store: Store, clock: FakeClock
) -> None:
    driver = ScheduleDriver(store)
    for number in range(5):
        await driver.set(f"s{number}", job=JobSpec(unique_key="k"))
    clock.advance(60)
    await asyncio.gather(*(put(store, a_unique_job(store)) for _ in range(5)), driver.fire_all())
    assert len(await every_job(store)) == 1


# ── submitting ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_second_submission_gets_the_job_that_holds_the_key(store: Store) -> None:
    first = await put(store, a_unique_job(store))
    assert (first.unique, first.repeated) == (None, False)
    second = await put(store, a_unique_job(store))
    assert (second.job.id, second.unique, second.repeated) == (first.job.id, "existing", True)
    assert sum(count.count for count in await store.counts()) == 1
    assert await store.key_holder("k") == first.job.id


async def test_reject_stores_nothing_of_the_call_and_names_the_holder(store: Store) -> None:
    first = await put(store, a_unique_job(store))
    free = a_unique_job(store, "free")
    with pytest.raises(UniqueConflict) as refused:
        await store.insert(
            [Submission(batch_of(free)), Submission(batch_of(a_unique_job(store)), on_conflict="reject")]
        )
    assert refused.value.job_id == first.job.id
    assert await store.get([free.id]) == [None]
    assert await store.key_holder("free") is None


async def test_replace_gives_a_waiting_job_the_new_payload_and_due_time(
    store: Store, clock: FakeClock
) -> None:
    first = await put(store, replace(a_unique_job(store, priority=5), payload=b"1"))
    later = await put(store, replace(a_unique_job(store, delay_us=HOUR), payload=b"2"), "replace")
    assert (later.job.id, later.unique) == (first.job.id, "replaced")
    stored = await look(store, first.job)
    assert (stored.status, stored.payload, stored.priority) == ("scheduled", b"2", 5)
    assert stored.run_at == clock.now_us() + HOUR
    assert await claim(store) == []
    await put(store, replace(a_unique_job(store), payload=b"3"), "replace")
    assert {(c.status, c.count) for c in await store.counts()} == {("queued", 1)}
    assert [job.payload for job in await claim(store)] == [b"3"]


async def test_a_job_that_becomes_due_while_it_is_replaced_is_counted_once(
    store: Store, clock: FakeClock
) -> None:
    first = await put(store, a_unique_job(store, delay_us=HOUR))
    clock.advance(3_601)
    await asyncio.gather(store.promote(10), put(store, a_unique_job(store), "replace"))
    assert {(c.status, c.count) for c in await store.counts() if c.count} == {("queued", 1)}
    assert ids(await claim(store)) == [first.job.id]


async def test_an_edit_that_comes_with_a_replacement_is_kept(store: Store) -> None:
    first = await put(store, a_unique_job(store, priority=5))
    edit = store.edit(first.job.id, Changes(priority=0, rank=0, queue="fast"))
    await asyncio.gather(edit, put(store, replace(a_unique_job(store), payload=b"2"), "replace"))
    after = await look(store, first.job)
    assert (after.priority, after.queue, after.payload) == (0, "fast", b"2")
    assert {(c.queue, c.count) for c in await store.counts() if c.count} == {("fast", 1)}


@pytest.mark.parametrize("started", ["running", "backing off"])
async def test_a_job_that_has_started_is_not_replaced(store: Store, started: str) -> None:
    first = await put(store, a_unique_job(store))
    (running,) = await claim(store)
    if started == "backing off":
        await end(store, running, "error")
    before = await look(store, first.job)
    with pytest.raises(UniqueConflict, match=f"{first.job.id}, which is {before.status}"):
        await put(store, a_unique_job(store, delay_us=HOUR), "replace")
    assert await look(store, first.job) == before


async def test_a_job_that_was_handed_back_can_be_replaced(store: Store) -> None:
    first = await put(store, a_unique_job(store))
    (running,) = await claim(store)
    await end(store, running, "handed_back")
    assert (await put(store, replace(a_unique_job(store), payload=b"2"), "replace")).unique == "replaced"
    assert (await claim_again(store, first.job)).payload == b"2"


async def test_within_a_call_the_first_job_takes_the_key(store: Store) -> None:
    jobs = [replace(a_unique_job(store), payload=b"%d" % number) for number in range(3)]
    one, two, three = await store.insert(
        [
            Submission(batch_of(jobs[0])),
            Submission(batch_of(jobs[1])),
            Submission(batch_of(jobs[2]), on_conflict="replace"),
        ]
    )
    assert (one.unique, two.unique, three.unique) == (None, "existing", "replaced")
    assert {accepted.job.id for accepted in (one, two, three)} == {jobs[0].id}
    assert (await look(store, jobs[0])).payload == b"2"
    assert sum(count.count for count in await store.counts()) == 1


async def test_calls_that_come_together_share_one_holder(store: Store) -> None:
    answers = await asyncio.gather(
        *(put(store, a_unique_job(store, key)) for _ in range(20) for key in ("a", "b"))
    )
    assert len({accepted.job.id for accepted in answers}) == 2
    assert sum(accepted.unique is None for accepted in answers) == 2
    assert sum(count.count for count in await store.counts()) == 2


async def test_a_refused_call_leaves_its_keys_to_those_that_come_with_it(store: Store) -> None:
    await put(store, a_unique_job(store, "taken"))
    refused, accepted = await asyncio.gather(
        store.insert(
            [
                Submission(batch_of(a_unique_job(store, "free"))),
                Submission(batch_of(a_unique_job(store, "taken")), on_conflict="reject"),
            ]
        ),
        put(store, a_unique_job(store, "free")),
        return_exceptions=True,
    )
    assert isinstance(refused, UniqueConflict)
    assert isinstance(accepted, Accepted)
    assert accepted.unique is None
    assert await store.key_holder("free") == accepted.job.id


async def test_an_idempotency_key_remembers_the_job_that_held_the_unique_key(store: Store) -> None:
    first = await put(store, a_unique_job(store))
    await put(store, a_unique_job(store), key=a_key(store, "mine"))
    again = await put(store, a_unique_job(store), key=a_key(store, "mine"))
    assert (again.job.id, again.repeated, again.unique) == (first.job.id, True, None)


# ── giving the key up ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["completed", "invalid", "cancelled"])
async def test_the_end_of_a_job_frees_its_key(store: Store, kind: Kind) -> None:
    first = await put(store, a_unique_job(store))
    (running,) = await claim(store)
    assert (await put(store, a_unique_job(store))).unique == "existing"
    await end(store, running, kind)
    assert await store.key_holder("k") is None
    second = await put(store, a_unique_job(store))
    assert second.job.id != first.job.id


@pytest.mark.parametrize("kind", ["error", "crash", "handed_back"])
async def test_a_job_that_is_tried_again_keeps_its_key(store: Store, kind: Kind) -> None:
    first = await put(store, a_unique_job(store))
    (running,) = await claim(store)
    await end(store, running, kind)
    assert (await put(store, a_unique_job(store))).job.id == first.job.id


async def test_cancelling_a_waiting_job_frees_its_key(store: Store) -> None:
    first = await put(store, a_unique_job(store, delay_us=HOUR))
    await store.cancel([first.job.id])
    assert (await put(store, a_unique_job(store))).unique is None


async def test_a_stale_completion_frees_nothing(store: Store, clock: FakeClock) -> None:
    await store.open_session(a_session(store))
    first = await put(store, a_unique_job(store))
    (stale,) = await claim(store)
    clock.advance(11)
    await store.expire(store.now_us() - SILENT, STEADY)
    assert await end(store, stale) is None
    assert await store.key_holder("k") == first.job.id


async def test_until_started_the_first_claim_frees_the_key_for_good(store: Store, clock: FakeClock) -> None:
    first = await put(store, a_unique_job(store, until="started"))
    (running,) = await claim(store)
    assert await store.key_holder("k") is None
    second = await put(store, a_unique_job(store, until="started", type="other"))
    assert second.unique is None
    await end(store, running, "handed_back")
    again = await claim_again(store, first.job)
    await end(store, again, "error")
    assert await store.key_holder("k") == second.job.id
    assert (await store.replay([first.job.id]))[0] is not None
    assert await status_of(store, first.job) == "queued"


async def test_a_job_claimed_in_the_transaction_that_stores_it_gives_up_a_key_until_started(
    store: Store,
) -> None:
    job = a_unique_job(store, until="started")
    _, running = await asyncio.gather(put(store, job), claim(store))
    assert ids(running) == [job.id]
    assert await store.key_holder("k") is None


# ── replays ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _dead(store: Store, key: str = "k", **fields: Any) -> Job:
    accepted = await put(store, a_unique_job(store, key, **fields))
    (running,) = await claim(store, a_worker(threads=1))
    assert running.id == accepted.job.id
    assert await end(store, running, "invalid") == "failed"
    return accepted.job


async def test_a_replayed_job_takes_its_key_again(store: Store) -> None:
    dead = await _dead(store)
    await store.replay([dead.id])
    assert await store.key_holder("k") == dead.id
    assert (await put(store, a_unique_job(store))).job.id == dead.id


async def test_a_dead_letter_whose_key_is_taken_is_not_replayed(store: Store) -> None:
    dead = await _dead(store)
    holder = await put(store, a_unique_job(store))
    (after,) = await store.replay([dead.id])
    assert after is not None
    assert after.status == "failed"
    assert await status_of(store, dead) == "failed"
    assert await store.key_holder("k") == holder.job.id


async def test_replay_where_steps_over_jobs_whose_key_is_taken(store: Store) -> None:
    blocked = [await _dead(store, "a"), await _dead(store, "a")]
    free = [await _dead(store, "b"), await _dead(store, "b"), await _dead(store, "c")]
    await put(store, a_unique_job(store, "a"))
    counts = [await store.replay_where(JobFilter(), 2) for _ in range(3)]
    assert (sum(counts), counts[-1]) == (2, 0)  # of the two with one key, one
    assert [await status_of(store, job) for job in [*blocked, *free]] == [
        "failed", "failed", "queued", "failed", "queued",
    ]  # fmt: skip
    assert await store.keys_taken(JobFilter()) == 3


@pytest.mark.parametrize("by_filter", [False, True])
@pytest.mark.parametrize("on_conflict", ["return", "replace"])
async def test_a_replay_and_a_submission_at_once_never_both_get_the_key(
    store: Store, by_filter: bool, on_conflict: OnConflict
) -> None:
    dead = [await _dead(store, f"k{number}") for number in range(5)]
    for number, job in enumerate(dead):
        replay = store.replay_where(JobFilter(), 1) if by_filter else store.replay([job.id])
        # One transaction has both.
        await asyncio.gather(replay, put(store, a_unique_job(store, f"k{number}"), on_conflict))
        keys = [key_of(job.extras) for job in await every_job(store) if job.status == "queued"]
        assert len(set(keys)) == len(keys)
        assert f"k{number}" in keys
        await books_balance(store)


async def test_a_replay_and_a_schedule_at_once_never_both_get_the_key(store: Store, clock: FakeClock) -> None:
    driver = ScheduleDriver(store)
    await driver.set("one", job=JobSpec(unique_key="k"))
    dead = await _dead(store)
    clock.advance(60)
    await asyncio.gather(store.replay([dead.id]), driver.fire_all())  # in one transaction
    queued = [job for job in await every_job(store) if job.status == "queued"]
    assert [key_of(job.extras) for job in queued] == ["k"]
    assert await store.key_holder("k") == queued[0].id


async def test_discarding_does_not_care_for_keys(store: Store) -> None:
    await _dead(store)
    await put(store, a_unique_job(store))
    assert await store.discard_where(JobFilter(), 10) == 1


# ── ids that clients made ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_repeated_id_comes_before_the_unique_key(store: Store) -> None:
    job = replace(a_unique_job(store), digest=b"d" * 32)
    first = await put(store, job, "reject")
    again = await put(store, job, "reject")
    assert (again.job.id, again.repeated, again.unique) == (first.job.id, True, None)


async def test_the_id_of_a_submission_whose_key_was_taken_is_still_free(store: Store) -> None:
    first = await put(store, a_unique_job(store))
    (running,) = await claim(store)
    late = replace(a_unique_job(store), digest=b"d" * 32)
    assert (await put(store, late)).job.id == first.job.id
    await end(store, running)
    accepted = await put(store, late)
    assert (accepted.job.id, accepted.unique, accepted.repeated) == (late.id, None, False)
    assert await store.key_holder("k") == late.id


async def dead(store: Store, key: str) -> str:
    """Return the id of a dead letter with a unique key."""
    job = (await put(store, a_unique_job(store, key))).job
    (running,) = await claim(store)
    assert await end(store, running, "invalid") == "failed"
    return job.id


async def test_a_replay_by_a_filter_ends_where_many_dead_letters_share_few_keys(store: Store) -> None:
    """A key that is taken hides the others that have it, and others yet come into view."""
    keys = [f"k{number}" for number in range(7)]
    for key in keys:
        for _ in range(6):
            await dead(store, key)
    replayed = []
    while count := await store.replay_where(JobFilter(), 6):
        replayed.append(count)
    assert sum(replayed) == len(keys)


async def test_one_of_two_dead_letters_with_one_key_is_replayed_in_whatever_order_they_ended(
    store: Store,
) -> None:
    first, second = await dead(store, "k"), await dead(store, "k")
    await store.replay([first])
    (running,) = await claim(store)
    assert await end(store, running, "invalid") == "failed"
    after = await store.replay([first, second])
    assert sorted(job.status for job in after if job is not None) == ["failed", "queued"]
