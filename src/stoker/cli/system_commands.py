"""Commands that show the system: workers, job types, statistics."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from stoker.cli import completion, output
from stoker.cli.job_page import seconds
from stoker.cli.option_groups import command, group
from stoker.cli.options import Api
from stoker.client.requests import get, post, worker_path

workers_app = typer.Typer(rich_markup_mode=None)


@group(workers_app)
def workers(context: typer.Context, api: Api) -> None:
    """Workers. Alone, lists them.

    \b
    Examples:
      stoker workers
      stoker workers drain 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
    """
    if context.invoked_subcommand is None:
        workers_list(api)


@command(workers_app, "list")
def workers_list(api: Api) -> None:
    """List workers.

    \b
    Examples:
      stoker workers list --json
    """
    api.show_rows(api.ask(get("/workers")), "workers", _WORKERS)


_WORKERS = output.Listing(
    {
        "NAME": "name",
        "ID": "id",
        "STATUS": "status",
        "THREADS": lambda worker: f"{worker.get('threads_used')}/{worker.get('threads')}",
        "QUEUES": lambda worker: ",".join(worker.get("queues") or []) or "all",
        "LABELS": lambda worker: ",".join(f"{k}={v}" for k, v in (worker.get("labels") or {}).items()),
        "LAST SEEN": lambda worker: output.age(worker.get("last_heartbeat_at")),
    },
    spare=["LABELS", "QUEUES"],
)


@command(workers_app, "drain")
def workers_drain(
    worker_id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="The worker's id, a part of it from 8 characters on, or its name.",
            autocompletion=completion.workers,
        ),
    ],
    api: Api,
) -> None:
    """Let a worker finish what it runs, and give it nothing new.

    \b
    Examples:
      stoker workers drain 019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11
    """
    answer = api.ask(post(worker_path(worker_id, "drain")))
    drained = f"{output.plain(answer.get('id', worker_id))}  {output.plain(answer.get('name'))}  draining"
    api.show(answer, lambda _: print(drained))


def types(api: Api) -> None:
    """List job types: what can be submitted, who serves it, and what it takes.

    \b
    Examples:
      stoker types
      stoker types --json | jq '.types[] | select(.type == "resize_image").schema'
    """
    api.show_rows(api.ask(get("/types")), "types", _TYPES)


_TYPES = output.Listing(
    {
        "TYPE": "type",
        "WORKERS": "workers",
        "MEDIAN RUN": lambda found: seconds(found.get("run_p50_sec")),
        "TAKES": lambda found: ", ".join((found.get("schema") or {}).get("properties") or []),
        "DESCRIPTION": lambda found: (found.get("description") or "").partition("\n")[0],
    },
    spare=["MEDIAN RUN", "WORKERS"],
)


def stats(api: Api) -> None:
    """Show the state of the system in a few numbers.

    \b
    Examples:
      stoker stats
      watch stoker stats
    """
    api.show(api.ask(get("/stats")), lambda answer: output.print_facts(_stats(answer)))


def _stats(answer: dict[str, Any]) -> dict[str, object]:
    """Return the numbers as people read them: shares, times with their units, one line for each thing."""
    rate, pending = answer.get("success_rate"), answer.get("pending_thread_seconds")
    told = {
        "uptime_sec",
        "uptime_seconds",
        "success_rate_pct",
        "pending_thread_seconds",
        "jobs_by_status",
        "autoscaler",
    }
    return {
        **{name: value for name, value in answer.items() if name not in told},
        "success_rate": None if rate is None else f"{rate:.1%}",
        "pending_thread_time": None if pending is None else output.duration(pending),
        "uptime": output.span(answer.get("uptime_sec") or 0),
        **{f"jobs {status}": count for status, count in (answer.get("jobs_by_status") or {}).items()},
        **_autoscaler(answer.get("autoscaler")),
    }


def _autoscaler(state: dict[str, Any] | None) -> dict[str, object]:
    if state is None:
        return {}
    decision = state["decision"]
    change = f"{decision['action']}, {decision['workers']} workers"
    if decision["wanted"] != decision["workers"]:
        change = f"{decision['action']}, from {decision['workers']} to {decision['wanted']} workers"
    return {
        "autoscaler": f"{state['mode']}, {state['min_workers']} to {state['max_workers']} workers",
        "autoscaler says": f"{change}: {decision['reason']}",
    }
