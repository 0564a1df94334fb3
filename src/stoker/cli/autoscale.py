"""`stoker autoscale`: an autoscaler in a process of its own, beside any coordinator."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from stoker.cli import output
from stoker.cli.options import Token, Url
from stoker.cli.run_commands import App, LogOptions, Threads, loaded
from stoker.settings import Settings, SettingsError
from stoker.system import SYSTEM

if TYPE_CHECKING:
    from stoker.autoscale.loop import Autoscaler
    from stoker.autoscale.providers.base import Provider
    from stoker.autoscale.providers.process import ProcessProvider

PREFIX = "auto"
"""Names of the workers it starts as processes: `auto-1` and so on."""


@dataclass(frozen=True)
class ScaleOptions:
    """Which coordinator is watched, and how many workers there may be. Fields are named as the settings."""

    autoscale: Annotated[
        str | None,
        typer.Option(
            "--mode",
            help="recommend, process or docker. "
            "[env: STOKER_AUTOSCALE; docker with WORKER_IMAGE, else recommend]",
        ),
    ] = None
    api_url: Url = None
    min_workers: Annotated[
        int | None, typer.Option("--min", help="Never fewer workers. [env: MIN_WORKERS; 1]")
    ] = None
    max_workers: Annotated[
        int | None, typer.Option("--max", help="Never more workers. [env: MAX_WORKERS; 4]")
    ] = None
    scale_by: Annotated[
        str | None, typer.Option("--by", help="depth or demand. [env: STOKER_SCALE_BY; depth]")
    ] = None


def autoscale(
    options: ScaleOptions,
    keep: Annotated[
        bool, typer.Option("--keep", help="Docker: leave the workers running at the end, for a successor.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Print what it would do now, and leave; nothing is changed.")
    ] = False,
    threads: Threads = None,
    app: App = None,
    token: Token = None,
    *,
    logs: LogOptions,
) -> None:
    """Add workers when the queue grows and drain them when it stays short, or only say so.

    \b
    Examples:
      stoker autoscale --once
      stoker autoscale --mode process --min 1 --max 8 --app tasks:app
      WORKER_IMAGE=stoker-worker:latest stoker autoscale --mode docker
    """
    settings = loaded(**vars(options), worker_threads=threads, app=app, token=token, **vars(logs))
    _check(settings)
    raise typer.Exit(_print_once(settings) if once else run(settings, keep=keep))


def mode_of(settings: Settings) -> str:
    """Return the mode, with `auto` resolved."""
    if settings.autoscale != "auto":
        return settings.autoscale
    return "recommend" if settings.worker_image is None else "docker"


def _check(settings: Settings) -> None:
    mode = mode_of(settings)
    if mode == "off":
        raise SettingsError(["STOKER_AUTOSCALE=off: there is nothing to do for `stoker autoscale`"])
    if mode == "docker" and settings.worker_image is None:
        raise SettingsError(["WORKER_IMAGE is not set: it names the image that workers are started from"])


def run(settings: Settings, *, keep: bool) -> int:
    """Until it is told to stop; the exit code."""
    import asyncio

    from stoker.autoscale.providers.base import ProviderError
    from stoker.cli.worker import start_problems
    from stoker.logs import log as logs

    logs.configure(settings.log_level, settings.log_format)
    problems = start_problems(settings) if mode_of(settings) == "process" else []
    for problem in problems:
        output.say(f"error: {problem}", sys.stderr)
    if problems:
        return 1
    try:
        asyncio.run(_run(settings, keep=keep))
    except ProviderError as error:
        output.say(f"error: {error}", sys.stderr)
        return 1
    return 0


async def _run(settings: Settings, *, keep: bool) -> None:
    import asyncio

    from stoker.cli.signals import on_signals

    provider = _provider(settings, keep=keep)
    scaler = make(settings, settings.api_url, provider)
    leaving = asyncio.Event()
    on_signals(leaving.set)
    loop = asyncio.create_task(scaler.run())
    left = asyncio.create_task(leaving.wait())
    try:
        done, _ = await asyncio.wait({loop, left}, return_when=asyncio.FIRST_COMPLETED)
        if loop in done:
            loop.result()
    finally:
        for task in (loop, left):
            task.cancel()
        await asyncio.gather(loop, left, return_exceptions=True)
        if provider is not None:
            await provider.close()


def make(settings: Settings, url: str, provider: Provider | None, *, acts: bool = True) -> Autoscaler:
    """An autoscaler for the coordinator at `url`."""
    from stoker.autoscale.coordinator_api import CoordinatorApi
    from stoker.autoscale.loop import Autoscaler, rules_of
    from stoker.client.transport import Transport
    from stoker.clock import SystemClock

    api = CoordinatorApi(Transport(url, settings.token, pauses=()))
    return Autoscaler(
        rules_of(settings),
        api,
        provider,
        SystemClock(),
        worker_threads=settings.worker_threads,
        acts=acts,
    )


def _provider(settings: Settings, *, keep: bool) -> Provider | None:
    match mode_of(settings):
        case "process":
            return processes(settings, settings.coordinator_urls, PREFIX)
        case "docker":
            return _docker(settings, keep=keep)
    return None


def processes(
    settings: Settings, urls: tuple[str, ...], prefix: str, sizes: Mapping[str, int] | None = None
) -> ProcessProvider:
    """Workers as children of this process, which leave when it dies."""
    from stoker.autoscale.providers.process import ProcessProvider, worker_argv
    from stoker.cli.worker import PARENT

    parent, lifeline = SYSTEM.lifeline()
    environ = {**os.environ, PARENT: parent}
    if settings.token is not None:
        environ["STOKER_TOKEN"] = settings.token
    leave_seconds = settings.shutdown_grace_sec + settings.cancel_grace_sec + 10
    argv = worker_argv(settings, urls, sizes)
    return ProcessProvider(argv, environ, prefix=prefix, leave_seconds=leave_seconds, lifeline=lifeline)


def _docker(settings: Settings, *, keep: bool) -> Provider:
    from stoker.autoscale.providers.base import ProviderError

    try:
        import aiodocker

        from stoker.autoscale.providers.docker import DockerProvider
    except ImportError as error:
        raise ProviderError(
            f"the Docker provider is not installed ({error}): pip install 'stoker[docker]'"
        ) from error
    try:
        engine = aiodocker.Docker()
    except (ValueError, AssertionError) as error:  # the second is how it says that it found no socket
        why = str(error) or "there is no socket of one on this machine"
        raise ProviderError(
            f"no Docker engine: {why}; start one, set DOCKER_HOST or mount its socket, or choose another --mode"
        ) from error
    return DockerProvider(settings, engine, keep=keep)


def _print_once(settings: Settings) -> int:
    """Print one recommendation and change nothing."""
    import asyncio

    from stoker.autoscale.coordinator_api import CoordinatorApi
    from stoker.autoscale.fleet import all_workers
    from stoker.autoscale.loop import rules_of
    from stoker.client.transport import Transport
    from stoker.domain.scaling import History, decide

    async def look() -> None:
        api = CoordinatorApi(Transport(settings.api_url, settings.token, pauses=()))
        try:
            load = all_workers(await api.look(), settings.worker_threads).load
        finally:
            await api.close()
        # As if the load had been so all the time: a command that runs once cannot wait for a stable queue.
        decision, _ = decide(load, History(low_since=float("-inf")), rules_of(settings), 0.0)
        output.print_facts(
            {
                "action": decision.action,
                "workers": decision.workers,
                "wanted": decision.wanted,
                "reason": decision.reason,
            }
        )

    asyncio.run(look())
    return 0
