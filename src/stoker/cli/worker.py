"""One worker process."""

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import structlog
from msgspec.structs import replace

from stoker import __version__
from stoker.access import Access
from stoker.cli import output
from stoker.cli.signals import on_signals
from stoker.executors.app_check import import_error
from stoker.executors.native_binary import find_runner
from stoker.executors.runner_contract import PLAIN, RunnerContract, read_types, type_names
from stoker.ids import new_id
from stoker.logs import log as logs
from stoker.settings import Settings, without_secrets
from stoker.system import SYSTEM
from stoker.worker import descriptors
from stoker.worker.connection import Dialer, NotAllowed
from stoker.worker.machine import ThisMachine
from stoker.worker.supervisor import StartFailed, Supervisor

PARENT = "STOKER_UP_PID"
"""Set by `stoker up`: its workers leave, gracefully, when it is killed."""

RELOADER = "STOKER_RELOAD_PID"
"""The same, set by `stoker worker --reload`."""

TOLD_BY_UP = frozenset({"connected", "draining"})
"""What the coordinator of `stoker up` says itself, on the same terminal."""

TYPES_SECONDS = 10

log = structlog.get_logger()


def run(settings: Settings) -> int:
    """`stoker worker`: until it is told to leave; the exit code."""
    if SYSTEM.worker_problem is not None:
        output.say(f"error: {SYSTEM.worker_problem}", sys.stderr)
        return 1
    parent = os.environ.pop(PARENT, None)
    logs.configure(settings.log_level, settings.log_format, quiet=TOLD_BY_UP if parent else frozenset())
    reloader = os.environ.pop(RELOADER, None)
    for lifeline in filter(None, (parent, reloader)):
        SYSTEM.end_with_parent(lifeline, signal.SIGTERM)
    try:
        SYSTEM.run(_work(settings))
    except (NotAllowed, StartFailed) as error:
        output.say(f"error: {error}", sys.stderr)
        return 1
    return 0


def start_problems(settings: Settings) -> list[str]:
    """Return the reasons for which every worker with these settings would fail to start."""
    if SYSTEM.worker_problem is not None:
        return [SYSTEM.worker_problem]
    problems = []
    try:
        runner_contract(settings.execution_binary)
    except StartFailed as error:
        problems.append(str(error))
    given = Access(settings.coordinator_urls[0], settings.token)
    why = None if settings.app is None else import_error(settings.app, given)
    if why is not None:
        problems.append(f"the app {settings.app} cannot be imported: {why}")
    return problems


def native_types(binary: Path | None) -> list[str]:
    """Return the types that our own runner has; none where it does not start, and Python stands in for it."""
    if binary is None:
        return []
    try:
        told = _ask_for_types(str(binary))
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        log.warning("runner_types_unknown", runner=str(binary), detail=str(error))
        return []
    return list(type_names(told.splitlines()))


def runner_contract(binary: str | None) -> RunnerContract | None:
    """Return how to call a runner of the operator's. One that gives no answer to `--types`, or another one than a runner
    that knows Stoker, is called by the plain contract.

    Raises `StartFailed` for one that cannot be started at all: every job would die of it.
    """
    if binary is None:
        return None
    try:
        return read_types(_ask_for_types(binary))
    except (subprocess.SubprocessError, UnicodeDecodeError):
        return PLAIN
    except OSError as error:
        raise StartFailed(f"EXECUTION_BINARY={binary} cannot be started: {error.strerror or error}") from None


def _ask_for_types(binary: str) -> str:
    told = subprocess.run(
        [binary, "--types"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TYPES_SECONDS,
        check=True,
        text=True,
        env=without_secrets(os.environ),
    )
    return told.stdout


def _within_limits(settings: Settings, *, kinds: int) -> Settings:
    """Return the settings with as many threads as there are file descriptors for."""
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
    runner = runner_contract(settings.execution_binary)
    supervisor = Supervisor(
        settings,
        Dialer(settings.coordinator_urls, settings.token),
        ThisMachine(settings, native, runner),
        new_id=new_id,
        version=__version__,
        native_types=native_types(native),
        runner=runner,
    )
    on_signals(supervisor.drain)
    # Everything that lives as long as the process is out of the collector's way from here on.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    await supervisor.run()
