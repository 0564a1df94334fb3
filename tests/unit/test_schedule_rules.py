"""The rules of schedules, as a table: which ticks fire, and what is recorded of the others."""

import pytest
from msgspec.structs import replace

from stoker.domain import schedule as rules
from stoker.domain.recurrence import SECOND, BadSchedule
from stoker.domain.schedule import Definition, Firing, Inserted, Schedule, ScheduleDecision, Tick
from tests.support.jobs import a_job

MINUTE = 60 * SECOND
START = 1_790_000_040 * SECOND
"""A whole minute."""


def a_schedule(**fields: object) -> Schedule:
    defined = {"cron": "* * * * *", "every_us": None, "timezone": "UTC", "job": b"{}"} | fields
    return rules.created("s", Definition(**defined), START - 1)  # type: ignore[arg-type]


def brief(ticks: list[Tick]) -> list[tuple[int, int, str, str | None]]:
    return [((t.tick - START) // MINUTE, (t.last - START) // MINUTE, t.outcome, t.reason) for t in ticks]


def minutes(ticks: list[int]) -> list[int]:
    return [(tick - START) // MINUTE for tick in ticks]


@pytest.mark.parametrize(
    ("late_sec", "fields", "fired", "recorded"),
    [
        (0, {}, [0], []),
        (-1, {}, [], []),
        (59, {}, [0], []),
        (60, {}, [1], [(0, 0, "missed", "catch_up_max")]),
        (60, {"catch_up_max": 5}, [1, 0], []),
        (61, {"catch_up_max": 5}, [1], [(0, 0, "missed", "late")]),
        (600, {}, [10], [(0, 9, "missed", "catch_up_max")]),
        (600, {"catch_up_sec": 240, "catch_up_max": 9}, [10, 9, 8, 7, 6], [(0, 5, "missed", "late")]),
        (600, {"catch_up_sec": 1000, "catch_up_max": 2}, [10, 9], [(0, 8, "missed", "catch_up_max")]),
        (600, {"catch_up_sec": 0}, [10], [(0, 9, "missed", "catch_up_max")]),
        (365 * 86400 + 5, {}, [525_600], [(0, 525_599, "missed", "late")]),
        (600, {"overlap": "skip", "catch_up_sec": 600, "catch_up_max": 3}, [10],
         [(0, 7, "missed", "catch_up_max"), (8, 8, "skipped", "overlap"), (9, 9, "skipped", "overlap")]),
    ],
)  # fmt: skip
def test_ticks_fire_until_they_are_too_late_and_the_latest_first(
    late_sec: int, fields: dict[str, object], fired: list[int], recorded: list[object]
) -> None:
    step = rules.step(a_schedule(**fields), START + late_sec * SECOND, {})
    assert minutes(step.fire) == fired
    assert brief(step.ticks) == recorded


def test_an_hourly_tick_is_missed_when_nothing_is_in_time() -> None:
    schedule = a_schedule(cron=None, every_us=3600 * SECOND, start_at=START)
    step = rules.step(schedule, START + 100 * SECOND, {})
    assert step.fire == []
    assert brief(step.ticks) == [(0, 0, "missed", "late")]
    assert step.schedule.next_at == START + 3600 * SECOND


def test_a_step_moves_on_to_the_first_tick_of_which_nothing_is_recorded() -> None:
    step = rules.step(a_schedule(), START + 600 * SECOND, {})
    assert step.schedule.next_at == START + 11 * MINUTE
    assert step.schedule.due_at == START + 11 * MINUTE


OPEN = {"open_jobs": ("j1",)}


@pytest.mark.parametrize(
    ("overlap", "status", "fired", "hold", "cancelled", "reason"),
    [
        ("allow", "running", [0], False, (), None),
        ("skip", "running", [], False, (), "overlap"),
        ("skip", "queued", [], False, (), "overlap"),
        ("skip", "completed", [0], False, (), None),
        ("skip", None, [0], False, (), None),
        ("queue_one", "running", [0], True, (), None),
        ("queue_one", "failed", [0], False, (), None),
        ("cancel_previous", "running", [0], False, ("j1",), None),
        ("cancel_previous", "cancelled", [0], False, (), None),
    ],
)
def test_overlap(overlap, status, fired, hold, cancelled, reason) -> None:  # type: ignore[no-untyped-def]
    schedule = replace(a_schedule(overlap=overlap), **OPEN)
    step = rules.step(schedule, START, {} if status is None else {"j1": status})
    assert (minutes(step.fire), step.hold, step.cancel) == (fired, hold, cancelled)
    assert [tick.reason for tick in step.ticks] == ([] if reason is None else [reason])


def test_queue_one_holds_one_job_and_releases_it_when_the_others_have_ended() -> None:
    schedule = replace(a_schedule(overlap="queue_one"), open_jobs=("j1", "j2"), held_job="j2")
    busy = rules.step(schedule, START, {"j1": "running", "j2": "blocked"})
    assert (busy.fire, [tick.reason for tick in busy.ticks], busy.release) == ([], ["overlap"], None)
    assert busy.schedule.due_at == START + rules.POLL_US
    free = rules.step(busy.schedule, START + SECOND, {"j1": "failed", "j2": "blocked"})
    assert (free.release, free.schedule.held_job, free.schedule.open_jobs) == ("j2", None, ("j2",))


def test_failures_one_after_the_other_pause_a_schedule() -> None:
    schedule = replace(a_schedule(pause_after_failures=2), open_jobs=("j1", "j2"))
    step = rules.step(schedule, START, {"j1": "failed", "j2": "failed"})
    assert (step.fire, brief(step.ticks)) == ([], [(0, 0, "skipped", "failures")])
    assert (step.schedule.paused, step.schedule.pause_reason, step.schedule.due_at) == (
        True,
        "failures",
        None,
    )
    mixed = rules.step(schedule, START, {"j1": "failed", "j2": "completed"})
    assert (minutes(mixed.fire), mixed.schedule.failures) == ([0], 0)


def test_what_a_pause_passed_is_one_record_and_the_next_tick_fires() -> None:
    stopped = rules.paused(a_schedule(), START - 1)
    assert rules.step(stopped, START + 600 * SECOND, {}).ticks == []
    resumed = rules.resumed(stopped, START + 600 * SECOND)
    assert brief(resumed.ticks) == [(0, 10, "skipped", "paused")]
    assert resumed.schedule.next_at == START + 11 * MINUTE


def test_jitter_is_the_same_for_everybody_and_delays_within_its_bound() -> None:
    schedule = a_schedule(jitter_us=30 * SECOND)
    delays = {rules.jitter_us(schedule, START + n * MINUTE) for n in range(50)}
    assert len(delays) > 40
    assert all(0 <= delay <= 30 * SECOND for delay in delays)
    assert rules.jitter_us(schedule, START) == rules.jitter_us(a_schedule(jitter_us=30 * SECOND), START)
    due = START + rules.jitter_us(schedule, START)
    assert schedule.due_at == due
    assert rules.step(schedule, due - 1, {}).fire == []
    assert rules.step(schedule, due, {}).fire == [START]


def test_a_clock_that_is_set_back_fires_nothing_twice() -> None:
    ahead = rules.step(a_schedule(), START + 600 * SECOND, {}).schedule
    back = rules.step(ahead, START, {})
    assert (back.fire, back.ticks, back.schedule.next_at) == ([], [], ahead.next_at)
    changed = rules.changed(ahead, Definition("*/2 * * * *", None, "UTC", b"{}"), START).schedule
    assert changed.next_at is not None
    assert changed.next_at > START + 600 * SECOND


def test_a_change_of_the_times_records_what_only_waited_for_its_jitter() -> None:
    schedule = a_schedule(jitter_us=50 * SECOND)
    due = START + rules.jitter_us(schedule, START)
    made = rules.changed(schedule, Definition("@hourly", None, "UTC", b"{}"), due - 1)
    assert brief(made.ticks) == [(0, 0, "skipped", "changed")]


def test_the_same_definition_again_changes_nothing_but_the_time_of_the_change() -> None:
    schedule = a_schedule()
    again = rules.changed(schedule, Definition("* * * * *", None, "UTC", b"{}"), START + 5)
    assert again.schedule == replace(schedule, updated_at=START + 5)


def test_a_refused_job_is_a_skipped_tick() -> None:
    job = a_job()
    decision = ScheduleDecision(a_schedule(), firings=[Firing("tick", START, job)])
    after, (tick,) = rules.after_inserts(decision, [Inserted(None, refused="the key is taken")], START)
    assert (tick.outcome, tick.reason, tick.job_id) == ("skipped", "the key is taken", None)
    assert after is not None
    assert after.last_job_id is None


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"cron": None}, "cron"),
        ({"every_us": SECOND}, "every_sec"),
        ({"timezone": "Nowhere"}, "timezone"),
        ({"cron": "0 0 31 2 *"}, "cron"),
        ({"cron": None, "every_us": SECOND, "jitter_us": 2 * SECOND}, "jitter_sec"),
        ({"start_at": 5, "end_at": 5}, "end_at"),
    ],
)
def test_a_definition_that_cannot_be_names_its_field(fields: dict[str, object], field: str) -> None:
    defined = {"cron": "@daily", "every_us": None, "timezone": "UTC", "job": b"{}"} | fields
    with pytest.raises(BadSchedule) as refused:
        rules.check(Definition(**defined))  # type: ignore[arg-type]
    assert refused.value.field == field


def test_declarations_are_news_when_they_differ_and_are_not_older() -> None:
    last = rules.Declaration("app", b"one", 3, 0)
    assert rules.is_news(None, b"one", None, empty=False)
    assert not rules.is_news(None, b"", None, empty=True)
    assert not rules.is_news(last, b"one", 4, empty=False)
    assert rules.is_news(last, b"two", 3, empty=False)
    assert not rules.is_news(last, b"two", 2, empty=False)
    assert not rules.is_news(last, b"two", None, empty=False)
