"""How many jobs a second, from the first request to the last result in the store, against an endpoint that does nothing.

Rounds of the three are interleaved, so that a machine that is busy for a while is busy for all of them.
"""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from bench.context import Context
from bench.databases import count_wrong
from bench.generator import Load
from bench.http import Client
from bench.processes import BenchFailed, Process, free_port, generate, python
from bench.results import Line, at_least, median_line, ratio_line, wrong_line
from bench.system import System

BARE: Final = "bare"
SINGLES: Final = "singles"
BATCHES: Final = "batches"
SINGLES_OF_BARE: Final = at_least(0.35)
BATCHES_OF_BARE: Final = at_least(2.0)


class Tally:
    """The rates of one kind of round, and what was wrong in them."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.wrong = 0


def run(context: Context, wanted: Iterable[str]) -> list[Line]:
    """The wanted ones of bare, singles and batches; bare always, as the others are judged by it."""
    kinds: dict[str, Callable[[Context, Path, Tally], float]] = {
        BARE: _bare,
        SINGLES: _singles,
        BATCHES: _batches,
    }
    chosen = [kind for kind in kinds if kind == BARE or kind in set(wanted)]
    tallies = {kind: Tally() for kind in chosen}
    for round in range(1, context.sizes.rounds + 1):
        for kind in chosen:
            folder = context.folder / f"{kind}-{round}"
            folder.mkdir()
            rate = kinds[kind](context, folder, tallies[kind])
            tallies[kind].rates.append(rate)
            shutil.rmtree(folder)
            context.progress(f"{kind}, round {round} of {context.sizes.rounds}: {rate:,.0f}/s")
    return _lines(tallies)


def _lines(tallies: dict[str, Tally]) -> list[Line]:
    bare = tallies[BARE].rates
    lines = [median_line("bare endpoint, B", bare, "requests/s")]
    named = {
        SINGLES: ("one job per request", SINGLES_OF_BARE),
        BATCHES: ("batches of 100", BATCHES_OF_BARE),
    }
    for kind, (name, target) in named.items():
        if kind in tallies:
            tally = tallies[kind]
            lines.append(median_line(f"{name}, end to end", tally.rates, "jobs/s"))
            lines.append(ratio_line(f"{name} / B", tally.rates, bare, target))
            lines.append(wrong_line(f"{name}: jobs lost, doubled or wrong", tally.wrong))
    return lines


def _bare(context: Context, folder: Path, tally: Tally) -> float:
    port = free_port()
    server = Process(python("bench.bare", str(port)), folder / "bare.log")
    try:
        server.wait_until(lambda: _listens(port), "the bare endpoint")
        sizes = context.sizes
        loaded = generate(Load(port, sizes.bare_requests, sizes.connections))
    finally:
        server.stop()
    if loaded.accepted != sizes.bare_requests:
        raise BenchFailed(f"the bare endpoint answered {loaded.statuses}")
    return loaded.accepted / loaded.seconds


def _listens(port: int) -> bool:
    Client(port).close()
    return True


def _singles(context: Context, folder: Path, tally: Tally) -> float:
    sizes = context.sizes
    return _end_to_end(folder, tally, lambda port: Load(port, sizes.singles, sizes.connections))


def _batches(context: Context, folder: Path, tally: Tally) -> float:
    sizes = context.sizes
    return _end_to_end(
        folder,
        tally,
        lambda port: Load(port, sizes.batches, sizes.batch_connections, "/jobs/batch", sizes.batch),
    )


def _end_to_end(folder: Path, tally: Tally, load_for: Callable[[int], Load]) -> float:
    with System(folder) as system:
        system.add_worker()
        load = load_for(system.port)
        loaded = generate(load)
        jobs = loaded.accepted * (load.batch or 1)
        ended_ns = system.wait_for_completed(jobs)
    tally.wrong += count_wrong(system.database, jobs) + load.requests - loaded.accepted
    return jobs / (ended_ns - loaded.started_ns) * 1e9
