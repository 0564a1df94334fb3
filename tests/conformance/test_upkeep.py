"""`promote`, `expire`, `purge` and the life of sessions, judged by the store's clock alone."""

import pytest

from stoker.clock import SECOND
from stoker.domain.errors import IdempotencyMismatch, JobPruned
from stoker.store.base import Store
from stoker.store.sessions import Renewal
from stoker.store.upkeep import Retention
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
    claimed,
    end,
    failed,
    ids,
    look,
    session_status,
    status_of,
    submit,
    submitted,
)
from tests.conformance.stores import every_job
from tests.support.clock import FakeClock
from tests.support.jobs import a_submission

# ── promote ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_scheduled_job_is_queued_when_its_time_has_come(store: Store, clock: FakeClock) -> None:
    job = await submitted(store, delay_us=10 * SECOND)
    clock.advance(9.999999)
    assert await store.promote(10) == 0
    assert await claim(store) == []
    clock.advance(0.000001)
    assert await store.promote(10) == 1
    assert ids(await claim(store)) == [job.id]


async def test_promote_takes_the_earliest_first_and_no_more_than_its_limit(
    store: Store, clock: FakeClock
) -> None:
    jobs = [await submitted(store, delay_us=seconds * SECOND) for seconds in (3, 1, 2)]
    clock.advance(5)
    assert await store.promote(2) == 2
    assert [await status_of(store, job) for job in jobs] == ["scheduled", "queued", "queued"]
    assert await store.promote(2) == 1
    assert await store.promote(2) == 0


async def test_the_earliest_due_time_is_known(store: Store, clock: FakeClock) -> None:
    assert await store.next_due_at() is None
    start = clock.now_us()
    for seconds in (30, 10, 20):
        await submitted(store, delay_us=seconds * SECOND)
    assert await store.next_due_at() == start + 10 * SECOND
    clock.advance(15)
    await store.promote(10)
    assert await store.next_due_at() == start + 20 * SECOND


async def test_a_promoted_job_stands_in_the_queue_by_its_own_priority(store: Store, clock: FakeClock) -> None:
    late = await submitted(store, delay_us=SECOND, priority=1)
    early = await submitted(store, priority=5)
    clock.advance(2)
    await store.promote(10)
    assert ids(await claim(store)) == [late.id, early.id]


# ── sessions ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_session_is_listed_as_it_was_opened(store: Store) -> None:
    session = a_session(
        store,
        types=("a", "b"),
        queues=("q",),
        labels={"gpu": "yes"},
        endpoint="http://x",
        host="h",
        pid=7,
        threads=9,
    )
    assert await store.open_session(session)
    assert await store.sessions() == [session]


@pytest.mark.parametrize("types", [(), ("echo", "mine")])
async def test_a_session_that_takes_any_type_is_listed_so(store: Store, types: tuple[str, ...]) -> None:
    session = a_session(store, types=types, any_type=True)
    assert await store.open_session(session)
    assert await store.sessions() == [session]


async def test_a_session_that_resumes_is_fresh_from_now(store: Store, clock: FakeClock) -> None:
    first = clock.now_us()
    await store.open_session(a_session(store, threads=2))
    clock.advance(9)
    assert await store.open_session(a_session(store, threads=4))
    (session,) = await store.sessions()
    assert (session.threads, session.registered_at) == (4, first)
    clock.advance(9)
    assert (await store.expire(store.now_us() - SILENT, STEADY)).sessions == []


async def test_a_lost_session_cannot_be_resumed_or_renewed(store: Store, clock: FakeClock) -> None:
    await store.open_session(a_session(store))
    clock.advance(11)
    assert (await store.expire(store.now_us() - SILENT, STEADY)).sessions == ["w1"]
    assert await store.renew([Renewal("w1", 0)]) == [None]
    assert not await store.open_session(a_session(store))
    assert not await store.set_session_status("w1", "draining")
    assert await session_status(store) == "lost"


async def test_heartbeats_answer_one_by_one(store: Store, clock: FakeClock) -> None:
    await store.open_session(a_session(store, "w1"))
    await store.open_session(a_session(store, "w2"))
    await store.set_session_status("w2", "gone")
    clock.advance(1)
    assert await store.renew([Renewal("w1", 3), Renewal("w2", 0), Renewal("unknown", 0)]) == [
        "live",
        None,
        None,
    ]
    (session,) = [session for session in await store.sessions() if session.id == "w1"]
    assert (session.threads_used, session.last_heartbeat_at) == (3, clock.now_us())


async def test_a_renewed_session_keeps_its_jobs(store: Store, clock: FakeClock) -> None:
    await store.open_session(a_session(store))
    job = await claimed(store)
    for _ in range(5):
        clock.advance(9)
        await store.renew([Renewal("w1", 1)])
        assert (await store.expire(store.now_us() - SILENT, STEADY)).losses == []
    assert await status_of(store, job) == "running"


async def test_a_draining_session_is_renewed_and_keeps_draining(store: Store, clock: FakeClock) -> None:
    await store.open_session(a_session(store))
    assert await store.set_session_status("w1", "draining")
    clock.advance(1)
    assert await store.renew([Renewal("w1", 1)]) == ["draining"]
    assert await session_status(store) == "draining"


async def test_a_session_that_was_told_to_drain_still_drains_after_it_resumes(store: Store) -> None:
    """The order may not have reached the worker: it must not be lost with the connection."""
    await store.open_session(a_session(store))
    await store.set_session_status("w1", "draining")
    assert await store.open_session(a_session(store))
    assert await session_status(store) == "draining"


async def test_a_session_that_said_goodbye_is_gone_for_good(store: Store) -> None:
    await store.open_session(a_session(store))
    assert await store.set_session_status("w1", "gone")
    assert not await store.set_session_status("w1", "draining")
    assert not await store.open_session(a_session(store))
    assert await session_status(store) == "gone"


async def test_an_unknown_session_has_no_status_to_set(store: Store) -> None:
    assert not await store.set_session_status("w1", "draining")


# ── expire ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_session_is_silent_only_beyond_the_timeout(store: Store, clock: FakeClock) -> None:
    await store.open_session(a_session(store))
    clock.advance(10)
    assert (await store.expire(store.now_us() - SILENT, STEADY)).sessions == []
    clock.advance(0.000001)
    assert (await store.expire(store.now_us() - SILENT, STEADY)).sessions == ["w1"]
    assert (await store.expire(store.now_us() - SILENT, STEADY)).sessions == []


async def test_the_jobs_of_a_silent_session_are_queued_at_once_and_charged(
    store: Store, clock: FakeClock
) -> None:
    await store.open_session(a_session(store))
    job = await claimed(store)
    clock.advance(11)
    expired = await store.expire(store.now_us() - SILENT, STEADY)
    assert [(lost.claim.id, lost.claim.claim_id, lost.status) for lost in expired.losses] == [
        (job.id, 1, "queued")
    ]
    after = await look(store, job)
    assert (after.status, after.attempt, after.run_at, after.worker_id) == (
        "queued",
        1,
        clock.now_us(),
        None,
    )
    (attempt,) = await store.attempts(job.id)
    assert (attempt.kind, attempt.charged, attempt.worker_id) == ("lost", True, "w1")
    assert (await claim_again(store, job, "w2")).attempt == 2


async def test_a_job_lost_on_its_last_attempt_fails(store: Store, clock: FakeClock) -> None:
    await store.open_session(a_session(store))
    job = await claimed(store, max_attempts=1)
    clock.advance(11)
    expired = await store.expire(store.now_us() - SILENT, STEADY)
    assert [lost.status for lost in expired.losses] == ["failed"]
    assert await status_of(store, job) == "failed"


async def test_only_the_silent_session_loses_its_jobs(store: Store, clock: FakeClock) -> None:
    await store.open_session(a_session(store, "w1"))
    await store.open_session(a_session(store, "w2"))
    mine, other = await claimed(store, "w1"), await claimed(store, "w2")
    clock.advance(11)
    await store.renew([Renewal("w2", 1)])
    expired = await store.expire(store.now_us() - SILENT, STEADY)
    assert (expired.sessions, [lost.claim.id for lost in expired.losses]) == (["w1"], [mine.id])
    assert await status_of(store, other) == "running"


async def test_a_draining_session_that_falls_silent_loses_its_jobs(store: Store, clock: FakeClock) -> None:
    await store.open_session(a_session(store))
    await claimed(store)
    await store.set_session_status("w1", "draining")
    clock.advance(11)
    assert len((await store.expire(store.now_us() - SILENT, STEADY)).losses) == 1


async def test_jobs_of_a_session_that_nobody_knows_are_found(store: Store) -> None:
    orphan = await claimed(store, "never-registered")
    expired = await store.expire(store.now_us() - SILENT, STEADY)
    assert (expired.sessions, [lost.claim.id for lost in expired.losses]) == ([], [orphan.id])
    assert await status_of(store, orphan) == "queued"


async def test_jobs_left_behind_by_a_session_that_said_goodbye_are_found(store: Store) -> None:
    await store.open_session(a_session(store))
    job = await claimed(store)
    await store.set_session_status("w1", "gone")
    assert [lost.claim.id for lost in (await store.expire(store.now_us() - SILENT, STEADY)).losses] == [
        job.id
    ]


async def test_jobs_of_a_session_whose_row_was_purged_are_found(store: Store, clock: FakeClock) -> None:
    await store.open_session(a_session(store))
    job = await claimed(store)
    await store.set_session_status("w1", "gone")
    clock.advance(3600)
    await store.purge(Retention(HOUR * 24, HOUR * 24), 10)
    assert await store.sessions() == []
    assert [lost.claim.id for lost in (await store.expire(store.now_us() - SILENT, STEADY)).losses] == [
        job.id
    ]


async def test_expiring_twice_charges_once(store: Store, clock: FakeClock) -> None:
    await store.open_session(a_session(store))
    job = await claimed(store)
    clock.advance(11)
    await store.expire(store.now_us() - SILENT, STEADY)
    assert (await store.expire(store.now_us() - SILENT, STEADY)).losses == []
    assert (await look(store, job)).attempt == 1


async def test_a_hundred_jobs_of_a_silent_session_all_come_back(store: Store, clock: FakeClock) -> None:
    await store.open_session(a_session(store))
    await submit(store, *[a_job(store) for _ in range(100)])
    jobs = await claim(store, a_worker(threads=100))
    clock.advance(11)
    expired = await store.expire(store.now_us() - SILENT, STEADY)
    assert {lost.claim.id for lost in expired.losses} == set(ids(jobs))
    assert ids(await claim(store, a_worker("w2", threads=100))) == ids(jobs)


# ── purge ──────────────────────────────────────────────────────────────────────────────────────────────────────────

RETENTION = Retention(completed_us=HOUR, failed_us=2 * HOUR)


async def test_finished_jobs_are_deleted_after_their_retention_and_not_before(
    store: Store, clock: FakeClock
) -> None:
    done, cancelled, dead = await claimed(store), await claimed(store), await failed(store)
    await end(store, done)
    await end(store, cancelled, "cancelled")
    clock.advance(3600)
    assert await store.purge(RETENTION, 10) == 0
    clock.advance(0.000001)
    assert await store.purge(RETENTION, 10) == 2
    assert ids(await every_job(store)) == [dead.id]
    clock.advance(3600)
    assert await store.purge(RETENTION, 10) == 1
    assert await every_job(store) == []
    assert await store.counts() == []


async def test_the_attempts_of_a_purged_job_are_gone_too(store: Store, clock: FakeClock) -> None:
    job = await failed(store)
    clock.advance(3 * 3600)
    await store.purge(RETENTION, 10)
    assert await store.attempts(job.id) == []
    assert await store.get([job.id]) == [None]


async def test_unfinished_jobs_are_kept_for_ever(store: Store, clock: FakeClock) -> None:
    await submitted(store, type="x")
    await submitted(store, delay_us=SECOND)
    await claimed(store)
    clock.advance(365 * 86_400)
    assert await store.purge(RETENTION, 10) == 0
    assert len(await every_job(store)) == 3


async def test_purge_deletes_no_more_than_its_limit(store: Store, clock: FakeClock) -> None:
    for kind in ("completed", "cancelled", "invalid", "completed"):
        await end(store, await claimed(store), kind)
    clock.advance(3 * 3600)
    assert [await store.purge(RETENTION, 3) for _ in range(3)] == [3, 1, 0]


async def test_a_replayed_job_is_not_deleted_for_its_former_end(store: Store, clock: FakeClock) -> None:
    job = await failed(store)
    await store.replay([job.id])
    clock.advance(3 * 3600)
    assert await store.purge(RETENTION, 10) == 0


async def test_expired_keys_are_deleted_and_live_ones_kept(store: Store, clock: FakeClock) -> None:
    await store.insert(
        [
            a_submission(a_job(store), a_key(store, "short", lives_us=SECOND)),
            a_submission(a_job(store), a_key(store, "long", lives_us=HOUR)),
        ]
    )
    clock.advance(60)
    await store.purge(RETENTION, 10)
    assert (await store.known_key("c", "short"), await store.known_key("c", "long")) == (False, True)


async def test_a_live_key_whose_job_was_purged_makes_no_second_job(store: Store, clock: FakeClock) -> None:
    await store.insert([a_submission(a_job(store), a_key(store, lives_us=24 * HOUR))])
    (job,) = await claim(store)
    await end(store, job)
    clock.advance(2 * 3600)
    assert await store.purge(RETENTION, 10) == 1
    with pytest.raises(JobPruned, match=job.id):
        await store.insert([a_submission(a_job(store), a_key(store, lives_us=24 * HOUR))])
    with pytest.raises(IdempotencyMismatch):
        await store.insert([a_submission(a_job(store), a_key(store, digest=b"other"))])
    clock.advance(23 * 3600)
    (accepted,) = await store.insert([a_submission(a_job(store), a_key(store))])
    assert not accepted.repeated
    assert await status_of(store, accepted.job) == "queued"


@pytest.mark.parametrize("ending", ["lost", "gone"])
async def test_ended_sessions_are_deleted_after_a_while_and_live_ones_kept(
    store: Store, clock: FakeClock, ending: str
) -> None:
    await store.open_session(a_session(store, "old"))
    if ending == "gone":
        await store.set_session_status("old", "gone")
    clock.advance(11)
    await store.expire(store.now_us() - SILENT, STEADY)
    assert await session_status(store, "old") == ending
    await store.open_session(a_session(store, "live"))
    clock.advance(1200)
    await store.purge(RETENTION, 10)
    assert [session.id for session in await store.sessions()] == ["live"]
