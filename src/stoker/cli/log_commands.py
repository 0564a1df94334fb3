"""Commands that show what a job wrote and how its attempts went."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
import typer

from stoker.cli import output
from stoker.cli.client_commands import JobId, one_line, seconds
from stoker.cli.options import Json, Token, Url, ask, connect
from stoker.client.job import JobHandle, LogEntry
from stoker.client.requests import get, job_path


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
    """Print what a job wrote: stdout, stderr and log records, in order.

    \b
    Examples:
      stoker logs 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
      stoker logs 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11 --follow --tail 20
      stoker logs 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11 --attempt 2
    """
    with connect(url, token, patient=follow) as transport:
        entries = JobHandle(transport, job_id).logs(follow, attempt=attempt, tail=tail)
        try:
            print_entries(entries, as_json)
        except KeyboardInterrupt:  # how one stops following
            raise typer.Exit from None


def print_entries(entries: Iterable[LogEntry], as_json: bool) -> None:
    """Each entry as soon as it is there. A terminal obeys control characters and anyone who may submit can write them,
    so there they are escaped; a file or a pipe gets them as they are."""
    terminal = sys.stdout.isatty()
    for entry in entries:
        if as_json:
            output.print_json_line(msgspec.to_builtins(entry))
        else:
            text = output.plain_lines(entry.text) if terminal else entry.text
            sys.stdout.write(text)
        sys.stdout.flush()


def attempts(job_id: JobId, as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """List the attempts at a job: where each ran, how it ended, what it used.

    \b
    Examples:
      stoker attempts 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
      stoker attempts 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11 --json
    """
    answer = ask(url, token, get(job_path(job_id, "attempts")))
    if as_json:
        output.print_json(answer)
        return
    output.print_table(
        ["ATTEMPT", "CLAIM", "OUTCOME", "CHARGED", "WORKER", "STARTED", "FINISHED", "CPU", "MEMORY", "ERROR"],
        [_row(attempt) for attempt in answer["attempts"]],
        spare=["WORKER", "FINISHED", "CLAIM", "MEMORY", "CPU", "STARTED", "CHARGED"],
    )


def _row(attempt: dict[str, Any]) -> tuple[object, ...]:
    memory = attempt.get("peak_memory_kb")
    return (
        attempt.get("attempt"),
        attempt.get("claim_id"),
        output.outcome_words(attempt.get("outcome")),
        "yes" if attempt.get("charged") else "no",
        attempt.get("worker_id"),
        attempt.get("started_at"),
        attempt.get("finished_at"),
        seconds(attempt.get("cpu_seconds")),
        None if memory is None else f"{memory / 1024:.0f} MiB",
        one_line(attempt.get("error")),
    )
