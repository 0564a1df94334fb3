"""Stoker through its SDK, as any program uses it.

The growth curves set `BENCH_QUEUES` (number of queues that bulk calls go to in turn), `BENCH_PAYLOAD` (bytes of each job),
`BENCH_BATCH` (jobs of a bulk call) and `BENCH_QUEUE` (of jobs that are submitted one by one).
"""

import itertools
import os
from collections.abc import Sequence

from bench.peers.drivers import kit
from stoker import Stoker

mark = kit.board().mark
app = Stoker(kit.url())


@app.task
def echo(number: int, padding: str = "") -> None:
    """Mark the board."""
    mark(number)


def producer() -> kit.Producer:
    return kit.Producer(submit=echo.submit, submit_many=echo.submit_many, submit_async=echo.submit_async)


def growing() -> None:
    """Obey orders as the growth curves want them."""
    single = echo.options(queue=os.environ.get("BENCH_QUEUE", "default"))
    queues = int(os.environ.get("BENCH_QUEUES", "1"))
    names = ["default"] if queues == 1 else [f"queue-{number}" for number in range(queues)]
    tasks = itertools.cycle([echo.options(queue=name) for name in names])
    padding = "x" * int(os.environ.get("BENCH_PAYLOAD", "0"))

    def submit(number: int) -> None:
        single.submit(number, padding)

    def submit_many(numbers: Sequence[int]) -> None:
        next(tasks).submit_many([(number, padding) for number in numbers])

    batch = int(os.environ.get("BENCH_BATCH", str(kit.BATCH)))
    kit.main(kit.Producer(submit=submit, submit_many=submit_many, batch=batch))
