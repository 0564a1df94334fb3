"""Whether the rate holds after many jobs: the first jobs of new databases against those after half a million.

A window is a load of its own, submitted and waited for to its end. What fills the database goes through the same
line as everything else, since it is updated and deleted rows, not stored ones, that slow a queue down. New systems get a
few jobs to warm up: against cold processes, a database that has become slow would still look fast.
"""

from typing import Final

from bench.postgres.contenders import Work, load_of
from bench.postgres.context import Context
from bench.postgres.database import Database, count_wrong
from bench.processes import BenchFailed, generate
from bench.results import Line, at_least, median_line, ratio_line, wrong_line
from bench.system import System

LATE_OF_FIRST: Final = at_least(0.8)
_LIMIT_SECONDS: Final = 300.0


class Filling:
    """One system and how many jobs have gone through it."""

    def __init__(self, context: Context, system: System) -> None:
        self._sizes = context.sizes
        self._system = system
        self.done = 0

    def window(self, jobs: int) -> float:
        """Send so many more and wait for the last one; the rate."""
        work = Work(jobs, self._sizes.batch_producers, self._sizes.batch)
        loaded = generate(load_of(work, self._system.port, first=self.done))
        if loaded.accepted * work.batch != jobs:
            raise BenchFailed(f"Stoker answered {loaded.statuses}")
        self.done += jobs
        ended_ns = self._system.wait_for_completed(self.done, _LIMIT_SECONDS)
        return jobs / (ended_ns - loaded.started_ns) * 1e9


def run(context: Context) -> list[Line]:
    """Fill a database, then let windows on it and the first windows of new databases take turns."""
    sizes = context.sizes
    late: list[float] = []
    first: list[float] = []
    with context.place("bloat") as place:
        with System(place.folder, url=place.url) as system:
            system.add_worker()
            filling = Filling(context, system)
            _fill(context, filling)
            wrong = 0
            for _ in range(sizes.rounds):
                late.append(filling.window(sizes.window))
                context.progress(f"bloat: {sizes.window:,} more, {filling.done:,} done: {late[-1]:,.0f}/s")
                rate, lost = _first_window(context)
                first.append(rate)
                wrong += lost
                context.progress(f"bloat: first {sizes.window:,} of a new database: {rate:,.0f}/s")
        with Database(place.url) as database:
            wrong += count_wrong(database, filling.done)
    title = f"{sizes.window:,} jobs after {sizes.filled:,} / first {sizes.window:,}"
    return [
        median_line(f"first {sizes.window:,} jobs of a database", first, "jobs/s"),
        median_line(f"{sizes.window:,} jobs after {sizes.filled:,}", late, "jobs/s"),
        ratio_line(title, late, first, LATE_OF_FIRST),
        wrong_line("first and late jobs: lost, doubled or wrong", wrong),
    ]


def _first_window(context: Context) -> tuple[float, int]:
    with context.place("fresh") as place:
        with System(place.folder, url=place.url) as system:
            system.add_worker()
            filling = Filling(context, system)
            filling.window(context.sizes.warm_up)
            rate = filling.window(context.sizes.window)
        with Database(place.url) as database:
            return rate, count_wrong(database, filling.done)


def _fill(context: Context, filling: Filling) -> None:
    sizes = context.sizes
    while filling.done < sizes.filled:
        rate = filling.window(min(sizes.fill_step, sizes.filled - filling.done))
        context.progress(f"bloat: {filling.done:,} of {sizes.filled:,} done, {rate:,.0f}/s")
