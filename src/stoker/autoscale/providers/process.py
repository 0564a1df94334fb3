"""Workers as processes of this machine, children of this one: they leave, gracefully, when it dies."""

import asyncio
import contextlib
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from stoker.autoscale.coordinator_api import WorkerRow
from stoker.autoscale.providers.base import Own, ProviderError
from stoker.settings import Settings

KILL_AFTER_ASKED: Final = 10
"""A process is asked to end this many times, about once a second, and then killed."""
SOON_SECONDS: Final = 10.0
"""A worker that ends by itself within this time of its start died of how it was started, and so will the next."""
REST_MAX_SECONDS: Final = 60.0

log = structlog.get_logger()

Argv = Callable[[str], Sequence[str]]
"""The command line of a worker of this name."""


def worker_argv(settings: Settings, urls: Sequence[str], sizes: Mapping[str, int] | None = None) -> Argv:
    """Workers for these coordinators, with the settings of this process; the rest is in the environment. `sizes` are the
    threads of workers that have a number of their own, by name."""

    def argv(name: str) -> list[str]:
        words = [sys.executable, "-m", "stoker", "worker", "--name", name]
        for url in urls:
            words += ["--url", url]
        words += ["--threads", str((sizes or {}).get(name, settings.worker_threads))]
        words += ["--log-level", settings.log_level, "--log-format", settings.log_format]
        if settings.app is not None:
            words += ["--app", settings.app]
        return words

    return argv


class Rest:
    """The pause in starting workers after one died at once: a second, and twice as long each time it happens again.

    The next pause is a second again once a worker that was started after the last pause has lived for `SOON_SECONDS`.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._until = float("-inf")

    def left(self, now: float) -> float:
        return max(0.0, self._until - now)

    def died(self, started_at: float, now: float) -> None:
        """Begin a pause if the worker died soon after its start. Deaths during a pause do not prolong it."""
        if now - started_at < SOON_SECONDS and now >= self._until:
            self._seconds = min(REST_MAX_SECONDS, max(1.0, 2 * self._seconds))
            self._until = now + self._seconds

    def lives(self, started_at: float, now: float) -> None:
        if started_at >= self._until and now - started_at >= SOON_SECONDS:
            self._seconds = 0.0


class ProcessProvider:
    """Starts `PREFIX-1`, `PREFIX-2` and so on; the number of one that ended is used again."""

    mode = "process"

    def __init__(
        self,
        argv: Argv,
        environ: Mapping[str, str],
        *,
        prefix: str,
        leave_seconds: float,
        lifeline: Sequence[int] = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._argv = argv
        self._environ = dict(environ)
        self._prefix = prefix
        self._leave_seconds = leave_seconds
        self._lifeline = tuple(lifeline)
        self._pattern = re.compile(rf"{re.escape(prefix)}-[0-9]+")
        self._host = socket.gethostname()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._started_at: dict[str, float] = {}
        self._asked: dict[str, int] = {}
        self._leaving: list[subprocess.Popen[bytes]] = []
        """Those that were asked to drain because others took their place and their name."""
        self._now = now
        self._rest = Rest()

    @property
    def rest_seconds(self) -> float:
        """Return for how many seconds no process is started, because the last ones died at once."""
        return self._rest.left(self._now())

    def owns(self, row: WorkerRow) -> bool:
        return row.host == self._host and self._pattern.fullmatch(row.name) is not None

    async def running(self) -> list[Own]:
        self._reap()
        return [Own(name, process.pid) for name, process in self._processes.items()]

    def _reap(self) -> None:
        now = self._now()
        self._leaving = [process for process in self._leaving if process.poll() is None]
        for name, process in list(self._processes.items()):
            code = process.poll()
            if code is None:
                self._rest.lives(self._started_at[name], now)
                continue
            del self._processes[name]
            self._asked.pop(name, None)
            started_at = self._started_at.pop(name)
            if code != 0:
                self._rest.died(started_at, now)
                again_in = round(self.rest_seconds, 1)
                log.error("worker_died", worker=name, exit_code=code, next_start_seconds=again_in)

    async def start(self, count: int) -> list[str]:
        rest = self.rest_seconds
        if count > 0 and rest > 0:
            raise ProviderError(f"the last workers died at once; the next are started in {rest:.0f} s")
        names = []
        for _ in range(count):
            name = self._free_name()
            self._processes[name] = self._spawn(name)
            self._started_at[name] = self._now()
            names.append(name)
        return names

    async def renew(self, count: int) -> list[str]:
        """Ask all to drain and start `count` others, even if the last ones died at once: the new ones have other code."""
        self._reap()
        for name in list(self._processes):
            process = self._processes.pop(name)
            self._started_at.pop(name)
            self._asked.pop(name, None)
            with contextlib.suppress(OSError):
                process.terminate()
            self._leaving.append(process)
        self._rest = Rest()
        return await self.start(count)

    def _free_name(self) -> str:
        number = 1
        while f"{self._prefix}-{number}" in self._processes:
            number += 1
        return f"{self._prefix}-{number}"

    def _spawn(self, name: str) -> subprocess.Popen[bytes]:
        try:
            # A group of its own, so that Ctrl-C reaches the parent alone and the workers are told in order.
            return subprocess.Popen(
                self._argv(name),
                stdin=subprocess.DEVNULL,
                env=self._environ,
                pass_fds=self._lifeline,
                process_group=0,
            )
        except OSError as error:
            raise ProviderError(f"cannot start a worker process: {error}") from error

    async def end(self, name: str) -> None:
        process = self._processes.get(name)
        if process is None:
            return
        times = self._asked[name] = self._asked.get(name, 0) + 1
        with contextlib.suppress(OSError):
            if times > KILL_AFTER_ASKED:
                process.kill()
            else:
                process.terminate()

    async def close(self) -> None:
        """Ask all to drain, and wait for them; after `leave_seconds` they are killed."""
        for process in self._processes.values():
            with contextlib.suppress(OSError):
                process.terminate()
        waiting = [asyncio.to_thread(process.wait) for process in self._all()]
        try:
            async with asyncio.timeout(self._leave_seconds):
                await asyncio.gather(*waiting)
        except TimeoutError:
            self.kill()

    def _all(self) -> list[subprocess.Popen[bytes]]:
        return [*self._processes.values(), *self._leaving]

    def kill(self) -> None:
        for process in self._all():
            with contextlib.suppress(OSError):
                process.kill()
