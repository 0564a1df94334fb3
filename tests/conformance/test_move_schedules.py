"""Schedules that are exported from one store and imported into another go on there, and no tick fires twice."""

from pathlib import Path

import pytest

from stoker.clock import SECOND
from stoker.store.move import MoveRefused
from stoker.store.move_format import BadFile
from stoker.store.schedules import SchedulesQuery
from stoker.wire.schedules import DeclaredSchedule
from tests.conformance.moving import edited
from tests.conformance.stores import every_job
from tests.conformance.test_move import PAIRS, Move
from tests.support.clock import START_US, FakeClock
from tests.support.schedules import ScheduleDriver


@pytest.fixture(params=PAIRS, ids=lambda pair: "-to-".join(pair))
def move(request: pytest.FixtureRequest, place: Path, clock: FakeClock) -> Move:
    return Move(request.param, place, clock)


async def exported(move: Move, clock: FakeClock) -> list[bytes]:
    async with move.source() as store:
        driver = ScheduleDriver(store)
        await driver.set("every", every_sec=60, overlap="skip", jitter_sec=5, pause_after_failures=3)
        await driver.set("paused", cron="@daily", timezone="Europe/Berlin", paused=True)
        await driver.declare(
            "app", 3, [DeclaredSchedule(name="of-app", cron="@hourly", job=b'{"type":"echo"}')]
        )
        clock.advance(66)
        await driver.fire_all()
    return await move.export()


async def test_schedules_arrive_as_they_were(move: Move, clock: FakeClock) -> None:
    lines = await exported(move, clock)
    done = await move.arrive(lines)
    assert (done.schedules, done.schedules_there, done.jobs) == (3, 0, 1)
    async with move.source() as source, move.target() as target:
        assert await target.schedules(SchedulesQuery()) == await source.schedules(SchedulesQuery())
        assert await target.schedule_app("app") == await source.schedule_app("app")
        clock.advance(60)
        await ScheduleDriver(target).fire_all()
        (job,) = await every_job(target)  # it waits still, so that the next tick is skipped
        recorded = await target.schedule_ticks("every", 10)
        assert [(tick.tick, tick.outcome) for tick in recorded] == [(START_US + 120 * SECOND, "skipped")]
        assert (await target.schedule("every")).last_job_id == job.id  # type: ignore[union-attr]
    again = await move.arrive(lines)
    assert (again.schedules, again.schedules_there) == (0, 3)


async def test_a_file_of_format_1_is_read_and_one_of_format_3_is_not(move: Move, clock: FakeClock) -> None:
    async with move.source():
        pass
    header, end = await move.export()
    assert b'"format":2' in header
    await move.arrive(
        [edited(header, format=1), b'{"record":"end","jobs":0,"attempts":0,"keys":0,"outputs":0}\n']
    )
    with pytest.raises(MoveRefused):
        await move.arrive([edited(header, format=3), end])


async def test_a_schedule_that_cannot_be_is_refused_with_its_line(move: Move, clock: FakeClock) -> None:
    lines = await exported(move, clock)
    number = next(index for index, line in enumerate(lines) if b'"record":"schedule"' in line)
    for change in ({"timezone": "Mars/Base"}, {"catch_up_max": 0}, {"job": {"type": 5}}, {"cron": "x"}):
        bad = [*lines[:number], edited(lines[number], **change), *lines[number + 1 :]]
        with pytest.raises(BadFile) as refused:
            await move.arrive(bad)
        assert refused.value.line == number + 1
