"""Commands that show what a job wrote and how its attempts went."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import msgspec
import typer

from stoker.cli import output
from stoker.cli.job_page import one_line, seconds
from stoker.cli.options import Api, JobId, Token, Url, connect
from stoker.client.errors import StokerError
from stoker.client.job import JobHandle, LogEntry
from stoker.client.requests import AttemptInfo, get, job_path


def logs(
    job_id: JobId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what the job writes, until it ends.")
    ] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", metavar="N", min=1, help="Only this attempt.")
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option("--tail", metavar="N", min=1, max=100_000, help="Only the last N lines so far."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, one object per entry, for programs.")
    ] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Print what a job wrote: stdout, stderr and log records, in order; on a terminal also where each attempt ended.

    \b
    Examples:
      stoker logs 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
      stoker logs 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11 --follow --tail 20
      stoker logs 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11 --attempt 2
    """
    with connect(url, token, patient=follow) as transport:
        handle: JobHandle[Any] = JobHandle(transport, job_id)
        entries = handle.logs(follow, attempt=attempt, tail=tail)
        try:
            print_entries(entries, as_json, Marks(handle.attempts, attempt))
        except KeyboardInterrupt:  # how one stops following
            raise typer.Exit from None


def print_entries(entries: Iterable[LogEntry], as_json: bool, marks: Marks | None = None) -> None:
    """Print each entry as soon as it arrives. A terminal obeys control characters and every job can write them,
    so there they are escaped; a file or a pipe gets them as they are, without marks."""
    terminal = sys.stdout.isatty()
    if as_json or not terminal:
        marks = None
    for entry in entries:
        if as_json:
            output.print_json_line(msgspec.to_builtins(entry))
        else:
            if marks is not None:
                marks.before(entry)
            text = output.plain_lines(entry.text) if terminal else entry.text
            sys.stdout.write(text)
        sys.stdout.flush()
    if marks is not None:
        marks.at_the_end()


class Marks:
    """Lines on a terminal that say where the output of an attempt ends, and how the attempt did.

    The attempts are asked for only when the output of another one begins, and at the end of all output."""

    def __init__(self, attempts: Callable[[], Sequence[AttemptInfo]], only: int | None = None) -> None:
        self._attempts = attempts
        self._only = only
        self._claim = 0
        """The claim whose output was printed last; attempts before it are marked, or left out by --tail."""
        self._line_is_open = False

    def before(self, entry: LogEntry) -> None:
        """Mark the ends of all attempts between the last entry and this one."""
        if entry.claim_id is not None:
            if self._claim and entry.claim_id != self._claim:
                self._mark(before=entry.claim_id)
            self._claim = entry.claim_id
        self._line_is_open = not entry.text.endswith("\n")

    def at_the_end(self) -> None:
        """Mark the ends of the attempts that are left, also of those that wrote nothing."""
        self._mark()

    def _mark(self, before: float = math.inf) -> None:
        try:
            attempts = self._attempts()
        except StokerError:  # what the job wrote is there; the marks are an extra
            return
        for attempt in attempts:
            claim = attempt.claim_id or 0
            shown = self._only is None or attempt.attempt == self._only
            if shown and self._claim <= claim < before and attempt.finished_at is not None:
                self._write(end_words(attempt))

    def _write(self, words: str) -> None:
        room = max(shutil.get_terminal_size().columns - len("──  ──"), 20)
        words = words if len(words) <= room else f"{words[: room - 1]}…"
        line = f"── {words} ──"
        coloured = line if os.environ.get("NO_COLOR") else f"\x1b[2m{line}\x1b[0m"
        print("\n" * self._line_is_open + coloured, flush=True)
        self._line_is_open = False


def end_words(attempt: AttemptInfo) -> str:
    """Return how an attempt ended: `attempt 1 failed: ValueError: no; retried after 1.7s`."""
    outcome = output.outcome_words(attempt.outcome) or "ended"
    told = f"attempt {attempt.attempt} {'failed' if outcome == 'error' else outcome}"
    if attempt.error is not None:
        told += f": {one_line(msgspec.to_builtins(attempt.error))}"
    if attempt.retry_delay_sec is not None:
        told += f"; retried after {seconds(attempt.retry_delay_sec)}"
    return output.plain(told)


def attempts(job_id: JobId, api: Api) -> None:
    """List the attempts at a job: where each ran, how it ended, what it used.

    \b
    Examples:
      stoker attempts 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
      stoker attempts 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11 --json
    """
    api.show_rows(api.ask(get(job_path(job_id, "attempts"))), "attempts", _ATTEMPTS)


_ATTEMPTS = output.Listing(
    {
        "ATTEMPT": "attempt",
        "CLAIM": "claim_id",
        "OUTCOME": lambda attempt: output.outcome_words(attempt.get("outcome")),
        "CHARGED": lambda attempt: "yes" if attempt.get("charged") else "no",
        "WORKER": "worker_id",
        "STARTED": "started_at",
        "FINISHED": "finished_at",
        "CPU": lambda attempt: seconds(attempt.get("cpu_seconds")),
        "MEMORY": lambda attempt: _mebibytes(attempt.get("peak_memory_kb")),
        "ERROR": lambda attempt: one_line(attempt.get("error")),
    },
    spare=["WORKER", "FINISHED", "CLAIM", "MEMORY", "CPU", "STARTED", "CHARGED"],
)


def _mebibytes(kibibytes: int | None) -> str | None:
    return None if kibibytes is None else f"{kibibytes / 1024:.0f} MiB"
