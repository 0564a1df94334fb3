"""What the load scripts share: submit jobs in waves, show them until all have ended, sum up.

A script describes its load with a `Load` and calls `main`. The exit code is 0 when every job ended as the load expects, 1
when one did not, or not in time, 3 when no coordinator answers, 4 when it refuses.
"""

import argparse
import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from statistics import quantiles
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from stoker import Stoker, errors
from stoker.client.requests import JobInfo, get

UNFINISHED = ("queued", "scheduled", "running")
FINAL = ("completed", "failed", "cancelled")
POLL_SECONDS = 0.25
MAX_JOBS = 10_000
"""Up to here the server counts jobs of one name exactly."""
PAGE_JOBS = 1_000
SHOWN = 5


class Planned(NamedTuple):
    """One job to submit, and how it should end."""

    type: str
    payload: Any
    ends: str = "completed"
    max_attempts: int = 4


class Load(NamedTuple):
    """A kind of load; `plan(n, size)` makes job number n."""

    name: str
    about: str
    plan: Callable[[int, int], Planned]
    jobs: int
    wave: int
    size: int | None = None
    """The default of `--size`; None for a load that has no such thing."""
    size_means: str = ""


class Page(msgspec.Struct):
    jobs: list[JobInfo]
    total: int
    next_cursor: str | None


def main(load: Load) -> int:
    """Run the load as the command line says; the exit code."""
    options = _options(load)
    console = Console(highlight=False)
    run = Run(load, options, console)
    try:
        return asyncio.run(run.to_its_end())
    except errors.StokerError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return 3 if isinstance(error, errors.ConnectionFailed) else 4
    except KeyboardInterrupt:
        console.print(f"left; the jobs go on: stoker jobs --name {run.tag}")
        return 130


def _options(load: Load) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=load.about)
    parser.add_argument("--jobs", type=_number(MAX_JOBS), default=load.jobs, help="how many (%(default)s)")
    parser.add_argument("--wave", type=_number(MAX_JOBS), default=load.wave, help="at once (%(default)s)")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between waves (%(default)s)")
    parser.add_argument("--timeout", type=float, default=600.0, help="give up after seconds (%(default)s)")
    parser.add_argument("--url", help="where the API is (STOKER_API_URL, else http://127.0.0.1:8080)")
    if load.size is not None:
        means = f"{load.size_means} (%(default)s)"
        parser.add_argument("--size", type=_number(10**9), default=load.size, help=means)
    return parser.parse_args()


def _number(most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {most}")
        return int(text)

    return number


class Run:
    """One run of a load. All its jobs carry its tag as their name."""

    def __init__(self, load: Load, options: argparse.Namespace, console: Console) -> None:
        self.tag = f"load-{load.name}-{secrets.token_hex(4)}"
        self._load = load
        self._options = options
        self._console = console
        self._app = Stoker(options.url)
        self._expected: dict[str, str] = {}
        self._warnings: set[str] = set()

    async def to_its_end(self) -> int:
        self._console.print(f"{self._options.jobs} jobs, named {self.tag}")
        began = time.monotonic()
        async with self._app:
            try:
                async with asyncio.timeout(self._options.timeout):
                    await self._submit_and_watch()
            except TimeoutError:
                self._console.print(f"not done within {self._options.timeout:g} s", style="red")
            seconds = time.monotonic() - began
            jobs = [job async for job in self._all()]
        unexpected = [job for job in jobs if job.status != self._expected.get(job.id, job.status)]
        self._sum_up(jobs, seconds)
        self._complain(unexpected)
        return 1 if unexpected or len(jobs) < self._options.jobs else 0

    async def _submit_and_watch(self) -> None:
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[counts]}"),
            TimeElapsedColumn(),
        )
        with Progress(TextColumn("{task.description}"), *columns, console=self._console) as progress:
            bar = progress.add_task(self._load.name, total=self._options.jobs, counts="")
            submitting = asyncio.create_task(self._submit())
            try:
                while not await self._show(progress, bar):
                    if submitting.done():
                        submitting.result()  # raises what it met
                    await asyncio.sleep(POLL_SECONDS)
            finally:
                submitting.cancel()
                await asyncio.wait([submitting])

    async def _submit(self) -> None:
        for wave in _waves(self._options.jobs, self._options.wave):
            await asyncio.gather(*(self._submit_one(number) for number in wave))
            await asyncio.sleep(self._options.pause)

    async def _submit_one(self, number: int) -> None:
        job = self._load.plan(number, self._options.size if self._load.size is not None else 0)
        handle = await self._app.submit_async(
            job.type, job.payload, name=self.tag, max_attempts=job.max_attempts
        )
        self._expected[handle.id] = job.ends
        for warning in set(handle.info.warnings) - self._warnings:
            self._warnings.add(warning)
            self._console.print(f"warning: {warning}", style="yellow", markup=False)

    async def _show(self, progress: Progress, bar: TaskID) -> bool:
        """Show how things stand; whether all jobs have ended."""
        counts = {status: await self._count(status) for status in (*UNFINISHED, *FINAL)}
        ended = sum(counts[status] for status in FINAL)
        shown = {"submitted": len(self._expected), **counts}
        text = "  ".join(f"{name} {count}" for name, count in shown.items() if count)
        progress.update(bar, completed=ended, counts=text)
        return ended == int(self._options.jobs)

    async def _count(self, status: str) -> int:
        request = get("/jobs", Page, name=self.tag, status=status, limit=1)
        page: Page = await self._app.transport.send_async(request)
        return page.total

    async def _all(self) -> AsyncIterator[JobInfo]:
        cursor: str | None = None
        while True:
            request = get("/jobs", Page, name=self.tag, limit=PAGE_JOBS, cursor=cursor)
            page: Page = await self._app.transport.send_async(request)
            for job in page.jobs:
                yield job
            cursor = page.next_cursor
            if cursor is None:
                return

    def _sum_up(self, jobs: Sequence[JobInfo], seconds: float) -> None:
        statuses = Counter(job.status for job in jobs)
        ended = sum(statuses[status] for status in FINAL)
        retried = sum(job.attempt > 1 for job in jobs)
        counts = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
        self._console.print(f"{counts or 'nothing'}; {retried} after a retry")
        self._console.print(f"{seconds:.2f} s, {ended / seconds:.1f} jobs/s")
        self._console.print(f"wait  {_percentiles(_waits(jobs))}")
        self._console.print(f"run   {_percentiles(_runs(jobs))}")

    def _complain(self, unexpected: Sequence[JobInfo]) -> None:
        for job in unexpected[:SHOWN]:
            reason = f": {job.error}" if job.error is not None else ""
            wanted = self._expected[job.id]
            text = f"unexpected: {job.id} is {job.status}, not {wanted}{reason}"
            self._console.print(text, style="red", markup=False)
        if len(unexpected) > SHOWN:
            self._console.print(f"… and {len(unexpected) - SHOWN} more", style="red")


def _waves(jobs: int, wave: int) -> Iterator[range]:
    return (range(first, min(first + wave, jobs)) for first in range(0, jobs, wave))


def _waits(jobs: Sequence[JobInfo]) -> list[float]:
    """Seconds from when each job was due to its (last) start, waiting for retries included."""
    return [
        (job.started_at - job.created_at).total_seconds()
        for job in jobs
        if job.started_at is not None and job.created_at is not None
    ]


def _runs(jobs: Sequence[JobInfo]) -> list[float]:
    return [
        (job.completed_at - job.started_at).total_seconds()
        for job in jobs
        if job.completed_at is not None and job.started_at is not None
    ]


def _percentiles(seconds: Sequence[float]) -> str:
    if len(seconds) < 2:
        return "unknown"
    cuts = quantiles(seconds, n=20, method="inclusive")
    return f"p50 {cuts[9] * 1000:.1f} ms, p95 {cuts[18] * 1000:.1f} ms"
