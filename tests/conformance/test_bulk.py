"""Bulk operations: a row, worked off in steps that commit together with what they did."""

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stoker.domain.job import Job
from stoker.ids import new_id
from stoker.store.base import Store
from stoker.store.bulk import Bulk, BulkAction, BulkStep, BulkStepped
from stoker.store.reads import JobFilter, JobQuery
from stoker.store.upkeep import Retention
from tests.conformance.steps import (
    HOUR,
    a_job,
    blocked,
    claimed,
    end,
    failed,
    ids,
    look,
    status_of,
    submit,
    submitted,
)
from tests.conformance.stores import StoreKind, opened
from tests.support.clock import FakeClock


async def accepted(store: Store, action: BulkAction = "cancel", **filter: Any) -> Bulk:
    bulk = Bulk(new_id(), action, JobFilter(**filter), "running", 0, False, 0, 0, store.now_us())
    await store.put_bulk(bulk)
    return bulk


async def step(store: Store, bulk: Bulk, size: int = 10) -> BulkStepped | None:
    found = await store.bulk_candidates(bulk, size)
    return await store.bulk_step(BulkStep(bulk, [seq for seq, _ in found], len(found) < size))


async def worked_off(store: Store, bulk: Bulk, size: int = 10) -> Bulk:
    while bulk.status == "running":
        done = await step(store, bulk, size)
        assert done is not None
        bulk = done.bulk
    return bulk


async def statuses(store: Store, jobs: list[Job]) -> list[str]:
    return [await status_of(store, job) for job in jobs]


async def test_what_was_accepted_is_there(store: Store, clock: FakeClock) -> None:
    first = await accepted(store, "retry", status=("failed", "cancelled"), type="a", text="x")
    clock.advance(1)
    second = await accepted(store, "discard", created_after=5)
    assert await store.bulk(first.id) == first
    assert await store.bulk("no-such-operation") is None
    assert await store.bulks(20) == [second, first]
    assert await store.bulks(1) == [second]
    assert await store.bulks(20, running=True) == [second, first]


async def test_matching_jobs_are_cancelled_step_by_step(store: Store) -> None:
    jobs = await submit(store, *[a_job(store, type="ab"[n % 2]) for n in range(10)])
    bulk = await accepted(store, type="a")
    seen = [bulk]
    while seen[-1].status == "running":
        done = await step(store, seen[-1], 2)
        assert done is not None
        assert all(job.status == "cancelled" for job in done.jobs)
        seen.append(done.bulk)
    assert [(b.done, b.changed) for b in seen] == [(0, 0), (2, 2), (4, 4), (5, 5)]
    assert seen[-1].status == "done"
    assert seen[-1].finished_at is not None
    assert await store.bulk(bulk.id) == seen[-1]
    assert await store.bulks(20, running=True) == []
    assert await statuses(store, jobs) == ["cancelled", "queued"] * 5


async def test_cancelling_reaches_every_status_that_is_not_final(store: Store) -> None:
    waiting = [
        await submitted(store, delay_us=HOUR),
        await blocked(store),
        await submitted(store, type="other"),
    ]
    done, dead = await claimed(store), await failed(store)
    await end(store, done)
    running = await claimed(store)
    bulk = await accepted(store)
    result = await step(store, bulk)
    assert result is not None
    assert {job.id: job.status for job in result.jobs} == {
        **{job.id: "cancelled" for job in waiting},
        running.id: "running",
    }
    (told,) = [job for job in result.jobs if job.status == "running"]
    assert (told.worker_id, told.claim_id) == (running.worker_id, running.claim_id)
    assert told.cancel_requested_at is not None
    assert (await look(store, running)).cancel_requested_at == told.cancel_requested_at
    assert await statuses(store, [done, dead]) == ["completed", "failed"]
    again = await step(store, await accepted(store))
    assert again is not None
    assert (again.jobs, again.bulk.done, again.bulk.changed) == ([], 1, 0)


async def test_failed_and_cancelled_jobs_are_retried(store: Store) -> None:
    dead, done, waiting = await failed(store), await claimed(store), await submitted(store, type="other")
    await end(store, done)
    stopped = await submitted(store)
    await store.cancel([stopped.id])
    bulk = await worked_off(store, await accepted(store, "retry"))
    assert (bulk.done, bulk.changed) == (2, 2)
    assert await statuses(store, [dead, stopped, done, waiting]) == [
        "queued",
        "queued",
        "completed",
        "queued",
    ]


async def test_dead_letters_are_discarded(store: Store) -> None:
    kept, dead, gone = await failed(store, type="a"), await failed(store), await failed(store)
    await store.discard([gone.id])
    bulk = await worked_off(store, await accepted(store, "discard", type="echo"))
    assert (bulk.done, bulk.changed) == (1, 1)
    assert (await look(store, dead)).discarded_at is not None
    assert (await look(store, kept)).discarded_at is None


async def test_an_action_that_fits_no_status_of_the_filter_does_nothing(store: Store) -> None:
    await submitted(store)
    await failed(store, type="a")
    for action, status in (("cancel", "failed"), ("retry", "queued"), ("discard", "queued")):
        bulk = await worked_off(store, await accepted(store, action, status=status))  # type: ignore[arg-type]
        assert (bulk.done, bulk.changed, bulk.status) == (0, 0, "done")


async def test_jobs_that_came_later_are_left_alone(store: Store, clock: FakeClock) -> None:
    before = await submitted(store)
    bulk = await accepted(store)
    clock.advance(1)
    later = await submitted(store)
    await worked_off(store, bulk)
    assert await statuses(store, [before, later]) == ["cancelled", "queued"]


async def test_a_job_that_no_longer_matches_when_its_turn_comes_is_left_alone(store: Store) -> None:
    job, other = await submitted(store), await submitted(store)
    bulk = await accepted(store, status="queued")
    found = await store.bulk_candidates(bulk, 10)
    assert [id for _, id in found] == [job.id, other.id]
    running = await claimed(store, type="third")
    await store.cancel([other.id])
    await store.replay([other.id])
    await store.cancel([job.id])
    done = await store.bulk_step(BulkStep(bulk, [*(seq for seq, _ in found), running.seq], True))
    assert done is not None
    assert [changed.id for changed in done.jobs] == [other.id]
    assert (await look(store, running)).cancel_requested_at is None


async def test_a_step_is_taken_once(store: Store) -> None:
    await submit(store, *[a_job(store) for _ in range(4)])
    bulk = await accepted(store)
    one, other = await step(store, bulk, 2), await step(store, bulk, 2)
    assert one is not None
    assert other is None
    assert (await worked_off(store, one.bulk)).changed == 4


async def test_what_was_stopped_stays_stopped(store: Store) -> None:
    jobs = await submit(store, *[a_job(store) for _ in range(4)])
    bulk = await accepted(store)
    done = await step(store, bulk, 2)
    assert done is not None
    stopped = await store.stop_bulk(bulk.id)
    assert stopped is not None
    assert (stopped.status, stopped.done, stopped.finished_at) == ("stopped", 2, store.now_us())
    assert await step(store, done.bulk) is None
    assert await store.stop_bulk(bulk.id) == stopped
    assert await store.stop_bulk("no-such-operation") is None
    assert await statuses(store, jobs) == ["cancelled"] * 2 + ["queued"] * 2


async def test_another_goes_on_where_the_first_died(
    store_kind: StoreKind, place: Path, clock: FakeClock
) -> None:
    async with opened(store_kind, place, clock) as store:
        jobs = await submit(store, *[a_job(store) for _ in range(5)])
        bulk = await accepted(store)
        assert await step(store, bulk, 2) is not None
    async with opened(store_kind, place, clock) as store:
        (found,) = await store.bulks(20, running=True)
        assert found.done == 2
        assert (await worked_off(store, found, 2)).changed == 5
        assert await statuses(store, jobs) == ["cancelled"] * 5


@pytest.mark.parametrize(
    "filter", [{"fingerprint": True}, {"worker": "w1"}, {"text": "nam"}, {"name": "name"}, {"queue": "q"}]
)
async def test_any_filter_of_a_list_serves(store: Store, filter: dict[str, Any]) -> None:
    dead = await failed(store, name="name", queue="q")
    other = await failed(store, type="other", session_id="w2")
    if "fingerprint" in filter:
        filter = {"fingerprint": dead.fingerprint}
    assert (await worked_off(store, await accepted(store, "retry", **filter))).changed == 1
    assert await statuses(store, [dead, other]) == ["queued", "failed"]


@pytest.mark.parametrize("found_by", ["id", "name", "type", "failure"])
async def test_a_text_means_the_same_as_in_a_list(store: Store, found_by: str) -> None:
    dead = await failed(store, name="name", type="resize")
    other = await failed(store, type="other", session_id="w2")
    text = {"id": dead.id, "name": "AM"}.get(found_by, "zzz")
    types = ("resize", "unheard") if found_by == "type" else ()
    ways = (str(dead.fingerprint),) if found_by == "failure" else ()
    bulk = await accepted(store, "retry", text=text, text_types=types, text_failures=ways)
    assert ids((await store.page(JobQuery(bulk.filter))).jobs) == [dead.id]
    assert (await worked_off(store, bulk)).changed == 1
    assert await statuses(store, [dead, other]) == ["queued", "failed"]
    waiting = await accepted(store, "cancel", text=text, text_types=types, text_failures=ways)
    listed = await store.page(JobQuery(replace(bulk.filter, status="queued")))
    assert (await worked_off(store, waiting)).changed == len(listed.jobs) == (found_by != "failure")


async def test_operations_that_are_over_are_purged_with_the_jobs(store: Store, clock: FakeClock) -> None:
    over, running = await accepted(store), await accepted(store)
    await store.stop_bulk(over.id)
    clock.advance(3)
    await store.purge(Retention(2_000_000, HOUR), 100)
    assert [bulk.id for bulk in await store.bulks(20)] == [running.id]


@pytest.mark.parametrize("action", ["cancel", "retry", "discard"])
async def test_filters_that_leave_nothing_to_change_can_be_combined_at_will(
    store: Store, action: BulkAction
) -> None:
    """As in retrying what is completed, of one group of dead letters."""
    job = await failed(store, name="n")
    await submitted(store, name="n")
    parts = {"fingerprint": job.fingerprint, "name": "n", "text": "n", "type": job.type, "queue": job.queue}
    for names in [(), *((name,) for name in parts), *combinations(parts, 2)]:
        narrowed = {name: parts[name] for name in names}
        bulk = await accepted(store, action, status="completed", **narrowed)
        assert (await worked_off(store, bulk)).changed == 0
