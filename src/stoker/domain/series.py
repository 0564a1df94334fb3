"""Series: what happened when, in buckets of time, and how percentiles are read from them.

A bucket counts what happened to jobs of one queue and type, and holds two histograms: how long they waited and how long
they ran. A histogram has four parts to each power of two of microseconds, so a percentile is right within about an eighth,
and two histograms are added by adding their parts: buckets of several coordinators, or of a longer time, are sums.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from math import log
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

SECOND: Final = 1_000_000
FINE_SEC: Final = 10
COARSE_SEC: Final = 300
KEPT_SEC: Final = {FINE_SEC: 24 * 3_600, COARSE_SEC: 30 * 24 * 3_600}
"""The two sizes of buckets, and how long each is kept."""
STEPS_SEC: Final = (10, 60, 300, 3_600)
USUAL_POINTS: Final = 120
MAX_POINTS: Final = 2_000
FINE_SPAN_SEC: Final = 6 * 3_600
"""Beyond this span coarse buckets are exact enough, and thirty times fewer."""

Histogram = dict[int, int]
Pair = tuple[str, str]
"""A queue and a type."""


class SeriesRefused(ValueError):
    """A question that the buckets cannot answer; the message says what to ask instead."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field
        self.message = message


class Tally(msgspec.Struct):
    """What happened to jobs of one queue and type in one bucket."""

    submitted: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    queue_depth_max: int = 0
    wait: Histogram = {}
    run: Histogram = {}

    def add(self, other: "Tally") -> None:
        """Add what is in another; of the depths the larger one, for both may have seen the same jobs."""
        self.submitted += other.submitted
        self.completed += other.completed
        self.failed += other.failed
        self.cancelled += other.cancelled
        self.retried += other.retried
        self.queue_depth_max = max(self.queue_depth_max, other.queue_depth_max)
        add_histogram(self.wait, other.wait)
        add_histogram(self.run, other.run)


class Gauges(msgspec.Struct):
    """The most there was of something in one bucket, in the whole system. None: there was no autoscaler."""

    queue_depth_max: int = 0
    threads_used_max: int = 0
    threads_max: int = 0
    workers_max: int = 0
    autoscaler_wanted: int | None = None

    def rise(self, other: "Gauges") -> None:
        self.queue_depth_max = max(self.queue_depth_max, other.queue_depth_max)
        self.threads_used_max = max(self.threads_used_max, other.threads_used_max)
        self.threads_max = max(self.threads_max, other.threads_max)
        self.workers_max = max(self.workers_max, other.workers_max)
        if other.autoscaler_wanted is not None:
            self.autoscaler_wanted = max(self.autoscaler_wanted or 0, other.autoscaler_wanted)


class TallyRow(msgspec.Struct, frozen=True):
    """A tally of one queue and type, the length of its bucket, and when that began."""

    bucket_sec: int
    at: int
    queue: str
    type: str
    tally: Tally


class GaugeRow(msgspec.Struct, frozen=True):
    bucket_sec: int
    at: int
    gauges: Gauges


class Range(msgspec.Struct, frozen=True):
    """From when until when, in which steps, read from which buckets. Times are microseconds."""

    start: int
    end: int
    step_sec: int
    bucket_sec: int

    @property
    def count(self) -> int:
        """How many points there are."""
        return -(-(self.end - self.start) // (self.step_sec * SECOND))

    def point_of(self, at: int) -> int:
        return (at - self.start) // (self.step_sec * SECOND)


class Point(msgspec.Struct, frozen=True):
    at: int
    tally: Tally
    gauges: Gauges


# ── histograms ─────────────────────────────────────────────────────────────────────────────────────────────────────


def part_of(us: int) -> int:
    """Return the part of a histogram in which a duration is counted."""
    bits = us.bit_length()
    return us if bits < 3 else (bits << 2) | (us >> (bits - 3) & 3)


def bounds_of(part: int) -> tuple[int, int]:
    """Return the least duration of a part, and the least beyond it."""
    if part < 12:
        return part, part + 1
    bits, quarter = part >> 2, part & 3
    return (4 + quarter) << (bits - 3), (5 + quarter) << (bits - 3)


def add_durations(to: Histogram, durations_us: Iterable[int]) -> None:
    """Count durations, none of them negative: in order, so that there is a step for every part and not for every one."""
    in_order = sorted(durations_us)
    first = 0
    while first < len(in_order):
        part = part_of(in_order[first])
        end = bisect_left(in_order, bounds_of(part)[1], first)
        to[part] = to.get(part, 0) + end - first
        first = end


def add_histogram(to: Histogram, other: Mapping[int, int]) -> None:
    for part, count in other.items():
        to[part] = to.get(part, 0) + count


def percentile_sec(histogram: Mapping[int, int], share: float) -> float | None:
    """Return the duration within which this share of the jobs was, in seconds; None without jobs."""
    total = sum(histogram.values())
    if not total:
        return None
    left = share * total
    for part in sorted(histogram):
        count = histogram[part]
        if left <= count:
            low, high = bounds_of(part)
            return round((low + (high - low) * left / count) / SECOND, 6)
        left -= count
    return None


# ── ranges ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def range_of(start: int, end: int, step_sec: int | None, now: int) -> Range:
    """Return the range for a series; the step, where none is given, that makes about `USUAL_POINTS`. Raises
    `SeriesRefused`."""
    _check_order(start, end)
    old = start < now - (KEPT_SEC[FINE_SEC] + COARSE_SEC) * SECOND
    if step_sec is None:
        step_sec = _usual_step((end - start) / SECOND, old=old)
    if step_sec < COARSE_SEC and old:
        raise SeriesRefused("step", f"must be {COARSE_SEC} or more for what is older than 24 hours")
    aligned = start - start % (step_sec * SECOND)
    if (end - aligned) / SECOND / step_sec > MAX_POINTS:
        raise SeriesRefused("step", f"makes more than {MAX_POINTS} points of this range; choose a larger one")
    return Range(aligned, end, step_sec, FINE_SEC if step_sec < COARSE_SEC else COARSE_SEC)


def _usual_step(span_sec: float, *, old: bool) -> int:
    steps = [step for step in STEPS_SEC if step >= COARSE_SEC or not old]
    return min(steps, key=lambda step: abs(log(span_sec / step / USUAL_POINTS)))


def whole_range(start: int, end: int, now: int) -> Range:
    """Return the range for sums over all of it. Raises `SeriesRefused`."""
    _check_order(start, end)
    recent = start >= now - KEPT_SEC[FINE_SEC] * SECOND
    bucket_sec = FINE_SEC if recent and end - start <= FINE_SPAN_SEC * SECOND else COARSE_SEC
    aligned = start - start % (bucket_sec * SECOND)
    return Range(aligned, end, max(1, -(-(end - aligned) // SECOND)), bucket_sec)


def _check_order(start: int, end: int) -> None:
    if start >= end:
        raise SeriesRefused("from", "must be before to")


# ── sums ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def points(
    wanted: Range, tallies: Iterable[TallyRow], gauges: Iterable[GaugeRow], *, of_all: bool
) -> list[Point]:
    """Every point of a range, empty ones included. `of_all` says that the tallies are of all queues and types: then the
    depth is the one that was seen of the whole."""
    step = wanted.step_sec * SECOND
    found = [Point(wanted.start + number * step, Tally(), Gauges()) for number in range(wanted.count)]
    depths: dict[int, dict[Pair, int]] = {}
    for row in tallies:
        found[wanted.point_of(row.at)].tally.add(row.tally)
        seen = depths.setdefault(row.at, {})
        pair = (row.queue, row.type)
        seen[pair] = max(seen.get(pair, 0), row.tally.queue_depth_max)
    for noted in gauges:
        whole = noted.gauges if of_all else replace(noted.gauges, queue_depth_max=0)
        found[wanted.point_of(noted.at)].gauges.rise(whole)
    if not of_all:
        for at, by_pair in depths.items():
            found[wanted.point_of(at)].gauges.rise(Gauges(queue_depth_max=sum(by_pair.values())))
    return found


def sums(rows: Iterable[TallyRow], by: Literal["queue", "type"]) -> dict[str, Tally]:
    """Tallies added up by queue or by type."""
    found: dict[str, Tally] = {}
    for row in rows:
        found.setdefault(row.queue if by == "queue" else row.type, Tally()).add(row.tally)
    return found
