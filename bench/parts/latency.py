"""How soon a job starts when there is nothing else to do, by the job's own times, and how soon its 202 comes."""

import shutil
import time
from typing import Final

from bench.context import Context
from bench.databases import start_delays
from bench.results import Line, at_most, percentile
from bench.system import System

START_P50_MS: Final = at_most(2.0)


def run(context: Context) -> list[Line]:
    sizes = context.sizes
    folder = context.folder / "latency"
    answers: list[float] = []
    with System(folder) as system:
        system.add_worker()
        for number in range(sizes.idle_submits):
            time.sleep(sizes.idle_gap_seconds)
            started = time.perf_counter()
            system.submit(b'{"payload":{"n":%d}}' % number)
            answers.append((time.perf_counter() - started) * 1e3)
        system.wait_for_completed(sizes.idle_submits)
    starts = [delay * 1e3 for delay in start_delays(system.database)]
    shutil.rmtree(folder)
    return [
        Line("idle submit to start, p50", percentile(starts, 50), "ms", (), START_P50_MS),
        Line("idle submit to start, p99", percentile(starts, 99), "ms"),
        Line("idle request to 202, p50", percentile(answers, 50), "ms"),
        Line("idle request to 202, p99", percentile(answers, 99), "ms"),
    ]
