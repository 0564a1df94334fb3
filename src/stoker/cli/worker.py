"""One worker process."""

import asyncio
import os
import signal
import sys

import structlog

from stoker import __version__
from stoker import log as logs
from stoker.cli.signals import on_signals
from stoker.executors.child import die_with_parent
from stoker.ids import new_id
from stoker.settings import Settings
from stoker.worker.connection import Dialer, NotAllowed
from stoker.worker.supervisor import StartFailed, Supervisor

PARENT = "STOKER_UP_PID"
"""Set by `stoker up`: its workers leave, gracefully, when it is killed."""

log = structlog.get_logger()


def run(settings: Settings) -> int:
    """`stoker worker`: until it is told to leave; the exit code."""
    logs.configure(settings.log_level, settings.log_format)
    parent = os.environ.pop(PARENT, None)
    if parent is not None:
        die_with_parent(int(parent), signal.SIGTERM)
    try:
        asyncio.run(_work(settings))
    except (NotAllowed, StartFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


async def _work(settings: Settings) -> None:
    supervisor = Supervisor(
        settings, Dialer(settings.coordinator_urls, settings.token), new_id=new_id, version=__version__
    )
    on_signals(supervisor.drain)
    await supervisor.run()
