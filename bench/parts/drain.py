"""Whether a long queue is slower to work off than a short one.

Each backlog is submitted once, with no worker about; every round then starts from a copy of that database.
"""

import shutil
import time
from pathlib import Path
from typing import Final

from bench.context import Context
from bench.databases import copy
from bench.generator import Load
from bench.processes import BenchFailed, generate
from bench.results import Line, at_least, median_line, ratio_line
from bench.system import System

LONG_OF_SHORT: Final = at_least(0.8)
_POLL_SECONDS: Final = 0.02
_LIMIT_SECONDS: Final = 120.0


def run(context: Context) -> list[Line]:
    sizes = context.sizes
    backlogs = (sizes.drained, sizes.backlog)
    filled = {backlog: _preload(context, backlog) for backlog in backlogs}
    rates: dict[int, list[float]] = {backlog: [] for backlog in backlogs}
    for round in range(1, sizes.rounds + 1):
        for backlog in backlogs:
            folder = copy(filled[backlog], context.folder / "drain-round")
            rate = _drain(folder, sizes.drained)
            shutil.rmtree(folder)
            rates[backlog].append(rate)
            context.progress(f"drain from {backlog:,}, round {round} of {sizes.rounds}: {rate:,.0f}/s")
    for folder in filled.values():
        shutil.rmtree(folder)
    short, long = (rates[backlog] for backlog in backlogs)
    return [
        median_line(f"draining {sizes.drained:,} of {backlogs[0]:,}", short, "jobs/s"),
        median_line(f"draining {sizes.drained:,} of {backlogs[1]:,}", long, "jobs/s"),
        ratio_line("long backlog / short backlog", long, short, LONG_OF_SHORT),
    ]


def _preload(context: Context, backlog: int) -> Path:
    folder = context.folder / f"backlog-{backlog}"
    context.progress(f"submitting a backlog of {backlog:,} …")
    size = context.sizes.preload_batch
    with System(folder) as system:
        loaded = generate(Load(system.port, backlog // size, 2, "/jobs/batch", size))
        if loaded.accepted * size != backlog:
            raise BenchFailed(f"the backlog was answered with {loaded.statuses}")
    context.progress(f"… took {loaded.seconds:.1f} s")
    return folder


def _drain(folder: Path, number: int) -> float:
    """The rate between the first completion seen and the one that makes up the number."""
    with System(folder) as system:
        system.start_worker()
        first_at, first = _watch(system, 1)
        last_at, last = _watch(system, number)
    return (last - first) / (last_at - first_at) if last > first else float("inf")


def _watch(system: System, number: int) -> tuple[float, int]:
    deadline = time.monotonic() + _LIMIT_SECONDS
    while time.monotonic() < deadline:
        done = system.stats().completed
        if done >= number:
            return time.monotonic(), done
        time.sleep(_POLL_SECONDS)
    raise BenchFailed(f"fewer than {number:,} jobs completed in {_LIMIT_SECONDS:g} s")
