"""When schedules tick: cron expressions, intervals, time zones, and both changes of the clocks."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.domain.recurrence import (
    SECOND,
    BadSchedule,
    Recurrence,
    check_cron,
    check_timezone,
    every_us,
)

BERLIN = ZoneInfo("Europe/Berlin")


def at(
    year: int, month: int, day: int, hour: int = 0, minute: int = 0, *, zone: ZoneInfo | None = None
) -> int:
    return int(datetime(year, month, day, hour, minute, tzinfo=zone or UTC).timestamp()) * SECOND


def local(ticks: list[int], zone: str = "Europe/Berlin") -> list[str]:
    return [datetime.fromtimestamp(tick / SECOND, ZoneInfo(zone)).strftime("%H:%M %z") for tick in ticks]


SPRING = (at(2026, 3, 29, zone=BERLIN), at(2026, 3, 29, 6, zone=BERLIN) - 1)
AUTUMN = (at(2026, 10, 25, zone=BERLIN), at(2026, 10, 25, 5, zone=BERLIN) - 1)

# The table of docs/howto/schedules.md: the morning of both changes in Europe/Berlin.
DST = {
    "30 2 * * *": (["03:00 +0200"], ["02:30 +0200"]),
    "30 3 * * *": (["03:30 +0200"], ["03:30 +0100"]),
    "15 1-3 * * *": (
        ["01:15 +0100", "03:00 +0200", "03:15 +0200"],
        ["01:15 +0200", "02:15 +0200", "03:15 +0100"],
    ),
    "0 * * * *": (
        ["00:00 +0100", "01:00 +0100", "03:00 +0200", "04:00 +0200", "05:00 +0200"],
        ["00:00 +0200", "01:00 +0200", "02:00 +0200", "02:00 +0100", "03:00 +0100", "04:00 +0100"],
    ),
    "*/30 2 * * *": ([], ["02:00 +0200", "02:30 +0200", "02:00 +0100", "02:30 +0100"]),
}


@pytest.mark.parametrize("cron", DST)
def test_clocks_change_as_in_debians_cron(cron: str) -> None:
    recurrence = Recurrence(cron=cron, timezone="Europe/Berlin")
    spring, autumn = DST[cron]
    assert local(list(recurrence.between(*SPRING))) == spring
    assert local(list(recurrence.between(*AUTUMN))) == autumn


# Clocks that change by half an hour, and such that change at a quarter to the hour.
ODD_CHANGES = [
    # 5 April, 02:00 becomes 01:30
    ("*/30 2 * * *", "Australia/Lord_Howe", (2026, 4, 5), ["02:00 +1030", "02:30 +1030"]),
    (
        "*/30 1 * * *",
        "Australia/Lord_Howe",
        (2026, 4, 5),
        ["01:00 +1100", "01:30 +1100", "01:30 +1030"],
    ),
    ("0 */4 * * *", "Australia/Lord_Howe", (2026, 4, 5), ["00:00 +1100", "04:00 +1030"]),
    ("30 1 * * *", "Australia/Lord_Howe", (2026, 4, 5), ["01:30 +1100"]),
    # 4 October, 02:00 becomes 02:30
    ("*/30 2 * * *", "Australia/Lord_Howe", (2026, 10, 4), ["02:30 +1100"]),
    ("0 */4 * * *", "Australia/Lord_Howe", (2026, 10, 4), ["00:00 +1030", "04:00 +1100"]),
    ("15 2 * * *", "Australia/Lord_Howe", (2026, 10, 4), ["02:30 +1100"]),
    # 5 April, 03:45 becomes 02:45
    (
        "*/15 2 5 4 *",
        "Pacific/Chatham",
        (2026, 4, 5),
        ["02:00 +1345", "02:15 +1345", "02:30 +1345", "02:45 +1345", "02:45 +1245"],
    ),
    # 27 September, 02:45 becomes 03:45
    ("*/15 3 * * *", "Pacific/Chatham", (2026, 9, 27), ["03:45 +1345"]),
]  # fmt: skip


@pytest.mark.parametrize(("cron", "zone", "day", "ticks"), ODD_CHANGES)
def test_clocks_may_change_by_or_at_a_part_of_an_hour(
    cron: str, zone: str, day: tuple[int, int, int], ticks: list[str]
) -> None:
    begin = at(*day, zone=ZoneInfo(zone))
    recurrence = Recurrence(cron=cron, timezone=zone)
    assert local(list(recurrence.between(begin, begin + 6 * 3600 * SECOND)), zone) == ticks


def test_an_interval_counts_from_its_anchor_whatever_the_clocks_do() -> None:
    recurrence = Recurrence(every_us=900 * SECOND, anchor=at(2026, 3, 29, 0, 7))
    assert recurrence.after(at(2026, 3, 29, 0, 7)) == at(2026, 3, 29, 0, 22)
    assert recurrence.after(at(2026, 3, 29, 0, 22) - 1) == at(2026, 3, 29, 0, 22)
    assert len(list(recurrence.between(at(2026, 3, 29), at(2026, 3, 30) - 1))) == 96


def test_the_first_tick_is_at_start_at_and_the_last_at_end_at() -> None:
    start = at(2026, 1, 1, 9)
    every = Recurrence(every_us=3600 * SECOND, start_at=start, end_at=start + 7200 * SECOND, anchor=start)
    assert list(every.ticks(0)) == [start, start + 3600 * SECOND, start + 7200 * SECOND]
    cron = Recurrence(cron="0 9 * * *", start_at=start, end_at=at(2026, 1, 2, 9))
    assert list(cron.ticks(0)) == [start, at(2026, 1, 2, 9)]


def test_names_stand_for_expressions() -> None:
    assert Recurrence(cron="@daily").after(at(2026, 5, 5, 1)) == at(2026, 5, 6)
    assert Recurrence(cron="@Hourly").after(at(2026, 5, 5, 1)) == at(2026, 5, 5, 2)
    assert Recurrence(cron="0 9 * JAN MON").after(at(2026, 1, 1)) == at(2026, 1, 5, 9)


@pytest.mark.parametrize(
    "text",
    ["", "* * * *", "* * * * * *", "@reboot", "0 0 31 2 *", "0 0 30 2 *", "61 * * * *", "a b c d e", "0 0 * * FOO",
     "*/0 * * * *", "5L/2 * * * *", "* * * * MON#9", "0 0 31 4,6,9,11 *", "x" * 5000],
)  # fmt: skip
def test_an_expression_that_cannot_be_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadSchedule) as refused:
        check_cron(text, "UTC")
    assert refused.value.field == "cron"


@pytest.mark.parametrize(
    "name", ["Europe/Berlim", "", "/etc/passwd", "../UTC", "Europe", "a" * 300, "Mars/Base"]
)
def test_an_unknown_zone_is_refused_by_name(name: str) -> None:
    with pytest.raises(BadSchedule) as refused:
        check_timezone(name)
    assert refused.value.field == "timezone"


def test_a_mistyped_zone_is_guessed() -> None:
    with pytest.raises(BadSchedule, match="did you mean Europe/Berlin"):
        check_timezone("Europe/Berlim")


@pytest.mark.parametrize("seconds", [0, 0.5, -1, 1e12, float("nan")])
def test_an_interval_out_of_bounds_is_refused(seconds: float) -> None:
    with pytest.raises(BadSchedule) as refused:
        every_us(seconds)
    assert refused.value.field == "every_sec"


ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "Asia/Kolkata",
    "Pacific/Chatham",
]
CRONS = [
    "30 2 * * *",
    "0 * * * *",
    "*/30 * * * *",
    "0,30 2,3 * * *",
    "*/5 0 * * *",
    "59 23 * * 0",
    "*/20 */3 1 * *",
]
YEAR = (at(2026, 1, 1) // SECOND, at(2027, 1, 1) // SECOND)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(ZONES), st.sampled_from(CRONS), st.integers(*YEAR), st.integers(0, 40_000))
def test_ticks_do_not_depend_on_where_one_begins_to_look(
    zone: str, cron: str, second: int, later: int
) -> None:
    recurrence = Recurrence(cron=cron, timezone=zone)
    begin, now = second * SECOND, (second + later) * SECOND
    tick = recurrence.after(begin)
    assert tick is not None
    assert tick > begin
    if now < tick:
        assert recurrence.after(now) == tick
    assert recurrence.latest(begin, now, 3) == list(recurrence.between(begin, now))[-3:]


def test_the_latest_ticks_of_a_year_are_found_without_walking_through_it() -> None:
    recurrence = Recurrence(cron="* * * * *")
    last = at(2026, 12, 31, 12, 30)
    assert recurrence.latest(at(2026, 1, 1), last, 2) == [last - 60 * SECOND, last]
    rare = Recurrence(cron="0 0 29 2 *")
    assert rare.latest(at(2020, 1, 1), last, 5) == [at(2020, 2, 29), at(2024, 2, 29)]
