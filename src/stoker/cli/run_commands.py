"""Commands that start something: the whole system, a coordinator, a worker.

They turn options into settings, say what is wrong with them, and hand over. What they start is imported only
then, so that `stoker jobs` does not pay for a web server.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from stoker.cli import output
from stoker.cli.options import commands, pairs
from stoker.settings import Settings, load

Host = Annotated[
    str | None, typer.Option("--host", help="Address to listen on. [env: STOKER_HOST; 127.0.0.1]")
]
Port = Annotated[int | None, typer.Option("--port", help="Port to listen on. [env: API_PORT; 8080]")]
Threads = Annotated[
    int | None, typer.Option("--threads", help="Threads of each worker. [env: STOKER_WORKER_THREADS; CPUs]")
]
Database = Annotated[
    str | None,
    typer.Option(
        "--database", metavar="URL", help="Where jobs are kept. [env: DATABASE_URL; .stoker/stoker.db]"
    ),
]
App = Annotated[
    str | None,
    typer.Option(
        "--app", metavar="MODULE:NAME", help="The Stoker object whose tasks are run. [env: STOKER_APP]"
    ),
]
Reload = Annotated[
    bool,
    typer.Option("--reload", help="Replace the workers when the app's source changes; for development."),
]


@dataclass(frozen=True)
class LogOptions:
    """How a process logs. The fields of this class and of the next ones are named as the settings."""

    log_level: Annotated[
        str | None,
        typer.Option("--log-level", help="debug, info, warning or error. [env: STOKER_LOG_LEVEL; info]"),
    ] = None
    log_format: Annotated[
        str | None, typer.Option("--log-format", help="auto, json or text. [env: STOKER_LOG_FORMAT; auto]")
    ] = None


@dataclass(frozen=True)
class SystemOptions:
    """What `stoker up` starts."""

    host: Host = None
    api_port: Port = None
    workers: Annotated[
        int | None, typer.Option("--workers", help="Workers to start. [env: STOKER_WORKERS; 2]")
    ] = None
    autoscale: Annotated[
        str | None,
        typer.Option(
            "--autoscale",
            metavar="MODE",
            help="off, recommend, or process: add workers up to MAX_WORKERS as needed. "
            "[env: STOKER_AUTOSCALE; recommend]",
        ),
    ] = None
    worker_threads: Threads = None
    database_url: Database = None
    app: App = None


def up(options: SystemOptions, reload: Reload = False, *, logs: LogOptions) -> None:
    """Start the whole system here: coordinator, API and workers.

    \b
    Examples:
      stoker up
      stoker up --workers 4 --threads 2 --app tasks:app
      stoker up --app tasks:app --reload
      stoker up --workers 1 --autoscale process
      stoker up --port 9000 --database sqlite:////var/lib/stoker/jobs.db
    """
    settings = loaded(**vars(options), **vars(logs))
    _say_what_is_not_needed(settings)
    from stoker.cli.up import run

    raise typer.Exit(run(settings, reload=reload))


def serve(host: Host = None, port: Port = None, database: Database = None, *, logs: LogOptions) -> None:
    """Start a coordinator with its API, and no workers.

    \b
    Examples:
      stoker serve --port 9000
      STOKER_TOKEN=... stoker serve --host 0.0.0.0
    """
    settings = loaded(host=host, api_port=port, database_url=database, **vars(logs))
    from stoker.cli.serve import run

    raise typer.Exit(run(settings))


@dataclass(frozen=True)
class WorkerOptions:
    """Where a worker gets its jobs, and which it takes."""

    worker_urls: Annotated[
        list[str] | None,
        typer.Option(
            "--url", metavar="URL", help="A coordinator; repeatable. [env: STOKER_WORKER_URLS, API_URL]"
        ),
    ] = None
    worker_threads: Threads = None
    worker_name: Annotated[
        str | None, typer.Option("--name", help="Name to show. [env: STOKER_WORKER_NAME]")
    ] = None
    worker_queues: Annotated[
        str | None,
        typer.Option("--queues", metavar="A,B", help="Queues to serve. [env: STOKER_WORKER_QUEUES; all]"),
    ] = None
    worker_labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="A label; repeatable. [env: STOKER_WORKER_LABELS]"),
    ] = None
    commands: Annotated[
        list[str] | None,
        typer.Option(
            "--command",
            metavar="TYPE=ARGV",
            help="A job type that runs a command, payload on stdin; repeatable. [env: STOKER_COMMANDS]",
        ),
    ] = None
    app: App = None


def worker(
    options: WorkerOptions,
    reload: Reload = False,
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="TOKEN", help="The secret to call with. [env: STOKER_TOKEN]"),
    ] = None,
    *,
    logs: LogOptions,
) -> None:
    """Start one worker.

    \b
    Examples:
      stoker worker --app tasks:app
      stoker worker --app tasks:app --reload
      stoker worker --url http://one:8080 --url http://two:8080 --threads 8 --queues fast,bulk --label gpu=yes
    """
    parsed = {
        "worker_labels": pairs(options.worker_labels, "--label") or None,
        "commands": commands(options.commands),
    }
    settings = loaded(**{**vars(options), **parsed}, token=token, **vars(logs))
    _say_what_is_not_needed(settings)
    if reload:
        from stoker.cli.reload import run as run_reloading

        raise typer.Exit(run_reloading(settings, sys.argv))
    from stoker.cli.worker import run

    raise typer.Exit(run(settings))


def _say_what_is_not_needed(settings: Settings) -> None:
    if settings.worker_endpoint is not None:
        name = settings.sources["worker_endpoint"]
        output.note(
            f"note: {name} is not needed and not used: workers dial the coordinator and need no address"
        )


def loaded(**overrides: object) -> Settings:
    """Return the settings of the environment with these options over them, and print what they warn of."""
    settings = load(os.environ, overrides)
    for warning in settings.warnings:
        output.note(f"warning: {warning}")
    return settings
