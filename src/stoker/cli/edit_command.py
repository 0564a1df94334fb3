"""`stoker edit`: change a job while it waits."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from stoker.cli import output
from stoker.cli.options import (
    Json,
    Priority,
    Token,
    Url,
    connect,
    finite,
    moment,
    pairs,
    payload,
    priority_of,
)
from stoker.client.edit import EditFields
from stoker.client.edit import edit as edit_request

NO = "none"


def edit(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job; its id may be shortened.")],
    priority: Priority = None,
    queue: Annotated[str | None, typer.Option("--queue", help="The queue to stand in.")] = None,
    run_at: Annotated[
        str | None, typer.Option("--run-at", metavar="TIME", help="Start no earlier; none for at once.")
    ] = None,
    new_payload: Annotated[
        str | None, typer.Option("--payload", help="JSON, or plain text, or - for stdin, or @FILE.")
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", min=1, max=100, help="Tries before it counts as failed.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", min=0, callback=finite, help="0 for no timeout."),
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option("--metadata", metavar="KEY=VALUE", help="Replaces all notes on the job; repeatable."),
    ] = None,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
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
    request = edit_request(job_id, changes, answer=dict[str, Any])
    with connect(url, token) as transport:
        document = transport.send(request)
    if as_json:
        output.print_json(document)
    else:
        print(document["id"])
