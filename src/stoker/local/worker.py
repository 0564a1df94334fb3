"""The worker of a local Stoker: the real supervisor on a thread of this process, with children that are threads as well.

One thread (`stoker-local`) runs the supervisor's event loop and starts the coordinator's process. `start` returns when the
coordinator listens, `stop` when both have ended.
"""

import asyncio
import errno
import logging
import os
import socket
import threading
from collections.abc import Callable, Collection, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final, cast

import structlog

from stoker import __version__, context
from stoker.executors.child import Tasks
from stoker.executors.pipe import Ready
from stoker.executors.process import Callbacks, Child
from stoker.ids import new_id
from stoker.local.children import LocalRouter, LoopChild, LoopThread, ThreadChild
from stoker.local.coordinator import LocalCoordinator
from stoker.settings import Settings, load
from stoker.worker.connection import Dialer
from stoker.worker.machine import NoGuardian
from stoker.worker.routes import Executor
from stoker.worker.supervisor import Supervisor

NAME: Final = "local"
LIFESPAN_SECONDS: Final = 5.0

logger = logging.getLogger("stoker.local")


class ThreadMachine:
    """The machine of a worker whose children are threads (`stoker.worker.machine.Machine`)."""

    cpus: list[int] = []  # noqa: RUF012 - a job cannot have a CPU of its own here

    def __init__(self, app: Any, settings: Settings, router: LocalRouter, loop_thread: LoopThread) -> None:
        self._app = app
        self._max_result = settings.max_result_bytes
        self._router = router
        self._loop_thread = loop_thread
        self.host = socket.gethostname()
        self.pid = os.getpid()

    def ready(self) -> Ready:
        """Return the types of the app as it is now."""
        return Tasks.of(self._app, NAME).ready()

    def adopt_orphans(self) -> None: ...
    def reap_orphans(self, known: Collection[int]) -> None: ...

    def guardian(self, mark: str) -> NoGuardian:
        return NoGuardian()

    def memory_kb(self, pid: int) -> int:
        """Return 0: the memory of a thread is that of the process."""
        return 0

    def child(
        self, executor: Executor, mark: str, callbacks: Callbacks, command: tuple[str, ...] | None
    ) -> Child:
        try:
            return cast(Child, self._child(executor, callbacks))
        except RuntimeError as error:  # no more threads, or the interpreter ends
            raise OSError(errno.EAGAIN, str(error)) from error

    def _child(self, executor: Executor, callbacks: Callbacks) -> LoopChild | ThreadChild:
        router, app, limit = self._router, self._app, self._max_result
        if executor == "async":
            return LoopChild(callbacks, router, self.ready, app, limit, self._loop_thread)
        return ThreadChild(callbacks, router, self.ready, app, limit)


class LocalWorker:
    """The coordinator and the worker of one `with` block, or from `start` to `close`."""

    def __init__(
        self, app: Any, path: Path | None, settings: Mapping[str, Any], *, threads: int, token: str | None
    ) -> None:
        self._app = app
        given = {"shutdown_grace_sec": 0.0, "cancel_grace_sec": 0.5, **settings}
        self._settings = load({}, {**given, "worker_name": NAME, "worker_threads": threads})
        self._coordinator = LocalCoordinator(path, {**settings, "token": token})
        self._token = token
        self._router = LocalRouter(context.connected())
        self._loop_thread = LoopThread(app, self._settings.max_result_bytes)
        self._thread = threading.Thread(target=self._run, name="stoker-local", daemon=True)
        self._listens = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._supervisor: Supervisor | None = None
        self._machine: ThreadMachine | None = None
        self._renewing = False
        self.url = ""

    @property
    def folder(self) -> Path:
        """Where the jobs are kept."""
        return self._coordinator.folder

    def start(self) -> None:
        """Start both and wait until jobs can be submitted. If it raises, nothing is left running."""
        self._thread.start()
        try:
            self._listens.wait()
        except BaseException:  # Ctrl-C
            self.stop()
            raise
        if self._error is not None:
            self._thread.join()
            raise self._error

    def stop(self) -> None:
        """Stop both and wait until they have ended. May be called again."""
        self._listens.wait()
        self._call(lambda: self._stopping.set() if self._stopping is not None else None)
        self._thread.join()

    def renew(self) -> None:
        """Announce tasks that were added or changed. Several changes in one turn of the loop are announced together."""
        self._call(self._renew_soon)

    def _call(self, call: Callable[[], object]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(call)
            except RuntimeError:
                pass  # it was closed in this moment

    def _renew_soon(self) -> None:
        if not self._renewing:
            self._renewing = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        self._renewing = False
        if self._supervisor is not None and self._machine is not None:
            self._supervisor.renew(self._machine.ready())

    # ── on its thread ──────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        quiet = QuietLogs(threading.current_thread())
        quiet.start()
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - raised where `start` waits
            self._error = error
        finally:
            quiet.stop()
            self._listens.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        context.connect(self._router)
        try:
            self.url = self._coordinator.start()
            self._loop_thread.start()
            try:
                await self._work(self._stopping)
            finally:
                self._loop_thread.stop(LIFESPAN_SECONDS)
        finally:
            if context.connected() is self._router:
                context.connect(self._router.outer)
            self._coordinator.stop()

    async def _work(self, stopping: asyncio.Event) -> None:
        self._machine = ThreadMachine(self._app, self._settings, self._router, self._loop_thread)
        dialer = Dialer((self.url,), self._token)
        supervisor = self._supervisor = Supervisor(
            self._settings, dialer, self._machine, new_id=new_id, version=__version__
        )
        working = asyncio.create_task(supervisor.run())
        stopped = asyncio.create_task(stopping.wait())
        self._listens.set()
        await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.is_set():
            logger.error("the worker of Stoker.local() ended: %s", working.exception() or "it was drained")
            await stopped
        supervisor.drain()
        await asyncio.gather(working, return_exceptions=True)


class QuietLogs:
    """From `start` to `stop`, sends the supervisor's log to the `logging` logger `stoker.local` instead of the script's own
    structlog output: info as debug, warnings and errors as they are."""

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread
        self._was_configured = structlog.is_configured()

    def start(self) -> None:
        structlog.configure(processors=[self, *structlog.get_config()["processors"]])

    def stop(self) -> None:
        processors = [one for one in structlog.get_config()["processors"] if one is not self]
        if self._was_configured or any(isinstance(one, QuietLogs) for one in processors):
            structlog.configure(processors=processors)
        else:
            structlog.reset_defaults()

    def __call__(self, _: Any, level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if threading.current_thread() is not self._thread:
            return event
        said = " ".join([str(event.get("event")), *(f"{k}={v}" for k, v in event.items() if k != "event")])
        logger.log(_LEVELS.get(level, logging.DEBUG), "%s", said)
        raise structlog.DropEvent


_LEVELS: Final = {"warning": logging.WARNING, "error": logging.ERROR, "critical": logging.CRITICAL}
