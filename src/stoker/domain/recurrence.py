"""When a schedule ticks: a cron expression or an interval, in a time zone.

`Recurrence.after(moment)` is the one definition of the ticks: the first tick later than a moment. Everything else (the next
ten, the latest three, those of last Tuesday) follows from it. Times are integer microseconds, UTC.

Cron expressions are read by `cronsim`. When clocks change, ticks follow Debian's cron: a job that runs at fixed times, such
as `30 2 * * *`, runs at the next time that exists when its own is left out, and once when its own comes twice; one whose
minute or hour begins with `*` follows the wall clock. `cronsim` does the former. For the latter it steps by whole hours,
which misses ticks where clocks change by half an hour (Lord Howe) or at a quarter to the hour (Chatham), so
`_by_wall_clock` asks it for one span of constant offset after the other.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import takewhile
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import msgspec
from cronsim import CronSim, CronSimError

from stoker.domain.nearest import nearest

SECOND: Final = 1_000_000
MIN_EVERY_SEC: Final = 1
MAX_EVERY_SEC: Final = 10 * 366 * 86_400
MAX_CRON_CHARS: Final = 256
FAR_US: Final = 253_370_764_800 * SECOND
"""The year 9999: no tick comes later, because dates end there."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)
_NAMED: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EXAMPLE: Final = "such as '0 9 * * 1-5' for nine o'clock on weekdays, or @daily"


class BadSchedule(ValueError):
    """What a schedule says cannot be; `field` names the part of it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field
        self.message = message


class Recurrence(msgspec.Struct, frozen=True):
    """Either `cron` or `every_us` is given. An interval counts from `anchor`; no tick is before `start_at` or after
    `end_at`."""

    cron: str | None = None
    every_us: int | None = None
    timezone: str = "UTC"
    start_at: int | None = None
    end_at: int | None = None
    anchor: int = 0

    def after(self, moment: int) -> int | None:
        """Return the first tick later than a moment; None when there is none."""
        if self.start_at is not None and moment < self.start_at:
            moment = self.start_at - 1
        if moment >= FAR_US:
            return None
        if self.every_us is not None:
            tick: int | None = self.anchor + ((moment - self.anchor) // self.every_us + 1) * self.every_us
        else:
            tick = _cron_after(self.cron or "", self.timezone, moment // SECOND)
        if tick is None or tick > (FAR_US if self.end_at is None else self.end_at):
            return None
        return tick

    def ticks(self, after: int) -> Iterator[int]:
        """Return the ticks later than a moment, in order."""
        tick = self.after(after)
        while tick is not None:
            yield tick
            tick = self.after(tick)

    def between(self, first: int, last: int) -> Iterator[int]:
        """Return the ticks from `first` to `last`, both included."""
        return takewhile(lambda tick: tick <= last, self.ticks(first - 1))

    def latest(self, first: int, last: int, count: int) -> list[int]:
        """Return the latest ticks, at most `count`, of those from `first` to `last`; in order. Looks at few more than these,
        however many there are."""
        # A cron expression ticks once a minute at most, so that a window of so many minutes holds few more ticks.
        span = (self.every_us or 60 * SECOND) * count
        while True:
            begin = max(first, last - span)
            found = list(self.between(begin, last))
            if begin == first or len(found) >= count:
                return found[-count:]
            span *= 4


def check_cron(text: str, timezone: str) -> None:
    """Raise `BadSchedule` for an expression that cannot be read, or that no day ever fits."""
    if len(text) > MAX_CRON_CHARS:
        raise BadSchedule("cron", f"must have at most {MAX_CRON_CHARS} characters")
    plain = plain_cron(text)
    if len(plain.split()) != 5:
        hint = "is no cron expression" if text.strip().startswith("@") else "must have five fields"
        raise BadSchedule("cron", f"{hint} (minute, hour, day of month, month, day of week), {_EXAMPLE}")
    try:
        found = _parsed(plain, datetime(2024, 1, 1, tzinfo=UTC))
        next(found)
    except CronSimError as error:
        raise BadSchedule("cron", _why_not(str(error))) from None
    except StopIteration:
        raise BadSchedule("cron", "never comes: no day of the next 50 years fits it") from None


def _why_not(text: str) -> str:
    if text.startswith("Bad day-of-month"):
        return "has a day of month that none of its months has, or that is no day"
    return f"has a wrong {text.removeprefix('Bad ')}; write it {_EXAMPLE}"


def check_timezone(name: str) -> None:
    """Raise `BadSchedule` for a zone that is not in the time zone database."""
    if _zone(name) is None:
        meant = nearest(name[:64], frozenset(available_timezones()))
        hint = (
            f"; did you mean {meant}?"
            if meant
            else "; names are those of the IANA database, such as Europe/Berlin"
        )
        raise BadSchedule("timezone", f"{name[:64]!r} is not known{hint}")


def every_us(seconds: float) -> int:
    """Return an interval in microseconds. Raise `BadSchedule` for one that is too short or too long."""
    if not MIN_EVERY_SEC <= seconds <= MAX_EVERY_SEC:
        raise BadSchedule("every_sec", f"must be from {MIN_EVERY_SEC} to {MAX_EVERY_SEC:,} seconds")
    return round(seconds * SECOND)


def plain_cron(text: str) -> str:
    """Return an expression of five fields for a name such as `@daily`; others as they are."""
    return _NAMED.get(text.strip().lower(), text)


def _parsed(plain: str, start: datetime) -> CronSim:
    """Raises `CronSimError`, whatever the library stumbles over."""
    try:
        return CronSim(plain, start)
    except (AssertionError, ValueError, RecursionError, TypeError):
        raise CronSimError("Bad expression") from None


@lru_cache(maxsize=512)
def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


@lru_cache(maxsize=4_096)
def _cron_after(cron: str, timezone: str, second: int) -> int | None:
    """Return the first tick later than a second. Many schedules share an expression, and so the answer."""
    zone = UTC if timezone == "UTC" else _zone(timezone) or UTC
    moment = datetime.fromtimestamp(second, UTC)
    try:
        if zone is not UTC and _follows_wall_clock(cron):
            found = _by_wall_clock(cron, moment, zone)
        else:
            found = _first_after(cron, moment, moment.astimezone(zone))
    except (CronSimError, StopIteration, OverflowError, ValueError):
        return None  # past the last year that dates have, or stored by a release that could read more
    return (found - _EPOCH) // _MICROSECOND


def _follows_wall_clock(cron: str) -> bool:
    """Return whether the minute or the hour begins with `*`, so that the job has no fixed times."""
    return any(field.startswith("*") for field in plain_cron(cron).split()[:2])


def _by_wall_clock(cron: str, moment: datetime, zone: tzinfo) -> datetime:
    """Return the first time later than a moment at which the wall clock shows a time that fits."""
    offset = _offset(moment, zone)
    while True:
        tick = next(_parsed(plain_cron(cron), moment + offset)) - offset
        change = _next_change(moment + _SECOND, tick, zone, offset)
        if change is None:
            return tick
        # The time of the change itself may fit.
        moment, offset = change - _SECOND, _offset(change, zone)


def _next_change(first: datetime, last: datetime, zone: tzinfo, offset: timedelta) -> datetime | None:
    """Return the first second from `first` to `last` at which a zone's offset is another; None when there is none."""
    # No zone changes its clocks twice within a day.
    before, after = first, first
    while _offset(after, zone) == offset:
        if after >= last:
            return None
        before, after = after, min(after + _DAY, last)
    while after - before > _SECOND:
        middle = before + (after - before) // _SECOND // 2 * _SECOND
        before, after = (middle, after) if _offset(middle, zone) == offset else (before, middle)
    return after


def _offset(moment: datetime, zone: tzinfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()


def _first_after(cron: str, moment: datetime, start: datetime) -> datetime:
    """In the hour that comes twice, times of the second one are behind those of the first that `cronsim` returns."""
    found = _parsed(plain_cron(cron), start)
    tick = next(found)
    while tick.astimezone(UTC) <= moment:
        tick = next(found)
    return tick
