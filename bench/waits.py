"""`python -m bench.waits`: what it takes to wait for many jobs in Python, and what submits pay for it.

Two figures are judged. The results of `--jobs` finished jobs by `asyncio.gather` take at most half of the time that a loop
of blocking `result()` takes, with at most four connections. And `submit_async` while `--awaited` jobs are awaited has a p99
of at most twice that without them.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import stoker
from bench.results import Line, at_most, table
from bench.system import System
from stoker import JobHandle, Stoker
from stoker.client.batch import Batch

MAX_RATIO: Final = 0.5
MAX_CONNECTIONS: Final = 4
MAX_SLOWDOWN: Final = 2.0
ROUNDS: Final = 3
NOBODY: Final = "nobody-serves-this"
"""A type without workers: its jobs are awaited and never end."""

app = Stoker()


@app.task(name="echo")
def echo(n: int) -> dict[str, int]:
    """Built in: gives its payload back."""
    return {"n": n}


@app.task(name=NOBODY)
def nobody(n: int) -> int:
    return n


class Connections:
    """Counts the TCP connections of this process to a port, and keeps the highest number."""

    def __init__(self, port: int) -> None:
        self._port = f":{port:04X}"
        self.most = 0

    def look(self) -> None:
        sockets = {_link(fd.path) for fd in os.scandir("/proc/self/fd")}
        rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
        ours = [row for row in rows if row[2].endswith(self._port) and f"socket:[{row[9]}]" in sockets]
        self.most = max(self.most, len(ours))

    @contextmanager
    def watched(self) -> Iterator[None]:
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.02):
                self.look()

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def _link(path: str) -> str:
    """What a descriptor is; nothing when it was closed since it was listed."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


async def gathered(jobs: Sequence[JobHandle[Any]]) -> None:
    async with app:
        results = await asyncio.gather(*(job.result_async() for job in jobs))
    assert [result["n"] for result in results] == list(range(len(jobs)))


def finished(port: int, jobs: Batch[Any]) -> Iterator[Line]:
    connections = Connections(port)
    loops: list[float] = []
    gathers: list[float] = []
    for _ in range(ROUNDS):
        loops.append(timed(lambda: [job.result() for job in jobs]))
        app.close()
        with connections.watched():
            gathers.append(timed(lambda: asyncio.run(gathered(jobs))))
    yield Line("a loop of result()", statistics.median(loops), "s", loops)
    yield Line("asyncio.gather of result_async()", statistics.median(gathers), "s", gathers)
    ratio = statistics.median(gathers) / statistics.median(loops)
    yield Line("gather / loop", ratio, "", (), at_most(MAX_RATIO))
    yield Line("connections of gather", connections.most, "", (), at_most(MAX_CONNECTIONS))
    yield Line("stoker.gather", timed(lambda: stoker.gather(jobs)), "s")


async def p99_ms(submits: int) -> float:
    times: list[float] = []
    for number in range(submits):
        began = time.perf_counter()
        await nobody.submit_async(number)
        times.append(1000 * (time.perf_counter() - began))
    return statistics.quantiles(times, n=100)[98]


async def submits(awaited: int, number: int) -> Iterator[Line]:
    quiet: list[float] = []
    busy: list[float] = []
    async with app:
        await p99_ms(number)  # warm
        for _ in range(ROUNDS):
            quiet.append(await p99_ms(number))
            async with _awaiting(awaited):
                busy.append(await p99_ms(number))
    slowdown = statistics.median(busy) / statistics.median(quiet)
    return iter(
        [
            Line("p99 of submit_async, quiet", statistics.median(quiet), "ms", quiet),
            Line(f"p99 with {awaited:,} jobs awaited", statistics.median(busy), "ms", busy),
            Line("awaited / quiet", slowdown, "", (), at_most(MAX_SLOWDOWN)),
        ]
    )


class _awaiting:  # noqa: N801 - used like a function
    def __init__(self, number: int) -> None:
        self._number = number
        self._tasks: list[asyncio.Task[object]] = []

    async def __aenter__(self) -> None:
        jobs = await nobody.submit_many_async(range(self._number))
        self._tasks = [asyncio.create_task(_result(job.result_async)) for job in jobs]
        await asyncio.sleep(1)

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _result(ask: Callable[[], Awaitable[object]]) -> object:
    return await ask()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.waits", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000, help="finished jobs")
    parser.add_argument("--awaited", type=int, default=2_000, help="jobs that are awaited")
    parser.add_argument("--submits", type=int, default=1_000, help="submits in each round")
    parser.add_argument(
        "--database", default="", help="an SQLite file of its own, unless another URL is given"
    )
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="stoker-bench-") as name,
        System(Path(name), url=options.database) as system,
    ):
        worker = system.add_worker()
        app._url = f"http://127.0.0.1:{system.port}"
        jobs = echo.submit_many(range(options.jobs))
        stoker.gather(jobs)
        worker.stop()
        lines = [*finished(system.port, jobs), *asyncio.run(submits(options.awaited, options.submits))]
        app.close()
    print(table(lines))
    return any(line.verdict == "FAIL" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
