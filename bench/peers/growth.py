"""How Stoker's rate and latency change as backlog, history, workers, payloads and queues grow. On SQLite, through the SDK.

Every point is a new system with one worker. The rate is that of bulk calls of 1,000 jobs, end to end, because there the
server is the limit and not the client; the latency is from an idle system's submit to the start of the job.
"""

import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from bench.command import OutOfTime
from bench.context import Run
from bench.databases import copy, write_finished
from bench.http import BadResponse
from bench.peers import idle_workers, tables
from bench.peers.drivers import kit
from bench.peers.picture import Curve, Plot
from bench.peers.running import Running, stoker_running
from bench.processes import BenchFailed, Process, python
from bench.results import FAIL, PASS, percentile
from bench.system import DATABASE, System

BACKLOG, HISTORY, WORKERS, PAYLOAD, QUEUES = "backlog", "history", "workers", "payload", "queues"
TITLES: Final = {
    BACKLOG: "jobs queued",
    HISTORY: "jobs finished before",
    WORKERS: "workers connected, all but one idle",
    PAYLOAD: "bytes of payload",
    QUEUES: "queues",
}
Sizes = Mapping[str, tuple[int, ...]]
SIZES: Final[Sizes] = {
    BACKLOG: (1_000, 10_000, 100_000, 1_000_000),
    HISTORY: (1_000, 10_000, 100_000, 1_000_000),
    WORKERS: (1, 10, 50, 200),
    PAYLOAD: (100, 1_000, 10_000, 64_000, 256_000),
    QUEUES: (1, 10, 100, 1_000),
}
QUICK: Final[Sizes] = {
    BACKLOG: (1_000, 5_000),
    HISTORY: (1_000, 5_000),
    WORKERS: (1, 10),
    PAYLOAD: (100, 10_000),
    QUEUES: (1, 10),
}
_KEEP_BATCH: Final = 500
_MOST_BATCH_BYTES: Final = 4_000_000
_PRELOAD_BATCH: Final = 5_000
_IDLE_QUEUE: Final = "idle"


class Point(msgspec.Struct, frozen=True):
    """What was measured at one size, round by round."""

    size: int
    rates: list[float]
    p50_ms: list[float]
    p99_ms: list[float]

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


Curves = Mapping[str, Sequence[Point]]


class Taken(msgspec.Struct, frozen=True):
    """What one round at one size gave."""

    rate: float
    waits_ms: Sequence[float]


def measure(
    run: Run, names: Sequence[str], sizes: Sizes, rounds: int, seconds: float
) -> tuple[dict[str, list[Point]], list[str]]:
    """Measure those curves; the sizes of a curve take turns in each round. The second value are failures."""
    found: dict[str, list[Point]] = {}
    failures: list[str] = []
    try:
        for name in names:
            points = found[name] = [Point(size, [], [], []) for size in sizes[name]]
            take = CURVES[name](run)
            for number in range(1, rounds * REPEATS.get(name, 1) + 1):
                for point in points:
                    _add(
                        run,
                        point,
                        partial(take, point.size, seconds),
                        f"{name} {point.size:,}, round {number}",
                        failures,
                    )
    except OutOfTime as error:
        failures.append(str(error))
    kept = {name: [point for point in points if point.rates] for name, points in found.items()}
    return {name: points for name, points in kept.items() if points}, failures


def _add(run: Run, point: Point, take: Callable[[], Taken], label: str, failures: list[str]) -> None:
    """Measure once more at this size; a failure is noted, and the others go on."""
    try:
        taken = take()
    except OutOfTime:
        raise
    except (BenchFailed, BadResponse, OSError) as error:
        failures.append(f"{label}: {error}")
        run.progress(f"FAILED {failures[-1]}")
        return
    point.rates.append(taken.rate)
    point.p50_ms.append(percentile(taken.waits_ms, 50))
    point.p99_ms.append(percentile(taken.waits_ms, 99))
    run.progress(f"{label}: {taken.rate:,.0f} jobs/s, p50 {point.p50_ms[-1]:.2f} ms")


Take = Callable[[int, float], Taken]
REPEATS: Final = {WORKERS: 2}
"""Five per cent are judged there, so it takes more rounds."""


def _standard(live: Running, seconds: float) -> Taken:
    idle = live.measure(kit.IDLE, seconds)
    bulk = live.measure(kit.BULK, seconds)
    assert idle is not None
    assert bulk is not None
    if bulk.wrong or idle.wrong:
        raise BenchFailed(f"{bulk.wrong + idle.wrong} jobs were lost or ran twice")
    return Taken(bulk.rate, idle.waits_ms)


@contextmanager
def _system(
    run: Run, variables: Mapping[str, str] | None = None, prepare: Callable[[Path], object] | None = None
) -> Iterator[tuple[Running, System]]:
    with stoker_running(run.folder / "growth", variables or {}, prepare) as started:
        yield started


def _history(run: Run) -> Take:
    def take(size: int, seconds: float) -> Taken:
        with _system(run, prepare=lambda folder: write_finished(folder / DATABASE, size)) as (live, _):
            return _standard(live, seconds)

    return take


def _backlog(run: Run) -> Take:
    kept: dict[int, Path] = {}

    def take(size: int, seconds: float) -> Taken:
        if size not in kept:
            kept[size] = _preload(run, size)
        variables = {"BENCH_QUEUE": _IDLE_QUEUE, "BENCH_BATCH": str(_KEEP_BATCH)}
        with _system(run, variables, partial(copy_into, kept[size])) as (live, system):
            rate = live.keep(size, size, seconds)
            system.client.json("POST", "/queues/default/pause")
            live.wait_until_still()
            idle = live.measure(kit.IDLE, seconds)
            assert idle is not None
            return Taken(rate, idle.waits_ms)

    return take


def copy_into(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    copy(source, target)


def _preload(run: Run, size: int) -> Path:
    """Return a folder with a database in which so many jobs are queued: submitted while there is no worker."""
    folder = run.folder / f"backlog-{size}"
    run.progress(f"submitting a backlog of {size:,} …")
    with System(folder) as system:
        jobs = [{"type": "echo", "payload": {"number": -1}}] * min(size, _PRELOAD_BATCH)
        body = msgspec.json.encode({"jobs": jobs})
        for _ in range(size // len(jobs)):
            system.client.json("POST", "/jobs/batch", body)
    return folder


def _workers(run: Run) -> Take:
    def take(size: int, seconds: float) -> Taken:
        with ExitStack() as stack:
            live, system = stack.enter_context(_system(run))
            if size > 1:
                command = python(idle_workers.__name__, str(system.port), str(size - 1))
                idle = Process(command, run.folder / "idle-workers.log")
                stack.callback(idle.stop)
                idle.wait_until(lambda: idle.said(idle_workers.READY), f"{size - 1} idle workers")
            return _standard(live, seconds)

    return take


def _payload(run: Run) -> Take:
    def take(size: int, seconds: float) -> Taken:
        batch = max(min(kit.BATCH, _MOST_BATCH_BYTES // size), 1)
        with _system(run, {"BENCH_PAYLOAD": str(size), "BENCH_BATCH": str(batch)}) as (live, _):
            return _standard(live, seconds)

    return take


def _queues(run: Run) -> Take:
    def take(size: int, seconds: float) -> Taken:
        with _system(run, {"BENCH_QUEUES": str(size)}) as (live, _):
            return _standard(live, seconds)

    return take


CURVES: Final[Mapping[str, Callable[[Run], Take]]] = {
    BACKLOG: _backlog,
    HISTORY: _history,
    WORKERS: _workers,
    PAYLOAD: _payload,
    QUEUES: _queues,
}


class Bound(msgspec.Struct, frozen=True):
    """The rate at the largest size is at least so much of that at the smallest."""

    curve: str
    smallest: int
    largest: int
    least: float


BOUNDS: Final = (
    Bound(BACKLOG, 1_000, 1_000_000, 0.8),
    Bound(HISTORY, 1_000, 1_000_000, 0.8),
    Bound(WORKERS, 1, 200, 0.95),
)


class Judged(msgspec.Struct, frozen=True):
    bound: Bound
    ratio: float
    rounds: Sequence[float]

    @property
    def met(self) -> bool:
        return self.ratio >= self.bound.least


def judged(curves: Curves, bounds: Sequence[Bound] = BOUNDS) -> list[Judged]:
    """Judge each bound whose two sizes were measured: the median of the rounds' quotients."""
    found = []
    for bound in bounds:
        points = {point.size: point for point in curves.get(bound.curve, ())}
        if bound.smallest in points and bound.largest in points:
            pairs = zip(points[bound.largest].rates, points[bound.smallest].rates, strict=False)
            rounds = [large / small for large, small in pairs]
            found.append(Judged(bound, statistics.median(rounds), rounds))
    return found


def table(curves: Curves) -> str:
    rows = [
        [
            TITLES[name],
            f"{point.size:,}",
            f"{point.rate:,.0f} ({min(point.rates):,.0f} to {max(point.rates):,.0f})",
            f"{statistics.median(point.p50_ms):.2f} / {statistics.median(point.p99_ms):.2f}",
        ]
        for name, points in curves.items()
        for point in points
    ]
    return tables.markdown(["", "size", "jobs/s (rounds)", "idle submit → start, p50 / p99 ms"], rows)


def verdict_table(found: Sequence[Judged]) -> str:
    rows = [
        [
            f"rate with {each.bound.largest:,} / with {each.bound.smallest:,} {TITLES[each.bound.curve]}",
            f"{each.ratio:.2f} ({min(each.rounds):.2f} to {max(each.rounds):.2f})",
            f"≥ {each.bound.least:g}",
            PASS if each.met else FAIL,
        ]
        for each in found
    ]
    return tables.markdown(["", "ratio (rounds)", "must", "verdict"], rows)


def plots(curves: Curves) -> list[Plot]:
    """Two for each curve: the rate, and the latency."""
    made = []
    for name, points in curves.items():
        rates = Curve("rate", [(point.size, point.rate) for point in points])
        p50 = Curve("p50", [(point.size, statistics.median(point.p50_ms)) for point in points])
        p99 = Curve("p99", [(point.size, statistics.median(point.p99_ms)) for point in points])
        made += [Plot(f"Rate by {TITLES[name]}", "jobs/s", [rates])]
        made += [Plot(f"Idle submit → start by {TITLES[name]}", "ms", [p50, p99])]
    return made
