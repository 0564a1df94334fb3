"""`dead_letter_groups`, and finding jobs by how they failed."""

from typing import Any

from stoker.domain.fingerprint import fingerprint
from stoker.domain.job import Job
from stoker.domain.retry import problem
from stoker.store.base import Store
from stoker.store.reads import SPARKS, JobFilter, JobQuery
from tests.conformance.steps import MINUTE, claim_again, claimed, end, ids, look, submitted
from tests.support.clock import FakeClock


async def dead(store: Store, message: str, **fields: Any) -> Job:
    job = await claimed(store, **fields)
    assert await end(store, job, "invalid", error=problem("ValueError", message)) == "failed"
    return await look(store, job)


async def test_dead_letters_that_failed_alike_are_one_group(store: Store, clock: FakeClock) -> None:
    start = store.now_us()
    rows = [await dead(store, f"row {n} is bad") for n in range(3)]
    clock.advance(60)
    other = await dead(store, "no such file", type="import")
    clock.advance(60)
    rows.append(await dead(store, "row 7 is bad"))
    found = await store.dead_letter_groups(10)
    assert (found.total_groups, found.total_jobs) == (2, 5)
    first, second = found.groups
    assert (first.fingerprint, first.count) == (rows[0].fingerprint, 4)
    assert (first.first_seen_at, first.last_seen_at) == (start, start + 2 * MINUTE)
    assert first.sparkline == [3, *[0] * (SPARKS - 2), 1]
    assert first.sample.id == rows[-1].id
    assert first.sample.error == rows[-1].error
    assert (second.fingerprint, second.sample.id, second.sample.type) == (
        other.fingerprint,
        other.id,
        "import",
    )
    assert second.sparkline == [1] + [0] * (SPARKS - 1)


async def test_the_groups_that_failed_last_come_first_and_totals_count_all(
    store: Store, clock: FakeClock
) -> None:
    jobs = []
    for word in ("one", "two", "three"):
        jobs.append(await dead(store, word))
        clock.advance(1)
    found = await store.dead_letter_groups(2)
    assert [group.fingerprint for group in found.groups] == [jobs[2].fingerprint, jobs[1].fingerprint]
    assert (found.total_groups, found.total_jobs) == (3, 3)
    assert (await store.dead_letter_groups(1)).groups[0].sparkline == [1] + [0] * (SPARKS - 1)


async def test_without_dead_letters_there_are_no_groups(store: Store) -> None:
    await end(store, await claimed(store))
    await submitted(store)
    found = await store.dead_letter_groups(10)
    assert (found.groups, found.total_groups, found.total_jobs) == ([], 0, 0)


async def test_what_was_discarded_or_replayed_is_in_no_group(store: Store) -> None:
    gone, again, left = [await dead(store, "alike") for _ in range(3)]
    await store.discard([gone.id])
    await store.replay([again.id])
    assert (await look(store, again)).fingerprint is None
    (group,) = (await store.dead_letter_groups(10)).groups
    assert (group.count, group.sample.id) == (1, left.id)
    running = await claim_again(store, again)
    await end(store, running, "invalid", error=problem("ValueError", "alike"))
    (group,) = (await store.dead_letter_groups(10)).groups
    assert group.count == 2


async def test_only_a_job_that_failed_has_a_fingerprint(store: Store) -> None:
    done, stopped, retried = await claimed(store), await claimed(store), await claimed(store)
    await end(store, done)
    await end(store, stopped, "cancelled")
    await end(store, retried, "error")
    assert [(await look(store, job)).fingerprint for job in (done, stopped, retried)] == [None] * 3
    lost = await dead(store, "row 1 is bad")
    assert lost.fingerprint == fingerprint(lost.type, lost.error)


async def test_jobs_are_found_by_how_they_failed(store: Store) -> None:
    rows = [await dead(store, f"row {n} is bad") for n in range(3)]
    await dead(store, "else")
    await store.discard([rows[0].id])
    wanted = rows[0].fingerprint
    every = await store.page(JobQuery(JobFilter(fingerprint=wanted)))
    assert (ids(every.jobs), every.total) == (ids(rows[::-1]), 3)
    listed = await store.page(JobQuery(JobFilter(fingerprint=wanted, dead_letters=True)))
    assert ids(listed.jobs) == ids(rows[:0:-1])
    assert (await store.page(JobQuery(JobFilter(fingerprint=wanted, status="failed")))).total == 3
    assert (await store.page(JobQuery(JobFilter(fingerprint=wanted, status="queued")))).total == 0


async def test_a_canary_of_a_group_is_replayed_alone(store: Store) -> None:
    rows = [await dead(store, f"row {n} is bad") for n in range(3)]
    other = await dead(store, "else")
    wanted = JobFilter(fingerprint=rows[0].fingerprint)
    assert await store.replay_where(wanted, 1) == 1
    assert (await look(store, rows[0])).status == "queued"
    assert await store.discard_where(wanted, 10) == 2
    (group,) = (await store.dead_letter_groups(10)).groups
    assert group.sample.id == other.id
