"""`stoker edit`: change a job while it waits."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from stoker.cli.options import (
    Api,
    JobQueue,
    MaxAttempts,
    Priority,
    moment,
    pairs,
    pairs_option,
    payload,
    priority_of,
    seconds_option,
    time_option,
)
from stoker.client.edit import EditFields
from stoker.client.edit import edit as edit_request

NO = "none"


def edit(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job; its id may be shortened.")],
    priority: Priority = None,
    queue: JobQueue = None,
    run_at: Annotated[str | None, time_option("--run-at", "Start no earlier; none for at once.")] = None,
    new_payload: Annotated[
        str | None, typer.Option("--payload", help="JSON, or plain text, or - for stdin, or @FILE.")
    ] = None,
    max_attempts: MaxAttempts = None,
    timeout: Annotated[float | None, seconds_option("--timeout", "0 for no timeout.")] = None,
    metadata: Annotated[list[str] | None, pairs_option("--metadata", "Replaces all notes on the job")] = None,
    *,
    api: Api,
) -> None:
    """Change a job while it waits. What is not named stays as it is.

    \b
    Examples:
      stoker edit 019a5c1e --priority 0
      stoker edit 019a5c1e --queue bulk --run-at 2030-01-31T12:00:00Z
      stoker edit 019a5c1e --run-at none --payload '{"n": 2}'
    """
    changes: EditFields = {}
    if priority is not None and (number := priority_of(priority)) is not None:
        changes["priority"] = number
    if queue is not None:
        changes["queue"] = queue
    if run_at is not None:
        changes["run_at"] = None if run_at == NO else moment(run_at, "--run-at")
    if new_payload is not None:
        changes["payload"] = msgspec.Raw(payload(new_payload))
    if max_attempts is not None:
        changes["max_attempts"] = max_attempts
    if timeout is not None:
        changes["timeout_sec"] = timeout or None
    if metadata is not None:
        changes["metadata"] = pairs(metadata, "--metadata")
    if not changes:
        raise typer.BadParameter("say what to change, such as --priority 0", param_hint="--priority")
    document = api.ask(edit_request(job_id, changes, answer=dict[str, Any]))
    api.show(document, lambda job: print(job["id"]))
