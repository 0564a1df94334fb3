"""`stoker queues`: list, pause and resume queues."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer

from stoker.cli import completion, hints, output
from stoker.cli.option_groups import command, group
from stoker.cli.options import Api
from stoker.cli.typos import known_queues
from stoker.client.requests import get, post, queue_path
from stoker.client.transport import Transport
from stoker.domain.nearest import nearest

queues_app = typer.Typer(rich_markup_mode=None)

QueueName = Annotated[
    str, typer.Argument(metavar="NAME", help="The queue.", autocompletion=completion.queues)
]


@group(queues_app)
def queues(context: typer.Context, api: Api) -> None:
    """Queues. Alone, lists them.

    \b
    Examples:
      stoker queues
      stoker queues pause mail
      stoker queues resume mail
    """
    if context.invoked_subcommand is None:
        queues_list(api)


@command(queues_app, "list")
def queues_list(api: Api) -> None:
    """List queues and what stands in them.

    \b
    Examples:
      stoker queues list --json
    """
    api.show_rows(api.ask(get("/queues")), "queues", _QUEUES)


_COUNTS = ("queued", "scheduled", "running", "completed", "failed", "cancelled")
_QUEUES = output.Listing(
    {
        "QUEUE": "name",
        **{count.upper(): count for count in _COUNTS},
        "PAUSED": lambda queue: "yes" if queue.get("paused") else "no",
    },
    spare=["CANCELLED", "SCHEDULED"],
)


@command(queues_app, "pause")
def queues_pause(queue: QueueName, api: Api) -> None:
    """Start nothing from a queue until it is resumed; what runs goes on, and jobs are still accepted.

    \b
    Examples:
      stoker queues pause mail
    """
    with api.connect() as transport:
        unknown = _warn_of_unknown(queue, transport)
        api.show(transport.send(post(queue_path(queue, "pause"), repeatable=True)), _print_queue)
    if unknown:
        output.note(f"  undo it with: {hints.command(f'queues resume {shlex.quote(queue)}', api.url)}")


def _warn_of_unknown(queue: str, transport: Transport) -> bool:
    """Say that nothing knows this queue: more likely a typo than a queue to come."""
    known = known_queues(transport)
    if queue in known:
        return False
    close = nearest(queue, known)
    meant = f" Did you mean {close}?" if close else ""
    output.note(
        f"warning: there is no queue {queue} yet: no job is in it and no worker names it.{meant} "
        "It is paused all the same."
    )
    return True


@command(queues_app, "resume")
def queues_resume(queue: QueueName, api: Api) -> None:
    """Start jobs of a paused queue again.

    \b
    Examples:
      stoker queues resume mail
    """
    api.show(api.ask(post(queue_path(queue, "resume"), repeatable=True)), _print_queue)


def _print_queue(queue: dict[str, Any]) -> None:
    state = "paused" if queue.get("paused") else "not paused"
    counts = f"{queue.get('queued', 0)} queued, {queue.get('running', 0)} running"
    print(f"{output.plain(queue['queue'])}  {state}, {counts}")
