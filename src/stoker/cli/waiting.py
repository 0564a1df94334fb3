"""Waiting for a job at a terminal: what it does meanwhile goes to stderr, and Ctrl-C says how to go on.

On a terminal one line is painted over again and again; elsewhere there is a line for each change.
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import typer

from stoker.cli import hints, output
from stoker.cli.exits import Exit
from stoker.client.requests import Conversation, JobInfo, WhyInfo, ask_why, get_job, timed_out
from stoker.client.transport import Transport
from stoker.logs.stream import put

_QUICK_SECONDS = 0.4
"""A job that ends within this time needs no progress."""
_STEP_SECONDS = 1.0


def wait_for(
    transport: Transport, job_id: str, timeout: float | None, url: str | None, *, warned: bool = False
) -> JobInfo:
    """Return the job when it has ended. Raises `ResultTimeout`; Ctrl-C leaves, and the job goes on.

    With `warned` the reader was just told if no worker serves the job."""
    with _shown(job_id, url, warned) as screen:
        try:
            return transport.run(_conversation(job_id, timeout, screen))
        except KeyboardInterrupt:
            screen.clear()
            output.note(f"job {job_id} goes on without you")
            output.note(f"  wait again: {hints.command(f'job {job_id} --wait', url)}")
            output.note(f"  stop it:    {hints.command(f'cancel {job_id}', url)}")
            raise typer.Exit(Exit.FORCED) from None


def _conversation(job_id: str, timeout: float | None, screen: Screen) -> Conversation[JobInfo]:
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    step = _QUICK_SECONDS
    while True:
        left = max(deadline - time.monotonic(), 0)
        job: JobInfo = yield get_job(job_id, min(left, step))
        if job.is_final:
            return job
        if timeout is not None and time.monotonic() >= deadline:
            raise (yield from timed_out(job, timeout))
        screen.show(job, (yield from ask_why(job_id)))
        step = _STEP_SECONDS


def told(job: JobInfo, why: WhyInfo | None, now: datetime) -> str:
    """Return in words what a job that has not ended does now."""
    if job.status == "scheduled":
        return output.status_words(job.status, job.attempt, job.max_attempts, job.run_at, now)
    attempt = f"attempt {job.attempt} of {job.max_attempts}" if job.attempt > 1 else ""
    said = "" if why is None else why.summary.rstrip(".")
    return ", ".join(part for part in (said or job.status, attempt, _progress(job)) if part)


def _progress(job: JobInfo) -> str:
    progress = job.progress
    if progress is None:
        return ""
    total = "" if progress.total is None else f" of {progress.total:g}"
    share = "" if progress.percent is None else f"{progress.percent:.0f}%, "
    return f"{share}{progress.done:g}{total}" + (f" {progress.message}" if progress.message else "")


class Screen:
    """Shows the progress of one job on stderr: one line that is painted over, or a line for each change."""

    def __init__(self, job_id: str, *, live: bool, url: str | None = None, warned: bool = False) -> None:
        self._job_id = job_id
        self._url = url
        self._warned = warned
        self._warned_of: set[str] = set()
        self._live = live
        self._began = time.monotonic()
        self._last: object = None
        self._painted = False

    def show(self, job: JobInfo, why: WhyInfo | None) -> None:
        text = f"job {self._job_id[-8:]}  {output.plain(told(job, why, datetime.now(UTC)))}"
        if self._live:
            self._warn(why)
            elapsed = output.span(time.monotonic() - self._began)
            width = shutil.get_terminal_size().columns
            line = f"{elapsed:>4}  {text}"
            self._write(f"\r\x1b[K{line if len(line) < width else line[: width - 2] + '…'}")
            self._painted = True
        elif (state := (job.status, job.attempt, why and why.code)) != self._last:
            self._last = state
            self._write(f"{text}\n")

    def _warn(self, why: WhyInfo | None) -> None:
        """Say once, on lines that stay, that no worker can run the job: to watch the time go by will not help."""
        if why is None or not why.code.startswith("no_worker") or why.code in self._warned_of:
            return
        self._warned_of.add(why.code)
        self.clear()
        if not self._warned:
            output.note(why.summary)
        output.note("  The job waits until a worker can. Ctrl-C stops waiting for it.")
        output.note(f"  take it back: {hints.command(f'cancel {self._job_id}', self._url)}")

    def clear(self) -> None:
        if self._painted:
            self._write("\r\x1b[K")
            self._painted = False

    def _write(self, text: str) -> None:
        put(sys.stderr, text.encode(errors="backslashreplace"))


@contextmanager
def _shown(job_id: str, url: str | None, warned: bool) -> Iterator[Screen]:
    screen = Screen(job_id, live=sys.stderr.isatty(), url=url, warned=warned)
    try:
        yield screen
    finally:
        screen.clear()
