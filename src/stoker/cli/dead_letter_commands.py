"""`stoker dlq`: dead letters, the jobs that failed for good."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from stoker.cli import output, typos
from stoker.cli.bulk_commands import counted
from stoker.cli.job_commands import show_page
from stoker.cli.job_page import one_line
from stoker.cli.option_groups import command, group
from stoker.cli.options import Api, Limit, Offset, QueueFilter, TypeFilter, Yes
from stoker.client.requests import get, post

dlq_app = typer.Typer(rich_markup_mode=None)

FingerprintFilter = Annotated[
    str | None, typer.Option("--fingerprint", help="Only what failed in this way; see stoker dlq groups.")
]


@group(dlq_app)
def dlq(context: typer.Context, api: Api) -> None:
    """Dead letters: jobs that failed for good. Alone, lists them.

    \b
    Examples:
      stoker dlq
      stoker dlq replay 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
      stoker dlq replay --type resize_image
      stoker dlq discard --queue bulk --yes
    """
    if context.invoked_subcommand is None:
        dlq_list(api=api)


@command(dlq_app, "list")
def dlq_list(
    queue: QueueFilter = None,
    type_name: TypeFilter = None,
    fingerprint: FingerprintFilter = None,
    limit: Limit = 50,
    offset: Offset = 0,
    *,
    api: Api,
) -> None:
    """List dead letters, newest first.

    \b
    Examples:
      stoker dlq list --queue bulk
    """
    request = get("/dlq", queue=queue, type=type_name, fingerprint=fingerprint, limit=limit, offset=offset)
    page = api.ask(request)
    show_page(page, _DEAD_LETTERS, api)
    if not api.as_json and not page.get("total"):
        typos.note(type_name, queue, api)


_DEAD_LETTERS = output.Listing(
    {
        "ID": "id",
        "TYPE": "type",
        "QUEUE": "queue",
        "ATTEMPTS": "attempt",
        "FAILED": lambda job: output.age(job.get("completed_at")),
        "ERROR": lambda job: one_line(job.get("error")),
    },
    spare=["QUEUE", "ATTEMPTS"],
)


@command(dlq_app, "groups")
def dlq_groups(limit: Limit = 100, *, api: Api) -> None:
    """List dead letters by how they failed: one line for all that failed alike.

    \b
    Examples:
      stoker dlq groups
      stoker dlq replay --fingerprint 5d41402abc4b2a76 --limit 1
    """
    found = api.ask(get("/dlq/groups", limit=limit))
    api.show_rows(found, "groups", _GROUPS)
    if not api.as_json:
        groups = counted(found["total_groups"], "group")
        output.note(f"{counted(found['total_jobs'], 'dead letter')} in {groups}")


_GROUPS = output.Listing(
    {
        "FINGERPRINT": "fingerprint",
        "COUNT": "count",
        "TYPE": "type",
        "LAST": lambda group: output.age(group["last_seen_at"]),
        "ERROR": lambda group: f"{group['error_type']}: {group['message']}",
        "IN": "frame",
    },
    spare=["IN"],
)


@dataclass(frozen=True)
class ChosenDeadLetters:
    """The dead letters that a command changes: by id, by a filter, or all of them."""

    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Ids of dead letters.", show_default=False)
    ] = None
    queue: QueueFilter = None
    type: TypeFilter = None
    fingerprint: FingerprintFilter = None
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="At most so many of those that match; 1 to try it out."),
    ] = None
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter.")] = False

    def filters(self) -> dict[str, str]:
        """Return the filters that are given."""
        found = {"queue": self.queue, "type": self.type, "fingerprint": self.fingerprint}
        return {name: value for name, value in found.items() if value is not None}

    def body(self) -> dict[str, Any]:
        """Return the body of the request. There is one way of choosing, so that no other job is hit by mistake."""
        filters = self.filters()
        if sum((bool(self.ids), bool(filters), self.everything)) != 1:
            raise typer.BadParameter(
                "say which: ids, or --queue, --type, --fingerprint, or --all", param_hint="ID"
            )
        if self.ids:
            return {"ids": self.ids}
        body: dict[str, Any] = {"filter": filters} if filters else {"all": True}
        return body if self.limit is None else {**body, "limit": self.limit}


@command(dlq_app, "replay")
def dlq_replay(chosen: ChosenDeadLetters, api: Api) -> None:
    """Run dead letters again, with fresh attempts: those named, those of a queue or type, or all.

    \b
    Examples:
      stoker dlq replay 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
      stoker dlq replay --queue bulk --type resize_image
      stoker dlq replay --fingerprint 5d41402abc4b2a76 --limit 1
      stoker dlq replay --all
    """
    _show_count(api.ask(post("/dlq/replay", chosen.body())), "queued again", chosen, api)


@command(dlq_app, "discard")
def dlq_discard(chosen: ChosenDeadLetters, yes: Yes = False, *, api: Api) -> None:
    """Discard dead letters: those named, those of a queue or type, or all. Asks before discarding many.

    \b
    Examples:
      stoker dlq discard 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
      stoker dlq discard --all --yes
    """
    body = chosen.body()
    if not chosen.ids and not yes:
        _confirm_discard(chosen, api)
    _show_count(api.ask(post("/dlq/discard", body)), "discarded", chosen, api)


def _confirm_discard(chosen: ChosenDeadLetters, api: Api) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("stdin is no terminal to ask on; add --yes", param_hint="--yes")
    page = api.ask(get("/dlq", limit=1, summary="1", **chosen.filters()))
    found = page["total"] if chosen.limit is None else min(page["total"], chosen.limit)
    typer.confirm(f"Discard {counted(found, 'dead letter', page.get('total_capped', False))}?", abort=True)


def _show_count(answer: dict[str, Any], done: str, chosen: ChosenDeadLetters, api: Api) -> None:
    count = int(answer["count"])
    api.show(answer, lambda _: print(f"{count} {done}"))
    if not api.as_json and count < len(set(chosen.ids or ())):
        output.note(
            "warning: the others are no dead letters" if count else "warning: none of them is a dead letter"
        )
