"""Bulk operations from the command line: `--where`, and following them."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any
from urllib.parse import quote

import typer

from stoker.cli import hints, output
from stoker.cli.exits import Exit
from stoker.cli.option_groups import command, group
from stoker.cli.options import Api, priority_of
from stoker.client.requests import get, post
from stoker.client.transport import Transport

bulk_app = typer.Typer(rich_markup_mode=None)

POLL_SECONDS = 0.2
_CHANGED = {
    "cancel": ["queued", "scheduled", "blocked", "running"],
    "retry": ["failed", "cancelled"],
}
"""The statuses of jobs that an action changes."""

_METADATA = "metadata."

Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="FILTER",
        help="All jobs that match: 'status=queued type=echo created_before=2h'; the names are those of GET /jobs.",
    ),
]
BulkId = Annotated[
    str,
    typer.Argument(metavar="ID", help="The id of a bulk operation, or a part of it from 8 characters on."),
]


def parse_where(text: str) -> dict[str, Any]:
    """Parse `key=value` words into the filter of a request; the server knows which keys there are."""
    try:
        words = [word.partition("=") for word in shlex.split(text)]
    except ValueError as error:
        raise typer.BadParameter(f"cannot be read: {error}", param_hint="--where") from None
    if not words or any(not key or not equals for key, equals, _ in words):
        raise typer.BadParameter(
            "say what must match, such as 'status=queued type=echo'", param_hint="--where"
        )
    given = {key: value for key, _, value in words}
    if len(given) < len(words):
        raise typer.BadParameter("names something twice", param_hint="--where")
    described = {
        key.removeprefix(_METADATA): value for key, value in given.items() if key.startswith(_METADATA)
    }
    plain: dict[str, Any] = {
        key: priority_of(value) if key == "priority" else value
        for key, value in given.items()
        if not key.startswith(_METADATA)
    }
    return plain | {"metadata": described} if described else plain


def run_bulk(action: str, where: str, yes: bool, api: Api) -> None:
    """Start an operation and follow it to its end. Ctrl-C ends the following, not the operation."""
    wanted = parse_where(where)
    with api.connect(patient=True) as transport:
        if sys.stdin.isatty() and not yes:
            typer.confirm(
                f"{action.capitalize()} {_matching(transport, action, wanted)} where {where}?", abort=True
            )
        bulk = transport.send(post("/bulk", {"action": action, "filter": wanted}))
        try:
            with _progress(action, bulk) as tell:
                bulk = _followed(transport, bulk, tell)
        except KeyboardInterrupt:
            stop = hints.command(f"bulk stop {bulk['id']}", api.url)
            output.note(f"it goes on without you; stop it with: {stop}")
            raise typer.Exit(Exit.FORCED) from None
    api.show(bulk, _print_changed)


def _print_changed(bulk: dict[str, Any]) -> None:
    print(f"{bulk['id']}  {bulk['status']}: {bulk['changed']} of {bulk['done']} changed")


def _matching(transport: Transport, action: str, wanted: dict[str, Any]) -> str:
    """Return in words how many jobs it would change: those that match, in a status that the action is for."""
    asked = dict(wanted)
    if "q" not in asked:
        given = str(asked["status"]).split(",") if asked.get("status") else _CHANGED[action]
        status = [name for name in given if name in _CHANGED[action]]
        if not status:
            return counted(0, "job")
        asked["status"] = ",".join(status)
    page = transport.send(get("/jobs", limit=1, summary="1", **as_parameters(asked)))
    return counted(page["total"], "job", page.get("total_capped", False))


def as_parameters(wanted: dict[str, Any]) -> dict[str, Any]:
    """Return a filter as the parameters of `GET /jobs`."""
    described = {f"{_METADATA}{key}": value for key, value in wanted.get("metadata", {}).items()}
    return {key: value for key, value in wanted.items() if key != "metadata"} | described


def counted(number: int, what: str, at_least: bool = False) -> str:
    """`1 job`, `1,200 jobs`, `more than 10,000 jobs`."""
    more = "more than " if at_least else ""
    return f"{more}{number:,} {what}" + ("" if number == 1 and not at_least else "s")


def _followed(
    transport: Transport, bulk: dict[str, Any], tell: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    while bulk["status"] == "running":
        time.sleep(POLL_SECONDS)
        bulk = transport.send(get(f"/bulk/{bulk['id']}"))
        tell(bulk)
    return bulk


@contextmanager
def _progress(action: str, bulk: dict[str, Any]) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Show a progress bar if stderr is a terminal. Yields a function that updates it."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(action, total=bulk["total"])
        yield lambda now: bar.update(task, completed=now["done"], total=max(now["total"], now["done"]))


@group(bulk_app)
def bulk(context: typer.Context, api: Api) -> None:
    """Bulk operations: what is being done, or was done, to many jobs at once. Alone, lists the latest.

    \b
    Examples:
      stoker bulk
      stoker bulk stop 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
    """
    if context.invoked_subcommand is None:
        api.show_rows(api.ask(get("/bulk")), "bulk", _OPERATIONS)


_OPERATIONS = output.Listing(
    {
        "ID": "id",
        "ACTION": "action",
        "FILTER": lambda row: " ".join(f"{key}={value}" for key, value in row["filter"].items()),
        "STATUS": "status",
        "DONE": "done",
        "TOTAL": lambda row: f"{row['total']}{'+' if row['total_capped'] else ''}",
        "CHANGED": "changed",
        "STARTED": lambda row: output.age(row["created_at"]),
    },
    spare=["STARTED", "CHANGED", "TOTAL"],
)


@command(bulk_app, "stop")
def bulk_stop(bulk_id: BulkId, api: Api) -> None:
    """Stop a bulk operation; what it has done stays done.

    \b
    Examples:
      stoker bulk stop 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
    """
    api.show(api.ask(post(f"/bulk/{quote(bulk_id, safe='')}/stop", repeatable=True)), _print_changed)
