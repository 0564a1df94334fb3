"""Whether a second coordinator on the same database costs anything: the same producers and workers, spread over both.

On a machine whose CPUs one coordinator already keeps busy a second one cannot add speed; it must not take any away.
"""

from contextlib import ExitStack
from typing import Final

from bench.postgres.contenders import Work, load_of
from bench.postgres.context import Context, Place
from bench.postgres.database import Database, count_wrong
from bench.processes import BenchFailed, generate
from bench.results import Line, at_least, median_line, ratio_line, wrong_line
from bench.system import System

TWO_OF_ONE: Final = at_least(0.9)
WORKERS: Final = 2
THREADS: Final = 1
_LIMIT_SECONDS: Final = 300.0


def run(context: Context) -> list[Line]:
    sizes = context.sizes
    work = Work(sizes.shared, sizes.batch_producers, sizes.batch)
    rates: dict[int, list[float]] = {1: [], 2: []}
    wrong = 0
    for round in range(1, sizes.rounds + 1):
        for number, taken in rates.items():
            with context.place("coordinators") as place:
                rate, lost = _measure(place, number, work)
            taken.append(rate)
            wrong += lost
            context.progress(
                f"coordinators: {number}, round {round} of {sizes.rounds}: {rate:,.0f}/s, {lost} wrong"
            )
    return [
        median_line(f"1 coordinator, {WORKERS} workers", rates[1], "jobs/s"),
        median_line(f"2 coordinators, {WORKERS} workers", rates[2], "jobs/s"),
        ratio_line("2 coordinators / 1 coordinator", rates[2], rates[1], TWO_OF_ONE),
        wrong_line("1 and 2 coordinators: jobs lost, doubled or wrong", wrong),
    ]


def _measure(place: Place, number: int, work: Work) -> tuple[float, int]:
    with ExitStack() as stack:
        systems = [
            stack.enter_context(System(place.folder / str(which), url=place.url)) for which in range(number)
        ]
        for which in range(WORKERS):
            _start_worker(systems[which % number], systems[0], which + 1)
        first, *others = (system.port for system in systems)
        loaded = generate(load_of(work, first, *others))
        ended_ns = systems[0].wait_for_completed(loaded.accepted * work.batch, _LIMIT_SECONDS)
    with Database(place.url) as database:
        wrong = count_wrong(database, work.jobs)
    return work.jobs / (ended_ns - loaded.started_ns) * 1e9, wrong


def _start_worker(system: System, first: System, expected: int) -> None:
    """Start a worker on one coordinator; another one sees it, as all share the database."""
    system.start_worker(THREADS).wait_until(lambda: first.workers() >= expected, "a worker")
    if first.workers() != expected:
        raise BenchFailed(f"there are {first.workers()} workers, and should be {expected}")
