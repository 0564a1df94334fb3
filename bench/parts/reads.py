"""Whether reading gets slower as finished jobs pile up: the same two questions to a small and a large history, in turn."""

import shutil
import time
from typing import Final

from bench.context import Context
from bench.databases import write_finished
from bench.processes import BenchFailed
from bench.results import Line, at_most, median_line, ratio_line
from bench.system import DATABASE, System

MANY_OF_FEW: Final = at_most(5.0)
_PATHS: Final = ("/jobs?limit=50", "/stats")
_WARM_UP: Final = 3


def run(context: Context) -> list[Line]:
    sizes = context.sizes
    folders = {
        number: context.folder / f"finished-{number}" for number in (sizes.few_finished, sizes.many_finished)
    }
    for number, folder in folders.items():
        context.progress(f"writing a history of {number:,} finished jobs")
        write_finished(folder / DATABASE, number)
    lines: list[Line] = []
    with System(folders[sizes.few_finished]) as few, System(folders[sizes.many_finished]) as many:
        for system, number in ((few, sizes.few_finished), (many, sizes.many_finished)):
            if system.stats().completed != number:
                raise BenchFailed(f"the coordinator does not see the {number:,} finished jobs")
        for path in _PATHS:
            lines += _compare(context, path, few, many)
    for folder in folders.values():
        shutil.rmtree(folder)
    return lines


def _compare(context: Context, path: str, few: System, many: System) -> list[Line]:
    sizes = context.sizes
    quick: list[float] = []
    slow: list[float] = []
    for _ in range(_WARM_UP):
        _read(few, path), _read(many, path)
    for _ in range(sizes.reads):
        quick.append(_read(few, path))
        slow.append(_read(many, path))
    few_line = median_line(f"GET {path} with {sizes.few_finished:,}", quick, "ms")
    many_line = median_line(f"GET {path} with {sizes.many_finished:,}", slow, "ms")
    ratio = ratio_line(f"GET {path}, many / few", slow, quick, MANY_OF_FEW)
    context.progress(f"GET {path}: ratio {ratio.value:.2f}")
    return [few_line, many_line, ratio]


def _read(system: System, path: str) -> float:
    started = time.perf_counter()
    status = system.client.call("GET", path)
    took = (time.perf_counter() - started) * 1e3
    if status != 200:
        raise BenchFailed(f"GET {path} answered {status}")
    return took
