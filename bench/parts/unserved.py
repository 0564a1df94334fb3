"""Measures whether jobs that no worker serves delay one that a worker serves: the same echo on an empty queue and behind a
crowd, in turn."""

import shutil
from typing import Final

from bench.context import Context
from bench.generator import Load
from bench.processes import BenchFailed, generate
from bench.results import Line, at_most, median_line, ratio_line
from bench.system import System

CROWDED_OF_EMPTY: Final = at_most(3.0)
_ECHO: Final = b'{"payload":"hello"}'
_BATCH: Final = 1_000
_WARM_UP: Final = 3


def run(context: Context) -> list[Line]:
    sizes = context.sizes
    folders = context.folder / "empty", context.folder / "crowded"
    with System(folders[0]) as empty, System(folders[1]) as crowded:
        empty.add_worker()
        crowded.add_worker()
        context.progress(f"submitting {sizes.unserved:,} jobs of a type that no worker serves")
        load = Load(crowded.port, sizes.unserved // _BATCH, 2, "/jobs/batch", _BATCH, "nobody-serves-this")
        if generate(load).accepted != load.requests:
            raise BenchFailed("the unserved jobs were not all accepted")
        for _ in range(_WARM_UP):
            empty.run_one(_ECHO)
            crowded.run_one(_ECHO)
        pairs = [(empty.run_one(_ECHO) * 1e3, crowded.run_one(_ECHO) * 1e3) for _ in range(sizes.echoes)]
        if crowded.stats().jobs_by_status["queued"] != sizes.unserved:
            raise BenchFailed("the unserved jobs did not stay queued")
    for folder in folders:
        shutil.rmtree(folder)
    alone, behind = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return [
        median_line("submit to completed, empty queue", alone, "ms"),
        median_line(f"submit to completed, {sizes.unserved:,} unserved", behind, "ms"),
        ratio_line("crowded / empty", behind, alone, CROWDED_OF_EMPTY),
    ]
