"""One coordinator process: store, loops and API wired together and served until a signal says stop."""

import asyncio
import contextlib
import gc
import ipaddress
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import structlog
import uvicorn

from stoker import __version__, tracing
from stoker.api.app import App, create_app
from stoker.api.server.http_guard import GuardedProtocol
from stoker.api.server.websocket_protocol import WorkerProtocol
from stoker.cli import descriptors, hints, output
from stoker.cli.exits import Exit
from stoker.cli.signals import on_signals
from stoker.cli.storage import opened
from stoker.clock import SystemClock
from stoker.coordinator.assembly import Coordinator
from stoker.domain.errors import StoreUnavailable, StoreUnreachable
from stoker.logs import log as logs
from stoker.settings import Settings, masked
from stoker.system import SYSTEM
from stoker.wire.frames import MAX_FRAME_BYTES

BACKLOG = 2048
CANNOT_START = Exit.ERROR

log = structlog.get_logger()


class CannotStart(Exception):
    """The process cannot serve; the message says why and what to do."""

    def __init__(self, message: str, exit: int = CANNOT_START) -> None:
        super().__init__(message)
        self.exit = exit


class Server(uvicorn.Server):
    """uvicorn without its own signal handlers: this process has children to think of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(settings: Settings) -> int:
    """`stoker serve`: a coordinator until it is told to stop; the exit code."""
    job_log = logs.configure(settings.log_level, settings.log_format)
    try:
        SYSTEM.run(_serve(settings, job_log))
    except CannotStart as error:
        output.say(hints.named(f"error: {error}"), sys.stderr)
        return error.exit
    return 0


async def _serve(settings: Settings, job_log: logs.JobLog) -> None:
    async with running(settings, job_log) as server:
        on_signals(lambda: _stop(server))
        await server.stopped.wait()


class Running:
    """A coordinator that serves; `leave` prepares its end, `stop` ends it, `stopped` tells when."""

    def __init__(self, server: Server, coordinator: Coordinator, url: str) -> None:
        self._server = server
        self._coordinator = coordinator
        self.url = url
        self.stopped = asyncio.Event()

    def leave(self) -> None:
        """Accept no more jobs; everything else goes on until `stop`."""
        self._coordinator.leave()

    def stop(self) -> None:
        self.leave()
        self._server.should_exit = True
        self.stopped.set()


def _stop(server: Running) -> None:
    log.info("shutting_down")
    server.stop()


@contextlib.asynccontextmanager
async def running(settings: Settings, job_log: logs.JobLog) -> AsyncIterator[Running]:
    """A coordinator that listens. On leaving: no new requests, those under way are answered, the store is closed."""
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_exit(_stopped)
        stack.callback(job_log.close)
        try:
            connections = descriptors.connections()
        except descriptors.TooFew as error:
            raise CannotStart(str(error)) from error
        listener = listen(settings)
        stack.callback(listener.close)
        try:
            storage = await stack.enter_async_context(opened(settings))
        except StoreUnavailable as error:
            code = Exit.UNREACHABLE if isinstance(error, StoreUnreachable) else Exit.ERROR
            raise CannotStart(f"{error}; the address of the database is {_source(settings)}", code) from error
        tracer = tracing.from_environment(os.environ, __version__)
        if tracer is not None:
            # Sending the last spans waits for another machine, so not on the loop.
            stack.push_async_callback(asyncio.to_thread, tracer.close)
        coordinator = Coordinator(
            settings,
            storage.store,
            SystemClock(),
            job_log,
            storage.logs,
            bus=storage.bus,
            cache=storage.cache,
            tracer=tracer,
            version=__version__,
        )
        try:
            await coordinator.prepare()
        except StoreUnavailable as error:
            raise CannotStart(str(error)) from error
        app = create_app(coordinator)
        stack.push_async_callback(app.close)
        server = Server(_config(app, connections))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            coordinator.start()
            handle = Running(server, coordinator, url_of(settings.host, listener.getsockname()[1]))
            serving.add_done_callback(lambda _: handle.stopped.set())
            # Everything that lives as long as the process is out of the collector's way from here on.
            gc.collect()
            gc.freeze()
            gc.set_threshold(50_000, 20, 50)
            log.info(
                "coordinator_started",
                url=handle.url,
                database=masked(settings.database_url),
                database_from=settings.sources.get("database_url", "the default"),
                redis=None if settings.redis_url is None else masked(settings.redis_url),
            )
            yield handle
        finally:
            server.should_exit = True
            await coordinator.stop()
            await serving


async def _stopped(_: object, error: BaseException | None, __: object) -> None:
    if not isinstance(error, CannotStart):  # nothing ran, so there is nothing to say of its end
        log.info("coordinator_stopped")


def _source(settings: Settings) -> str:
    source = settings.sources.get("database_url")
    return "the default" if source is None else f"from {source}"


def _config(app: App, connections: int) -> uvicorn.Config:
    options: dict[str, Any] = {
        "loop": "none",  # it runs on ours
        "http": type("LimitedProtocol", (GuardedProtocol,), {"max_connections": connections}),
        "ws": WorkerProtocol,
        "ws_max_size": MAX_FRAME_BYTES,
        "ws_per_message_deflate": False,
        "ws_ping_interval": None,  # the workers' own heartbeats do this
        "lifespan": "off",
        "proxy_headers": False,  # a client is its token, else the address that really connected
        "access_log": False,
        "log_config": None,
        "server_header": False,
        "date_header": True,
        "timeout_graceful_shutdown": 5,
        "backlog": BACKLOG,
    }
    return uvicorn.Config(app, **options)


def listen(settings: Settings) -> socket.socket:
    """Return the listening socket, bound before anything else is opened: a taken port is the commonest mistake."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    SYSTEM.prepare_listener(listener)
    try:
        listener.bind((settings.host, settings.api_port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise CannotStart(
            f"cannot listen on {settings.host}:{settings.api_port} ({error.strerror}); "
            "stop what uses it, or choose another port with --port or API_PORT"
        ) from error
    listener.setblocking(False)
    return listener


def url_of(host: str, port: int) -> str:
    """Return the address under which a process on this machine reaches the API."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"http://{host}:{port}"
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    return f"http://{address}:{port}" if address.version == 4 else f"http://[{address}]:{port}"
