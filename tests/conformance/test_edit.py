"""`edit`: what was acknowledged is what runs, in the right lane and place, and only while the job waits."""

import pytest
from msgspec.structs import replace

from stoker.domain import extras
from stoker.domain.edit import Changes
from stoker.domain.errors import StateConflict
from stoker.domain.extras import Extras, InvalidOption
from stoker.domain.job import NULL, Job
from stoker.domain.retry import Kind
from stoker.store.base import Store
from tests.conformance.steps import (
    HOUR,
    a_job,
    a_key,
    a_worker,
    blocked,
    claim,
    claimed,
    end,
    ids,
    look,
    submit,
    submitted,
)
from tests.support.clock import FakeClock
from tests.support.jobs import a_submission


async def edit(store: Store, job: Job, **changes: object) -> Job:
    after = await store.edit(job.id, Changes(**changes))  # type: ignore[arg-type]
    assert after is not None
    return after


async def counted(store: Store) -> set[tuple[str, str, int]]:
    return {(count.queue, count.status, count.count) for count in await store.counts()}


async def test_what_an_edit_changed_is_what_runs(store: Store) -> None:
    job = await submitted(store, metadata={"a": "1"})
    after = await edit(
        store,
        job,
        payload=b'{"n":2}',
        max_attempts=9,
        timeout_sec=7.5,
        metadata='{"b":"2"}',
        priority=0,
        rank=0,
    )
    assert await look(store, job) == after
    (running,) = await claim(store)
    assert (running.payload, running.max_attempts, running.timeout_sec) == (b'{"n":2}', 9, 7.5)
    assert (running.metadata, running.priority, running.rank) == ('{"b":"2"}', 0, 0)


async def test_a_field_that_is_left_out_stays_as_it_is_and_none_clears(store: Store) -> None:
    job = await submitted(store, timeout_sec=5, metadata={"a": "1"})
    await edit(store, job, metadata=None)
    after = await look(store, job)
    assert (after.timeout_sec, after.metadata) == (5, None)
    await edit(store, job, timeout_sec=None)
    assert (await look(store, job)).timeout_sec is None


async def test_a_better_rank_runs_first(store: Store) -> None:
    first, second = await submitted(store), await submitted(store)
    await edit(store, second, priority=0, rank=0)
    assert ids(await claim(store, a_worker(threads=1))) == [second.id]
    assert ids(await claim(store, a_worker(threads=1))) == [first.id]


async def test_another_queue_is_another_lane(store: Store) -> None:
    job = await submitted(store, queue="slow")
    await edit(store, job, queue="fast")
    assert await counted(store) == {("fast", "queued", 1)}
    assert await claim(store, a_worker(queues=("slow",))) == []
    (running,) = await claim(store, a_worker(queues=("fast",)))
    assert (running.id, running.queue) == (job.id, "fast")
    assert await end(store, running) == "completed"
    assert await counted(store) == {("fast", "completed", 1)}


async def test_a_later_time_postpones_and_an_earlier_one_hurries(store: Store, clock: FakeClock) -> None:
    job = await submitted(store)
    assert (await edit(store, job, run_at=clock.now_us() + HOUR)).status == "scheduled"
    assert await claim(store) == []
    assert await store.next_due_at() == clock.now_us() + HOUR
    assert (await edit(store, job, run_at=clock.now_us())).status == "queued"
    assert await counted(store) == {("default", "queued", 1)}
    assert ids(await claim(store)) == [job.id]


async def test_a_blocked_job_stays_blocked(store: Store, clock: FakeClock) -> None:
    job = await blocked(store)
    assert (await edit(store, job, run_at=clock.now_us() + HOUR, priority=5, rank=5)).status == "blocked"


async def test_a_timeout_stays_above_the_soft_one(store: Store) -> None:
    (job,) = await submit(
        store, replace(a_job(store, timeout_sec=60), extras=extras.encode(Extras(soft_timeout_sec=50)))
    )
    with pytest.raises(InvalidOption, match="timeout_sec"):
        await edit(store, job, timeout_sec=50.0)
    assert (await edit(store, job, timeout_sec=51.0)).timeout_sec == 51


async def test_a_job_that_backs_off_keeps_its_attempts(store: Store) -> None:
    job = await claimed(store, max_attempts=3)
    await end(store, job, "error")
    assert (await edit(store, job, max_attempts=2)).attempt == 1
    with pytest.raises(InvalidOption, match="max_attempts"):
        await edit(store, job, max_attempts=1)


@pytest.mark.parametrize("kind", [None, "completed", "invalid", "cancelled"])
async def test_a_job_that_runs_or_is_over_cannot_be_changed(store: Store, kind: Kind | None) -> None:
    job = await claimed(store)
    if kind is not None:
        await end(store, job, kind)
    before = await look(store, job)
    with pytest.raises(StateConflict, match=before.status):
        await edit(store, job, priority=0, rank=0)
    assert await look(store, job) == before


async def test_there_is_nothing_to_change_of_a_job_that_is_not_there(store: Store) -> None:
    assert await store.edit(a_job(store).id, Changes(priority=1)) is None
    assert await store.edit("no-such-job", Changes(priority=1)) is None


async def test_an_edit_does_not_change_what_its_key_stands_for(store: Store) -> None:
    job = a_job(store)
    await store.insert([a_submission(job, a_key(store))])
    await edit(store, job, payload=b"2")
    (again,) = await store.insert([a_submission(a_job(store), a_key(store))])
    assert (again.repeated, again.job.id, again.job.payload) == (True, job.id, b"2")


async def test_a_large_payload_survives_an_edit(store: Store) -> None:
    (job,) = await submit(store, replace(a_job(store), payload=b'"' + b"x" * 100_000 + b'"'))
    await edit(store, job, priority=0, rank=0)
    assert (await look(store, job)).payload == job.payload != NULL
