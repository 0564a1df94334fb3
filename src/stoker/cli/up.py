"""The whole system from one command: a coordinator in this process, workers as processes of their own."""

import asyncio
import contextlib
import os
import subprocess
import sys
from typing import Final

import structlog
import uvloop

from stoker import log as logs
from stoker.cli.serve import CANNOT_START, CannotStart, Running, running
from stoker.cli.signals import on_signals
from stoker.cli.worker import PARENT
from stoker.settings import Settings

RESTART_SECONDS: Final = 1.0

log = structlog.get_logger()


def run(settings: Settings) -> int:
    """`stoker up`: until it is told to stop; the exit code."""
    job_log = logs.configure(settings.log_level, settings.log_format)
    try:
        uvloop.run(_up(settings, job_log))
    except CannotStart as error:
        print(f"error: {error}", file=sys.stderr)
        return CANNOT_START
    return 0


async def _up(settings: Settings, job_log: logs.JobLog) -> None:
    async with running(settings, job_log) as server:
        crew = Crew(settings, server.url)
        leaving = asyncio.Event()
        on_signals(leaving.set, crew.kill)
        keeping = asyncio.create_task(crew.keep())
        print(banner(settings, server), flush=True)
        stopped = asyncio.create_task(server.stopped.wait())
        left = asyncio.create_task(leaving.wait())
        await asyncio.wait({stopped, left}, return_when=asyncio.FIRST_COMPLETED)
        log.info("shutting_down")
        keeping.cancel()
        # The workers first, while there is still somebody to take their last reports.
        await crew.leave()
        for task in (keeping, stopped, left):
            task.cancel()
        await asyncio.gather(keeping, stopped, left, return_exceptions=True)
        server.stop()


class Crew:
    """The workers of this system, replaced when one dies."""

    def __init__(self, settings: Settings, url: str) -> None:
        self._settings = settings
        self._url = url
        self._processes: list[subprocess.Popen[bytes]] = []
        for number in range(1, settings.workers + 1):
            self._processes.append(self._start(number))

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        settings = self._settings
        argv = [sys.executable, "-m", "stoker", "worker", "--url", self._url, "--name", f"worker-{number}"]
        argv += ["--threads", str(settings.worker_threads)]
        argv += ["--log-level", settings.log_level, "--log-format", settings.log_format]
        if settings.app is not None:
            argv += ["--app", settings.app]
        environ = {**os.environ, PARENT: str(os.getpid())}
        if settings.token is not None:
            environ["STOKER_TOKEN"] = settings.token
        # A group of its own, so that Ctrl-C reaches this process alone and the workers are told in order.
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=environ, process_group=0)

    async def keep(self) -> None:
        """Start a new worker where one died."""
        while True:
            await asyncio.sleep(RESTART_SECONDS)
            for place, process in enumerate(self._processes):
                if process.poll() is not None:
                    log.error("worker_died", worker=f"worker-{place + 1}", exit_code=process.returncode)
                    self._processes[place] = self._start(place + 1)

    async def leave(self) -> None:
        """Ask all to drain, and wait for them."""
        for process in self._processes:
            with contextlib.suppress(OSError):
                process.terminate()
        limit = self._settings.shutdown_grace_sec + self._settings.cancel_grace_sec + 10
        waiting = [asyncio.to_thread(process.wait) for process in self._processes]
        try:
            async with asyncio.timeout(limit):
                await asyncio.gather(*waiting)
        except TimeoutError:
            self.kill()

    def kill(self) -> None:
        for process in self._processes:
            with contextlib.suppress(OSError):
                process.kill()


def banner(settings: Settings, server: Running) -> str:
    """What a person wants to know now: where to look, and what to type."""
    url = server.url
    auth = ' -H "Authorization: Bearer $STOKER_TOKEN"' if settings.token else ""
    return f"""
  Stoker is up: {settings.workers} workers with {settings.worker_threads} threads each, data in {settings.database_path}

    Dashboard   {url}/dashboard

  Try:
    curl -X POST {url}/jobs{auth} -H 'Content-Type: application/json' -d '{{"payload": "hello"}}'
    stoker submit sleep '{{"seconds": 2}}' --wait
    stoker jobs

  Stop with Ctrl-C.
"""
