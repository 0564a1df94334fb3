"""Schedules: each tick is recorded once and fires at most one job, whoever looks and whatever fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from stoker.clock import SECOND
from stoker.domain import extras
from stoker.domain.edit import Changes
from stoker.domain.errors import MissingError, StateConflict
from stoker.domain.extras import Extras
from stoker.domain.job import Job, JobSpec, OnConflict
from stoker.domain.job_batch import batch_of
from stoker.domain.recurrence import BadSchedule
from stoker.domain.schedule import ScheduleDecision
from stoker.store.base import Store
from stoker.store.schedules import ScheduleChange, SchedulesQuery, Seen
from stoker.store.submissions import Submission
from stoker.wire.schedules import DeclaredSchedule
from tests.conformance.steps import a_job, claim, end
from tests.conformance.stores import STORES, StoreKind, books_balance, every_job
from tests.support.clock import START_US, FakeClock
from tests.support.in_loop import in_loop
from tests.support.schedules import ScheduleDriver, a_definition, brief

SHARED = [kind for kind in STORES if not kind.exclusive]
FIRED = [("tick", 1, 1, "fired", None)]


async def ticks(driver: ScheduleDriver, name: str = "s") -> list[tuple[str, int, int, str, str | None]]:
    return brief(await driver.ticks(name, 1000), START_US)


async def statuses(store: Store) -> list[str]:
    """Of all jobs, the oldest first."""
    return [job.status for job in reversed(await every_job(store))]


def tick_of(job: Job) -> int | None:
    return extras.decode(job.extras).scheduled_for


async def test_a_tick_becomes_a_job_that_knows_it(store: Store, clock: FakeClock) -> None:
    driver = ScheduleDriver(store)
    await driver.set(job=JobSpec(payload=msgspec.Raw(b'{"n": 1}'), type="echo", queue="q", priority=3))
    assert await store.next_schedule_at() == START_US + 60 * SECOND
    assert await driver.fire() == 0
    clock.advance(60)
    assert await driver.fire() == 1
    (job,) = await every_job(store)
    assert (job.payload, job.queue, job.priority, job.status) == (b'{"n": 1}', "q", 3, "queued")
    assert extras.decode(job.extras) == extras.Extras(schedule="s", scheduled_for=START_US + 60 * SECOND)
    schedule = await driver.get("s")
    assert (schedule.last_job_id, schedule.last_run_at) == (job.id, START_US + 60 * SECOND)
    assert await ticks(driver) == FIRED
    assert [item.accepted[0].batch.template.id for item in driver.changed if item.accepted] == [job.id]
    assert await store.next_schedule_at() == START_US + 120 * SECOND


async def test_a_tick_fires_once_however_often_one_looks(store: Store, clock: FakeClock) -> None:
    driver = ScheduleDriver(store)
    await driver.set()
    clock.advance(61)
    await asyncio.gather(*(driver.fire() for _ in range(10)))
    assert len(await every_job(store)) == 1
    assert await ticks(driver) == FIRED


async def test_a_job_for_which_a_worker_is_free_is_inserted_as_claimed(
    store: Store, clock: FakeClock
) -> None:
    driver = ScheduleDriver(store)
    await driver.set()
    clock.advance(60)
    _, running = await asyncio.gather(driver.fire(), claim(store))
    assert [tick_of(job) for job in running] == [START_US + 60 * SECOND]
    assert await statuses(store) == ["running"]


async def test_after_an_outage_the_latest_ticks_fire_and_the_others_are_one_record(
    store: Store, clock: FakeClock
) -> None:
    driver = ScheduleDriver(store)
    await driver.set(catch_up_sec=3600, catch_up_max=2)
    clock.advance(365 * 86_400)
    await driver.fire_all()
    year = 365 * 24 * 60
    assert await ticks(driver) == [
        ("tick", 1, year - 2, "missed", "catch_up_max"),
        ("tick", year - 1, year - 1, "fired", None),
        ("tick", year, year, "fired", None),
    ]
    jobs = await every_job(store)
    assert [tick_of(job) for job in reversed(jobs)] == [START_US + n * 60 * SECOND for n in (year, year - 1)]


async def test_a_failed_transaction_leaves_no_trace(store: Store, clock: FakeClock) -> None:
    driver = ScheduleDriver(store)
    await driver.set()
    clock.advance(60)

    def broken(seen: Seen) -> ScheduleDecision | None:
        driver._decide_due(seen)
        raise RuntimeError("a crash between")

    with pytest.raises(RuntimeError):
        await store.change_schedules(ScheduleChange(broken, limit=10))
    assert await every_job(store) == []
    assert await ticks(driver) == []
    await driver.fire()
    assert await ticks(driver) == FIRED


async def test_skip_waits_for_the_end_of_the_earlier_job(store: Store, clock: FakeClock) -> None:
    driver = ScheduleDriver(store)
    await driver.set(overlap="skip")
    clock.advance(60)
    await driver.fire()
    clock.advance(60)
    await driver.fire()
    (running,) = await claim(store)
    await end(store, running)
    clock.advance(60)
    await driver.fire()
    assert [row[3:] for row in await ticks(driver)] == [
        ("fired", None),
        ("skipped", "overlap"),
        ("fired", None),
    ]
    assert len(await every_job(store)) == 2


async def test_queue_one_holds_a_job_back_until_the_earlier_one_has_ended(
    store: Store, clock: FakeClock
) -> None:
    driver = ScheduleDriver(store)
    await driver.set(overlap="queue_one")
    for _ in range(3):
        clock.advance(60)
        await driver.fire()
    assert await statuses(store) == ["queued", "blocked"]
    (running,) = await claim(store)
    await end(store, running)
    clock.advance(1)
    await driver.fire()
    assert await statuses(store) == ["completed", "queued"]
    assert [row[3:] for row in await ticks(driver)] == [
        ("fired", None),
        ("fired", None),
        ("skipped", "overlap"),
    ]
    assert len(await claim(store)) == 1


async def held(driver: ScheduleDriver, store: Store, clock: FakeClock) -> Job:
    """The job of a second tick, which waits for that of the first."""
    for _ in range(2):
        clock.advance(60)
        await driver.fire()
    (job,) = [job for job in await every_job(store) if job.status == "blocked"]
    return job


async def test_an_edit_does_not_release_a_job_that_is_held_back(store: Store, clock: FakeClock) -> None:
    driver = ScheduleDriver(store)
    await driver.set(overlap="queue_one")
    job = await held(driver, store, clock)
    for run_at in (clock.now_us() + 600 * SECOND, clock.now_us()):
        edited = await store.edit(job.id, Changes(run_at=run_at))
        assert edited is not None
        assert edited.status == "blocked"
    assert len(await claim(store)) == 1


async def test_a_replacement_does_not_release_a_job_that_is_held_back(store: Store, clock: FakeClock) -> None:
    driver = ScheduleDriver(store)
    await driver.set(
        overlap="queue_one", job=JobSpec(unique_key="k", unique_until="started", on_conflict="replace")
    )
    clock.advance(60)
    await driver.fire()
    await claim(store)
    clock.advance(60)
    await driver.fire()
    assert await statuses(store) == ["running", "blocked"]
    new = replace(
        a_job(store), payload=b"2", extras=extras.encode(Extras(unique_key="k", unique_until="started"))
    )
    (answer,) = await store.insert([Submission(batch_of(new), on_conflict="replace")])
    assert (answer.unique, answer.job.status, answer.job.payload) == ("replaced", "blocked", b"2")
    assert await claim(store) == []


async def test_a_job_that_was_held_back_still_waits_for_its_own_time(store: Store, clock: FakeClock) -> None:
    driver = ScheduleDriver(store)
    await driver.set(overlap="queue_one", job=JobSpec(delay_sec=600))
    first = await driver.trigger("s")
    clock.advance(60)
    await driver.fire()
    await store.cancel([first.batch.template.id])
    clock.advance(1)
    await driver.fire()
    assert await statuses(store) == ["cancelled", "scheduled"]
    assert await store.next_due_at() == START_US + 660 * SECOND
    assert {(count.status, count.count) for count in await store.counts()} == {
        ("cancelled", 1),
        ("scheduled", 1),
    }
    clock.advance(600)
    assert await store.promote(10) == 1
    assert len(await claim(store)) == 1


@pytest.mark.parametrize("on_conflict", ["return", "reject", "replace"])
async def test_cancel_previous_cancels_nothing_when_no_job_takes_its_place(
    store: Store, clock: FakeClock, on_conflict: OnConflict
) -> None:
    driver = ScheduleDriver(store)
    await driver.set(overlap="cancel_previous", job=JobSpec(unique_key="k", on_conflict=on_conflict))
    for _ in range(2):
        clock.advance(60)
        await driver.fire()
    assert await statuses(store) == ["queued"]
    assert [row[3] for row in await ticks(driver)] == ["fired", "skipped"]


async def test_cancel_previous_cancels_what_waits_and_tells_what_runs(store: Store, clock: FakeClock) -> None:
    driver = ScheduleDriver(store)
    await driver.set(overlap="cancel_previous")
    clock.advance(60)
    await driver.fire()
    clock.advance(60)
    await driver.fire()
    assert await statuses(store) == ["cancelled", "queued"]
    await claim(store)
    clock.advance(60)
    await driver.fire()
    jobs = await every_job(store)
    assert [job.status for job in jobs] == ["queued", "running", "cancelled"]
    assert jobs[1].cancel_requested_at is not None


async def test_failures_pause_a_schedule_until_it_is_resumed(store: Store, clock: FakeClock) -> None:
    driver = ScheduleDriver(store)
    await driver.set(pause_after_failures=2, job=JobSpec(max_attempts=1))
    for _ in range(2):
        clock.advance(60)
        await driver.fire()
        (running,) = await claim(store)
        await end(store, running, "error")
    clock.advance(60)
    await driver.fire()
    schedule = await driver.get("s")
    assert (schedule.paused, schedule.pause_reason, schedule.failures) == (True, "failures", 2)
    assert await store.next_schedule_at() is None
    clock.advance(600)
    await driver.resume("s")
    assert [row[1:] for row in await ticks(driver)][2:] == [
        (3, 3, "skipped", "failures"),
        (4, 13, "skipped", "paused"),
    ]


async def test_a_pause_survives_a_change_and_records_what_it_passed(store: Store, clock: FakeClock) -> None:
    driver = ScheduleDriver(store)
    await driver.set()
    await driver.pause("s")
    await driver.set(overlap="skip")
    assert (await driver.get("s")).paused
    clock.advance(300)
    await driver.fire_all()
    assert await every_job(store) == []
    await driver.set(paused=False)
    assert await ticks(driver) == [("tick", 1, 5, "skipped", "paused")]
    assert await store.next_schedule_at() == START_US + 360 * SECOND


async def test_a_change_fires_what_was_due_by_the_old_times_first(store: Store, clock: FakeClock) -> None:
    driver = ScheduleDriver(store)
    await driver.set()
    clock.advance(60)
    await driver.set(cron="0 0 1 1 *")
    assert await ticks(driver) == FIRED
    assert len(await every_job(store)) == 1


async def test_a_trigger_makes_a_job_at_once_and_counts_as_an_earlier_one(
    store: Store, clock: FakeClock
) -> None:
    driver = ScheduleDriver(store)
    await driver.set(overlap="skip", paused=True)
    job = (await driver.trigger("s")).batch.template
    assert tick_of(job) == START_US
    await driver.resume("s")
    clock.advance(60)
    await driver.fire()
    assert await ticks(driver) == [("trigger", 0, 0, "fired", None), ("tick", 1, 1, "skipped", "overlap")]


async def test_a_backfill_makes_a_job_for_each_tick_that_has_none(store: Store, clock: FakeClock) -> None:
    driver = ScheduleDriver(store)
    await driver.set()
    clock.advance(300)
    await driver.fire_all()
    start = START_US - 120 * SECOND
    done = await driver.backfill("s", start, START_US + 300 * SECOND)
    assert (len(done.jobs), done.already) == (7, 1)
    again = await driver.backfill("s", start, START_US + 300 * SECOND)
    assert (len(again.jobs), again.already) == (0, 8)
    with pytest.raises(BadSchedule) as refused:
        await driver.backfill("s", 0, START_US)
    assert refused.value.field == "to"


async def test_a_deleted_schedule_fires_no_more_and_its_name_can_be_used_again(
    store: Store, clock: FakeClock
) -> None:
    driver = ScheduleDriver(store)
    await driver.set()
    clock.advance(60)
    await driver.fire()
    await driver.delete("s")
    clock.jump(-30)
    with pytest.raises(MissingError):
        await driver.get("s")
    await driver.set()
    clock.advance(60)
    await driver.fire()
    assert len(await every_job(store)) == 1  # the tick of that minute was recorded before
    clock.advance(60)
    await driver.fire()
    assert len(await every_job(store)) == 2


async def test_many_schedules_fire_in_several_transactions(store: Store, clock: FakeClock) -> None:
    driver = ScheduleDriver(store)
    for number in range(120):
        await driver.set(f"s{number:03}")
    clock.advance(60)
    await driver.fire_all()
    assert len(await every_job(store)) == 120
    page = await driver.page(SchedulesQuery(limit=50))
    rest = await driver.page(SchedulesQuery(after=page[-1].name, limit=100))
    assert [one.name for one in page + rest] == [f"s{number:03}" for number in range(120)]


async def test_records_are_purged_by_age(store: Store, clock: FakeClock) -> None:
    driver = ScheduleDriver(store)
    await driver.set()
    for _ in range(3):
        clock.advance(60)
        await driver.fire()
    assert await store.purge_ticks(START_US + 121 * SECOND, 1) == 1
    assert await store.purge_ticks(START_US + 121 * SECOND, 10) == 1
    assert [row[1] for row in await ticks(driver)] == [3]


def declared(name: str, cron: str = "* * * * *") -> DeclaredSchedule:
    return DeclaredSchedule(name=name, cron=cron, job=b'{"type":"echo"}')


async def test_declarations_apply_when_they_are_news(store: Store, clock: FakeClock) -> None:
    driver = ScheduleDriver(store)
    await driver.declare("app", 2, [declared("a"), declared("b")])
    assert [one.app for one in await driver.page(SchedulesQuery())] == ["app", "app"]
    await driver.pause("a")
    await driver.put("b", a_definition(cron="@hourly"))
    await ScheduleDriver(store).declare(
        "app", 2, [declared("b"), declared("a")]
    )  # the same again changes nothing
    assert (await driver.get("b")).cron == "@hourly"
    await ScheduleDriver(store).declare("app", 1, [declared("a", "@daily")])  # older
    assert (await driver.get("a")).cron == "* * * * *"
    await ScheduleDriver(store).declare("app", 3, [declared("a", "@daily")])
    a, b = await driver.page(SchedulesQuery())
    assert (a.cron, a.paused, a.orphaned_at) == ("@daily", True, None)
    assert b.orphaned_at is not None
    assert [one.name for one in await driver.page(SchedulesQuery(orphaned=True))] == ["b"]
    with pytest.raises(StateConflict):
        await driver.delete("a", orphaned=True)
    await driver.delete("b", orphaned=True)


async def test_an_app_does_not_take_a_schedule_from_another(store: Store) -> None:
    driver = ScheduleDriver(store)
    await driver.declare("one", None, [declared("a")])
    await driver.declare("two", None, [declared("a", "@daily")])
    schedule = await driver.get("a")
    assert (schedule.app, schedule.cron) == ("one", "* * * * *")


@asynccontextmanager
async def both(kind: StoreKind, place: Path, clock: FakeClock) -> AsyncIterator[tuple[Store, Store]]:
    a, b = await asyncio.gather(kind.open(place, clock), kind.open(place, clock))
    try:
        yield a, b
        await books_balance(a)
    finally:
        await a.close()
        await b.close()


@pytest.fixture(params=SHARED, ids=lambda kind: kind.name)
def pair(request: pytest.FixtureRequest, place: Path, clock: FakeClock) -> tuple[Store, Store]:
    return in_loop(lambda: both(request.param, place, clock))


async def test_two_coordinators_that_race_fire_each_tick_once(
    pair: tuple[Store, Store], clock: FakeClock
) -> None:
    drivers = [ScheduleDriver(store) for store in pair]
    names = [f"s{number:02}" for number in range(60)]
    for name in names:
        await drivers[0].set(name, catch_up_max=3, catch_up_sec=600)
    for _ in range(5):
        clock.advance(90)
        await asyncio.gather(*(driver.fire() for driver in drivers for _ in range(4)))
    clock.advance(60)
    for driver in drivers:
        await driver.fire_all()
    for name in names:
        recorded = await drivers[1].ticks(name, 1000)
        assert [(tick.tick - START_US) // (60 * SECOND) for tick in reversed(recorded)] == list(range(1, 9))
        assert {tick.outcome for tick in recorded} == {"fired"}
    assert len(await every_job(pair[0])) == 60 * 8


async def test_two_that_make_the_same_schedule_at_once_make_one(
    pair: tuple[Store, Store], clock: FakeClock
) -> None:
    a, b = (ScheduleDriver(store) for store in pair)
    await asyncio.gather(a.set(), b.set(), a.set(cron="@daily"), b.set())
    assert len(await a.page(SchedulesQuery())) == 1
