"""Series: histograms, ranges and sums; what a coordinator counts; what is answered over HTTP."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.clock import SECOND
from stoker.coordinator.durations import durations_of
from stoker.coordinator.metrics import Metrics
from stoker.coordinator.series import MAX_PAIRS, Series
from stoker.domain.errors import StoreUnavailable
from stoker.domain.lifecycle import Status
from stoker.domain.retry import Outcome
from stoker.domain.series import (
    COARSE_SEC,
    FINE_SEC,
    GaugeRow,
    Gauges,
    Pair,
    SeriesRefused,
    Tally,
    TallyRow,
    bounds_of,
    part_of,
    percentile_sec,
    points,
    range_of,
    sums,
    whole_range,
)
from stoker.store.outcomes import Completions, Finish
from stoker.store.sessions import Expired, Lost
from tests.support.jobs import a_claim, a_job, accepted
from tests.unit.test_api_service import FakeService, ask

NOW = 1_767_323_045 * SECOND
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


# ── histograms ───────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.integers(0, 2**50))
def test_a_duration_lies_within_the_bounds_of_its_part(us: int) -> None:
    low, high = bounds_of(part_of(us))
    assert low <= us < high
    assert high - low <= max(1, low / 4)


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_parts_are_in_the_order_of_durations(one: int, other: int) -> None:
    assert (one <= other) <= (part_of(one) <= part_of(other))


def histogram(*durations_us: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for us in durations_us:
        found[part_of(us)] = found.get(part_of(us), 0) + 1
    return found


def test_percentiles_are_right_within_an_eighth() -> None:
    durations = [n * 1_000 for n in range(1, 1_001)]
    for share in (0.5, 0.95, 0.99):
        assert percentile_sec(histogram(*durations), share) == pytest.approx(share, rel=0.13)
    assert percentile_sec({}, 0.5) is None
    assert percentile_sec({0: 5}, 0.95) == pytest.approx(0, abs=1e-6)


# ── ranges ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("span", "step"),
    [(15 * MINUTE, 10), (HOUR, 60), (6 * HOUR, 300), (24 * HOUR, 300), (7 * 24 * HOUR, 3600)],
)
def test_a_step_is_chosen_that_makes_about_120_points(span: int, step: int) -> None:
    found = range_of(NOW - span, NOW, None, NOW)
    assert found.step_sec == step
    assert found.start % (step * SECOND) == 0
    assert 50 < found.count < 300


@pytest.mark.parametrize(
    ("start", "end", "step", "field"),
    [
        (NOW, NOW, None, "from"),
        (NOW, NOW - 1, 10, "from"),
        (NOW - 48 * HOUR, NOW, 60, "step"),
        (NOW - 23 * HOUR, NOW, 10, "step"),
    ],
)
def test_what_cannot_be_answered_is_refused(start: int, end: int, step: int | None, field: str) -> None:
    with pytest.raises(SeriesRefused) as refused:
        range_of(start, end, step, NOW)
    assert refused.value.field == field


def test_a_long_time_is_summed_from_coarse_buckets() -> None:
    assert whole_range(NOW - HOUR, NOW, NOW).bucket_sec == FINE_SEC
    assert whole_range(NOW - 12 * HOUR, NOW, NOW).bucket_sec == COARSE_SEC
    assert whole_range(NOW - 48 * HOUR, NOW - 47 * HOUR, NOW).bucket_sec == COARSE_SEC


# ── sums ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_points_add_up_flows_and_take_the_most_of_gauges() -> None:
    wanted = range_of(NOW - 3 * MINUTE, NOW, 60, NOW)
    at = wanted.start
    tallies = [
        TallyRow(10, at, "a", "x", Tally(completed=1, queue_depth_max=2, wait=histogram(1_000))),
        TallyRow(10, at, "a", "y", Tally(completed=2, queue_depth_max=3)),
        TallyRow(10, at, "a", "x", Tally(completed=4, queue_depth_max=2)),  # of another coordinator
        TallyRow(10, at + 10 * SECOND, "a", "x", Tally(completed=8, queue_depth_max=1)),
        TallyRow(10, at + 60 * SECOND, "a", "x", Tally(failed=1)),
    ]
    gauges = [GaugeRow(10, at, Gauges(9, 1, 4, 2, 3)), GaugeRow(10, at + SECOND, Gauges(7, 2, 4, 1, None))]
    every = points(wanted, tallies, gauges, of_all=True)
    assert [point.at for point in every] == [at + n * MINUTE for n in range(wanted.count)]
    assert [point.tally.completed for point in every[:3]] == [15, 0, 0]
    assert every[1].tally.failed == 1
    assert every[0].gauges == Gauges(9, 2, 4, 2, 3)
    assert every[2].gauges == Gauges()
    some = points(wanted, tallies, gauges, of_all=False)
    assert some[0].gauges.queue_depth_max == 5


def test_sums_are_by_queue_or_by_type() -> None:
    rows = [TallyRow(10, NOW, queue, type, Tally(submitted=1)) for queue in "ab" for type in "xyz"]
    assert {key: tally.submitted for key, tally in sums(rows, "queue").items()} == {"a": 3, "b": 3}
    assert {key: tally.submitted for key, tally in sums(rows, "type").items()} == {"x": 2, "y": 2, "z": 2}


# ── counting ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class FakeStore:
    def __init__(self) -> None:
        self.now = NOW
        self.fails = False
        self.tallies: dict[tuple[int, int, Pair], Tally] = {}
        self.gauges: dict[tuple[int, int], Gauges] = {}
        self.writes = 0

    def now_us(self) -> int:
        return self.now

    async def put_series(self, shard: int, tallies: Sequence[TallyRow], gauges: Sequence[GaugeRow]) -> None:
        if self.fails:
            raise StoreUnavailable("not now")
        self.writes += 1
        for row in tallies:
            copied = Tally(row.tally.submitted, row.tally.completed, row.tally.failed, row.tally.cancelled)
            copied.add(Tally(retried=row.tally.retried, wait=row.tally.wait, run=row.tally.run))
            self.tallies[row.bucket_sec, row.at, (row.queue, row.type)] = copied
        for noted in gauges:
            self.gauges[noted.bucket_sec, noted.at] = noted.gauges


def a_series(store: FakeStore, metrics: Metrics, depth: int = 0) -> Series:
    async def depths() -> dict[Pair, int]:
        return {("default", "echo"): depth}

    async def gauges() -> Gauges:
        return Gauges(threads_used_max=1, threads_max=4, workers_max=2)

    return Series(store, metrics, shard=1, depths=depths, gauges=gauges)  # type: ignore[arg-type]


def an_end(status: Status | None = "completed", *, wait: int = 500, run: int = 2_000, **claim: Any) -> Any:
    kind = "completed" if status == "completed" else "error"
    held = a_claim(run_at=NOW, **claim)
    outcome = Outcome("completed", kind, started_at=NOW + wait, finished_at=NOW + wait + run)  # type: ignore[arg-type]
    return Finish(held, outcome), status


async def test_what_happened_is_counted_in_both_buckets() -> None:
    store, metrics = FakeStore(), Metrics("0")
    series = a_series(store, metrics, depth=3)
    ended = [an_end(), an_end("failed"), an_end("scheduled"), an_end(None)]
    metrics.submitted([accepted(a_job(), False)] * 5, ())
    metrics.ended(ended)
    series.ended(ended)
    series.expired(Expired([], [Lost(a_claim(), "queued"), Lost(a_claim(), "failed")]))
    await series.write_now()
    for length in (FINE_SEC, COARSE_SEC):
        at = NOW - NOW % (length * SECOND)
        tally = store.tallies[length, at, ("default", "echo")]
        assert (tally.submitted, tally.completed, tally.failed, tally.retried) == (5, 1, 1, 2)
        assert (tally.wait, tally.run) == (histogram(500, 500), histogram(2_000, 2_000))
        assert store.gauges[length, at] == Gauges(3, 1, 4, 2, None)


async def test_a_bucket_is_written_whole_each_time_and_forgotten_when_it_is_over() -> None:
    store, metrics = FakeStore(), Metrics("0")
    store.now = NOW - NOW % (300 * SECOND)
    series = a_series(store, metrics)
    for _ in range(3):
        metrics.submitted([accepted(a_job(), False)], ())
        series.take(store.now, {})
        await series.write()
        store.now += 6 * SECOND
    first = NOW - NOW % (300 * SECOND)
    pair = ("default", "echo")
    assert store.tallies[10, first, pair].submitted == 2
    assert store.tallies[10, first + 10 * SECOND, pair].submitted == 1
    assert store.tallies[300, first, pair].submitted == 3
    writes = store.writes
    await series.write()
    assert store.writes == writes, "nothing happened, so nothing is written"


async def test_what_is_no_news_is_not_written_again() -> None:
    store = FakeStore()
    store.now = NOW - NOW % (300 * SECOND)
    series = a_series(store, Metrics("0"))
    for _ in range(4):
        series.note(store.now, Gauges(threads_max=4))
        await series.write()
        store.now += 2 * SECOND
    assert store.writes == 1
    store.now += 10 * SECOND
    series.note(store.now, Gauges(threads_max=4))
    await series.write()
    assert store.writes == 2, "another bucket"


async def test_what_could_not_be_written_is_written_later() -> None:
    store, metrics = FakeStore(), Metrics("0")
    series = a_series(store, metrics)
    metrics.submitted([accepted(a_job(), False)], ())
    store.fails = True
    with pytest.raises(StoreUnavailable):
        await series.write_now()
    store.fails = False
    store.now += 600 * SECOND
    await series.write_now()
    assert store.tallies[10, NOW - NOW % (10 * SECOND), ("default", "echo")].submitted == 1


async def test_a_read_does_not_wait_for_a_slow_disk() -> None:
    store, metrics = FakeStore(), Metrics("0")
    series = a_series(store, metrics)
    written = asyncio.Event()
    put = store.put_series

    async def put_slowly(shard: int, tallies: Sequence[TallyRow], gauges: Sequence[GaugeRow]) -> None:
        await written.wait()
        await put(shard, tallies, gauges)

    store.put_series = put_slowly  # type: ignore[method-assign]
    metrics.submitted([accepted(a_job(), False)], ())
    async with asyncio.timeout(10):
        await series.write_now()
        await series.write_now()
    assert store.writes == 0
    written.set()
    await series.write_now()
    assert store.writes == 1, "both reads waited for the same"


async def test_what_is_left_is_written_at_the_end_if_that_is_possible() -> None:
    store, metrics = FakeStore(), Metrics("0")
    series = a_series(store, metrics)
    metrics.submitted([accepted(a_job(), False)], ())
    await series.close()
    assert store.tallies[10, NOW - NOW % (10 * SECOND), ("default", "echo")].submitted == 1
    store.fails = True
    metrics.submitted([accepted(a_job(), False)], ())
    await series.close()


async def test_many_pairs_of_queue_and_type_share_a_row() -> None:
    store, metrics = FakeStore(), Metrics("0")
    series = a_series(store, metrics)
    metrics.submitted([accepted(a_job(type=f"t{n}"), False) for n in range(MAX_PAIRS + 50)], ())
    await series.write_now()
    fine = [tally for (length, _, _), tally in store.tallies.items() if length == FINE_SEC]
    assert len(fine) <= MAX_PAIRS + 1
    assert sum(tally.submitted for tally in fine) == MAX_PAIRS + 50


def test_a_finished_job_costs_less_than_two_microseconds() -> None:
    """Measured at about a third of a microsecond; the bound leaves room for a busy machine."""
    series = a_series(FakeStore(), Metrics("0"))
    count = 1_000
    started = [NOW + n * 7 for n in range(count)]
    finished = [NOW + n * 38 for n in range(count)]
    nothing: list[int | None] = [None] * count
    ids, seqs, created = [str(n) for n in range(count)], list(range(count)), [NOW] * count
    batch = Completions(a_claim(), ids, seqs, created, started, finished, nothing, nothing, [b"1"] * count)
    best = min(_seconds(series, batch) for _ in range(20))
    assert best / count < 2e-6


def _seconds(series: Series, batch: Completions) -> float:
    started = time.perf_counter()
    series.completed([batch], durations_of([batch]))
    return time.perf_counter() - started


# ── over HTTP ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_series_has_every_point_and_every_field() -> None:
    service = FakeService()
    answer = ask(service, "GET", "/series?from=2026-01-02T03:00:03Z&to=2026-01-02T03:02:00Z&step=300").json()
    assert (answer["from"], answer["step_sec"]) == ("2026-01-02T03:00:00.000000Z", 300)
    assert answer["points"] == [
        {
            "at": "2026-01-02T03:00:00.000000Z",
            "submitted": 0,
            "completed": 0,
            "failed": 0,
            "cancelled": 0,
            "retried": 0,
            "wait_p50_sec": None,
            "wait_p95_sec": None,
            "run_p50_sec": None,
            "run_p95_sec": None,
            "queue_depth_max": 0,
            "threads_used_max": 0,
            "threads_max": 0,
            "workers_max": 0,
            "autoscaler_wanted": None,
        }
    ]


def test_the_last_quarter_of_an_hour_is_shown_by_default() -> None:
    answer = ask(FakeService(), "GET", "/series").json()
    assert answer["step_sec"] == 10
    assert len(answer["points"]) in (90, 91)


def test_a_breakdown_is_by_type_or_queue() -> None:
    service = FakeService()
    service.tally_rows = [
        TallyRow(10, NOW, "q", "x", Tally(completed=30, run=histogram(1_000))),
        TallyRow(10, NOW, "q", "y", Tally(completed=60)),
    ]
    found = ask(service, "GET", "/series/breakdown?from=5m").json()
    assert (found["by"], [row["key"] for row in found["rows"]]) == ("type", ["y", "x"])
    assert found["rows"][0]["throughput_per_sec"] == pytest.approx(0.2, rel=0.1)
    assert found["rows"][1]["run_p50_sec"] == pytest.approx(0.001, rel=0.25)
    assert found["rows"][0]["run_p50_sec"] is None
    (row,) = ask(service, "GET", "/series/breakdown?by=queue").json()["rows"]
    assert (row["key"], row["completed"]) == ("q", 90)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("step=7", "step"),
        ("from=1m&to=2m", "from"),
        ("from=x", "from"),
        ("from=9d&step=10", "step"),
        ("by=a", "by"),
    ],
)
def test_bad_ranges_are_named(query: str, field: str) -> None:
    answer = ask(FakeService(), "GET", f"/series?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field
