"""`python -m bench.urgent [PART…]`: how soon urgent jobs start amid a flood of short ones, and what the flood pays for it.

A flood of `--jobs` echoes of low priority is queued while its queue is paused. When a part of it has run, four times five
urgent jobs are sent, one of each type, in half of the slices of the time; the rate of the flood in these slices is compared
with that in the others. Slices with and without alternate as ABBA, so that a drift of the rate counts for both alike.
Four workers on two cores are now quicker and now slower by a tenth, so `--floods` follow each other, and the slices of all
count together. A job's delay is `started_at - created_at`, as the API tells it.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from bench import command
from bench.context import Run
from bench.processes import BenchFailed
from bench.results import Line, at_least, at_most
from bench.system import System
from tests.support.servers import Postgres

BATCH: Final = 10_000
BURSTS: Final = 4
WARM_UP: Final = 3_000
WARM_EACH: Final = 32
"""So many at a time of each urgent type: enough that each worker has children for it."""
SECONDS: Final = 0.005
"""How long an urgent job of a task runs."""
OPTIONS: Final = ("--app", "bench.urgent_app:app", "--command", "new_process=true")

URGENT: Final[dict[str, dict[str, Any]]] = {
    "first_seen": {"type": "first_seen"},
    "known_slow": {"type": "known_slow"},
    "one_attempt": {"type": "known_short", "max_attempts": 1},
    "side_by_side": {"type": "side_by_side"},
    "new_process": {"type": "new_process"},
}
"""What is sent, by the name under which it is shown. The children of all but the last are warm."""


class Slice(msgspec.Struct):
    """A stretch of the flood: how many jobs completed in how many seconds."""

    jobs: int
    seconds: float


class Flood:
    """One system, one flood and the urgent jobs in it."""

    def __init__(self, run: Run, system: System, jobs: int) -> None:
        self._run = run
        self._system = system
        self._jobs = jobs
        self._urgent: list[tuple[str, str]] = []
        self._before = 0
        """Jobs of warming up and of earlier floods."""

    def warm_up(self) -> None:
        """Make the flood's type known to be short, and start the children of the urgent ones."""
        self._submit_flood(WARM_UP, priority=1)
        self._wait_for(WARM_UP)
        for seconds, type in ((0.05, "known_slow"), (0.001, "known_short"), (0.5, "side_by_side")):
            for _ in range(WARM_EACH):
                self._system.submit(_body(type, {"seconds": seconds}, priority=1))
            self._wait_for(WARM_EACH)

    def _wait_for(self, jobs: int) -> None:
        """Wait until so many more jobs are completed, which are all that are left."""
        self._before += jobs
        self._system.wait_for_completed(self._before)

    def end(self) -> None:
        """Work off what is left of the flood."""
        self._wait_for(self._jobs + BURSTS * len(URGENT))

    def queue(self) -> None:
        client = self._system.client
        client.call("POST", "/queues/default/pause")
        self._submit_flood(self._jobs, priority=2)
        client.call("POST", "/queues/default/resume")

    def _submit_flood(self, number: int, priority: int) -> None:
        for first in range(0, number, BATCH):
            jobs = [
                {"type": "echo", "payload": {"n": n}, "priority": priority}
                for n in range(first, min(first + BATCH, number))
            ]
            self._system.client.json("POST", "/jobs/batch", msgspec.json.encode({"jobs": jobs}))

    def measure(self) -> tuple[list[Slice], list[Slice]]:
        """Slices with and without urgent jobs, in turns."""
        with_urgent: list[Slice] = []
        without: list[Slice] = []
        self._until(self._jobs // 10)
        size = self._jobs * 8 // 10 // (2 * BURSTS)
        for place in range(2 * BURSTS):
            begun, done = time.monotonic(), self._system.stats().completed
            urgent = place % 4 in (1, 2)
            if urgent:
                self._send_urgent()
            ended = self._until(self._jobs // 10 + (place + 1) * size)
            found = Slice(ended - done, time.monotonic() - begun)
            (with_urgent if urgent else without).append(found)
            self._run.progress(
                f"{ended - self._before:,} of {self._jobs:,}: {found.jobs / found.seconds:,.0f} a second"
            )
        return with_urgent, without

    def _until(self, number: int) -> int:
        """Wait until so many of the flood are completed; how many jobs are by then."""
        deadline = time.monotonic() + 300.0
        while (done := self._system.stats().completed) < number + self._before:
            if time.monotonic() > deadline:
                raise BenchFailed(f"only {done:,} jobs completed")
            time.sleep(0.02)
        return done

    def _send_urgent(self) -> None:
        for name, more in URGENT.items():
            body = _body(
                more["type"], {"seconds": SECONDS}, priority=0, max_attempts=more.get("max_attempts", 4)
            )
            self._urgent.append((name, self._system.submit(body)))

    def delays(self) -> dict[str, list[float]]:
        """Milliseconds from the submission to the start of each urgent job."""
        found: dict[str, list[float]] = {name: [] for name in URGENT}
        for name, id in self._urgent:
            job = self._system.client.json("GET", f"/jobs/{id}?wait=60")
            if job["status"] != "completed":
                raise BenchFailed(f"an urgent job of {name} is {job['status']}")
            delay = datetime.fromisoformat(job["started_at"]) - datetime.fromisoformat(job["created_at"])
            found[name].append(delay.total_seconds() * 1_000)
        return found


def _body(type: str, payload: object, *, priority: int, max_attempts: int = 4) -> bytes:
    job = {"type": type, "payload": payload, "priority": priority, "max_attempts": max_attempts}
    return msgspec.json.encode(job)


def lines_of(
    part: str, delays: dict[str, list[float]], with_urgent: Sequence[Slice], without: Sequence[Slice]
) -> list[Line]:
    warm = [delay for name, found in delays.items() if name != "new_process" for delay in found]
    each = [Line(f"{part}: {name}", max(found), "ms", found) for name, found in delays.items()]
    rates = [
        sum(s.jobs for s in slices) / sum(s.seconds for s in slices) for slices in (with_urgent, without)
    ]
    return [
        *each,
        Line(f"{part}: warm types, slowest start", max(warm), "ms", target=at_most(250)),
        Line(f"{part}: warm types, median", statistics.median(warm), "ms", target=at_most(100)),
        Line(f"{part}: new process, slowest start", max(delays["new_process"]), "ms", target=at_most(1_000)),
        Line(f"{part}: flood beside urgent jobs", rates[0], "/s", [s.jobs / s.seconds for s in with_urgent]),
        Line(f"{part}: flood alone", rates[1], "/s", [s.jobs / s.seconds for s in without]),
        Line(f"{part}: quotient", rates[0] / rates[1], "", target=at_least(0.9)),
    ]


class Urgent:
    program = "python -m bench.urgent"
    description = "Measure how soon urgent jobs start amid a flood of short ones."
    parts: Sequence[str] = ("sqlite-1", "sqlite-4", "postgres-1", "postgres-4")
    limit_seconds = 1_800.0
    notes_title = ""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--jobs", type=int, default=500_000, help="how many short jobs (default: 500,000)"
        )
        parser.add_argument("--floods", type=int, default=3, help="how many such floods (default: 3)")

    def prepare(self, options: argparse.Namespace, folder: Path, stack: ExitStack) -> Run:
        self._run = Run(folder)
        self._jobs: int = 20_000 if options.quick else options.jobs
        self._floods: int = 1 if options.quick else options.floods
        self._stack = stack
        self._server: Postgres | None = None
        return self._run

    def steps(self, parts: Sequence[str]) -> Iterator[command.Step]:
        for part in parts:
            store, workers = part.split("-")
            yield part, partial(self._measure, part, store, int(workers))

    def _url(self, store: str, part: str) -> str:
        if store == "sqlite":
            return ""
        if self._server is None:
            self._run.folder.chmod(0o755)  # the server may have to run as another user
            self._server = Postgres(self._run.folder / "pg")
            self._stack.callback(self._server.stop)
            self._server.start()
        return self._server.create_database(part.replace("-", "_"))

    def _measure(self, part: str, store: str, workers: int) -> list[Line]:
        with System(self._run.folder / part, url=self._url(store, part)) as system:
            started = [system.start_worker(name=f"bench-{n}", options=OPTIONS) for n in range(workers)]
            started[0].wait_until(lambda: system.workers() == workers, "the workers")
            flood = Flood(self._run, system, self._jobs)
            flood.warm_up()
            with_urgent: list[Slice] = []
            without: list[Slice] = []
            for _ in range(self._floods):
                flood.queue()
                slices = flood.measure()
                with_urgent += slices[0]
                without += slices[1]
                flood.end()
            return lines_of(part, flood.delays(), with_urgent, without)


if __name__ == "__main__":
    sys.exit(command.main(Urgent()))
