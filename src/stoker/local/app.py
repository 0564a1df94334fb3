"""The app that `Stoker.local()` makes: a `Stoker` that runs its own jobs while its block is open."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from stoker.client.app import Stoker
from stoker.client.errors import StokerError
from stoker.client.transport import Transport
from stoker.local.worker import LocalWorker
from stoker.settings import SettingsError
from stoker.system import SYSTEM

if TYPE_CHECKING:
    from stoker.client.task import Task

NOT_WINDOWS = (
    "Stoker.local() runs on Linux and macOS, and in WSL; on Windows start `stoker serve` and run the worker in WSL or a "
    "container (docs/portability.md)"
)


class LocalStoker(Stoker):
    """A `Stoker` with a coordinator and a worker of its own, from `start` to `close`; `with` does both.

    A task or a schedule that is defined again under its name replaces the earlier one, as when a cell is run again.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        threads: int | None = None,
        settings: Mapping[str, Any] | None = None,
        token: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(token=token, **options)
        self._path = None if path is None else Path(path)
        self._threads = SYSTEM.available_cpus() if threads is None else threads
        self._settings = dict(settings or {})
        self._worker: LocalWorker | None = None
        self._owner = 0
        self._changing = threading.Lock()

    @property
    def url(self) -> str:
        """The address of the API while it runs; the dashboard is at `/dashboard`."""
        return self._running().url

    @property
    def folder(self) -> Path:
        """Where the jobs are kept while it runs."""
        return self._running().folder

    @cached_property
    def transport(self) -> Transport:
        return Transport(self.url, self._token)

    def _running(self) -> LocalWorker:
        if self._worker is None:
            raise StokerError(
                "this local Stoker is not running; use it inside its block: with Stoker.local() as app: ... "
                "(in a notebook: app = Stoker.local().start(), and app.close() at the end)"
            )
        return self._worker

    # ── the block ──────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> Self:
        """Start coordinator and worker, for notebooks, where a block cannot span cells. End them with `close`; the end of
        this process does it too."""
        if SYSTEM.worker_problem is not None:
            raise StokerError(NOT_WINDOWS)
        with self._changing:
            if self._worker is not None:
                raise StokerError("this local Stoker runs already")
            try:
                worker = LocalWorker(
                    self, self._path, self._settings, threads=self._threads, token=self._token
                )
            except SettingsError as error:
                raise StokerError(f"Stoker.local(): {error}") from None
            worker.start()
            self._worker, self._owner = worker, os.getpid()
            atexit.register(self.close)
        return self

    def close(self) -> None:
        """End the worker and the coordinator, and remove the data unless it has a `path`. What still runs is handed back."""
        if os.getpid() != self._owner:
            return  # a forked copy: the worker belongs to the parent process
        with self._changing:
            worker, self._worker = self._worker, None
            if worker is None:
                return
            atexit.unregister(self.close)
            transport = self.__dict__.pop("transport", None)
            if transport is not None:
                transport.close()
            worker.stop()

    async def aclose(self) -> None:
        """End what `start` began, without blocking the event loop."""
        transport = self.__dict__.get("transport")
        if transport is not None:
            await transport.aclose()
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        return self.start()

    async def __aenter__(self) -> Self:
        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait({starting})
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # ── tasks ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _changed(self) -> None:
        worker = self._worker
        if worker is not None:
            worker.renew()

    def _check_free(self, task: Task[..., Any]) -> None:
        """Allow it: the new task replaces the old."""

    def _check_undeclared(self, schedule: str) -> None:
        """Allow it: the new schedule replaces the old."""
