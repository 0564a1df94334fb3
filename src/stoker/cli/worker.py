"""One worker process."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import structlog
from msgspec.structs import replace

from stoker import __version__
from stoker import log as logs
from stoker.access import Access
from stoker.cli import output
from stoker.cli.signals import on_signals
from stoker.executors.app_check import import_error
from stoker.executors.builtin import BUILTINS
from stoker.executors.child import die_with_parent
from stoker.executors.native_binary import find_runner
from stoker.ids import new_id
from stoker.settings import Settings, without_secrets
from stoker.worker import descriptors
from stoker.worker.connection import Dialer, NotAllowed
from stoker.worker.machine import ThisMachine
from stoker.worker.supervisor import StartFailed, Supervisor

PARENT = "STOKER_UP_PID"
"""Set by `stoker up`: its workers leave, gracefully, when it is killed."""

TOLD_BY_UP = frozenset({"connected", "draining"})
"""What the coordinator of `stoker up` says itself, on the same terminal."""

TYPE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@+-]{0,127}")

log = structlog.get_logger()


def run(settings: Settings) -> int:
    """`stoker worker`: until it is told to leave; the exit code."""
    parent = os.environ.pop(PARENT, None)
    logs.configure(settings.log_level, settings.log_format, quiet=TOLD_BY_UP if parent else frozenset())
    if parent is not None:
        die_with_parent(int(parent), signal.SIGTERM)
    try:
        asyncio.run(_work(settings))
    except (NotAllowed, StartFailed) as error:
        output.say(f"error: {error}", sys.stderr)
        return 1
    return 0


def start_problems(settings: Settings) -> list[str]:
    """What every worker with these settings would die of, for those who are about to start many."""
    problems = []
    try:
        runner_types(settings.execution_binary)
    except StartFailed as error:
        problems.append(str(error))
    given = Access(settings.coordinator_urls[0], settings.token)
    why = None if settings.app is None else import_error(settings.app, given)
    if why is not None:
        problems.append(f"the app {settings.app} cannot be imported: {why}")
    return problems


def native_types(binary: Path | None) -> list[str]:
    """The types that our own runner has; none where it does not start, and Python stands in for it."""
    try:
        return [] if binary is None else _types_of(str(binary), fallback=())
    except OSError as error:
        log.warning("runner_types_unknown", runner=str(binary), detail=str(error))
        return []


def runner_types(binary: str | None) -> list[str]:
    """The types that a runner of the operator's says it knows; one that does not say is trusted with the built-in ones.

    Raises `StartFailed` for one that cannot be started at all: every job would die of it.
    """
    try:
        return [] if binary is None else _types_of(binary, fallback=BUILTINS)
    except OSError as error:
        raise StartFailed(f"EXECUTION_BINARY={binary} cannot be started: {error.strerror or error}") from None


def _types_of(binary: str, fallback: Collection[str]) -> list[str]:
    try:
        told = subprocess.run(
            [binary, "--types"],
            capture_output=True,
            timeout=10,
            check=True,
            text=True,
            env=without_secrets(os.environ),
        )
    except (subprocess.SubprocessError, UnicodeDecodeError) as error:
        log.warning("runner_types_unknown", runner=binary, detail=str(error))
        return list(fallback)
    types = [line for line in told.stdout.split() if TYPE_NAME.fullmatch(line)]
    return types or list(fallback)


def _within_limits(settings: Settings, *, kinds: int) -> Settings:
    """The settings with as many threads as there are file descriptors for."""
    threads = descriptors.secure(settings.worker_threads, kinds=kinds)
    if threads < settings.worker_threads:
        log.warning(
            "threads_reduced",
            threads=threads,
            asked=settings.worker_threads,
            detail="the limit on open files allows no more; raise it (ulimit -n) or ask for fewer threads",
        )
    return replace(settings, worker_threads=threads)


async def _work(settings: Settings) -> None:
    native = None if settings.execution_binary or settings.native_runner == "off" else find_runner()
    settings = _within_limits(
        settings, kinds=1 + bool(native) + bool(settings.commands or settings.execution_binary)
    )
    supervisor = Supervisor(
        settings,
        Dialer(settings.coordinator_urls, settings.token),
        ThisMachine(settings, native),
        new_id=new_id,
        version=__version__,
        native_types=native_types(native),
        runner_types=runner_types(settings.execution_binary),
    )
    on_signals(supervisor.drain)
    await supervisor.run()
