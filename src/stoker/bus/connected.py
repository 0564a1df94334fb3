"""A bus over a connection to a server: what the buses over PostgreSQL and Redis have in common.

One task lives as long as the bus. It opens a connection, and when that is lost, for any reason, it opens another, with
growing pauses. While connected it sends notifications: the first after a silence at once, later ones every few milliseconds,
those that gathered meanwhile together.

A connection can fail silently: the server vanished, or a pooler does not pass notifications on. Both servers echo a client's
own messages, so the bus sends itself an empty message on connecting and every few seconds after. A connection without echo
counts as lost.
"""

import asyncio
import contextlib
import random
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from stoker.bus.base import JobsWaiting, Notification, Receive
from stoker.bus.outbox import Outbox, pack, unpack

GATHER_SECONDS: Final = 0.005
CHECK_SECONDS: Final = 5.0
FIRST_PAUSE_SECONDS: Final = 0.05
MAX_PAUSE_SECONDS: Final = 1.0
CLOSE_SECONDS: Final = 0.5

Hear = Callable[[bytes | str], None]

log = structlog.get_logger()


class BusConnection(Protocol):
    """One connection, or a pair of them. One task sends on it and another one listens."""

    async def send(self, messages: Sequence[bytes]) -> None:
        """Send messages, or raise."""
        ...

    async def listen(self) -> None:
        """Receive until the connection is lost, then raise."""
        ...

    async def close(self) -> None: ...


class ConnectedBus(ABC):
    """The base class of buses; a subclass opens the connection and names its limits."""

    name: str
    max_bytes: int
    answer_seconds: float
    """How long opening, sending and the echo may each take before the connection counts as lost."""
    check_seconds: float = CHECK_SECONDS

    def __init__(self) -> None:
        self._sender = uuid.uuid4().hex
        self._outbox = Outbox()
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._echo = asyncio.Event()
        self._receive: Receive = _drop
        self._task: asyncio.Task[None] | None = None
        self._connected = False

    @abstractmethod
    async def _open(self, hear: Hear) -> BusConnection:
        """Open a connection and subscribe: `hear` is called with each message. May be cancelled at any point."""

    @property
    def connected(self) -> bool:
        return self._connected

    @property
    def dropped(self) -> int:
        """Return how many notifications were dropped, because too many waited or one was too long."""
        return self._outbox.dropped

    def start(self, receive: Receive) -> None:
        if self._task is not None:
            raise RuntimeError("this bus was started before")
        self._receive = receive
        self._task = asyncio.create_task(self._run(), name=f"stoker-bus-{self.name}")

    def publish(self, notification: Notification) -> None:
        self._outbox.add(notification)
        self._idle.clear()
        self._wanted.set()

    async def close(self) -> None:
        if self._task is None or self._task.done():
            return
        if self._connected:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._idle.wait()
        self._task.cancel()
        await asyncio.wait([self._task])
        self._connected = False

    # ── one connection after another ───────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        told = False
        while True:
            reason = await self._until_lost()
            if self._connected or not told:
                log.warning("bus_lost", over=self.name, detail=reason)
                told = True
            if self._connected:
                pause = FIRST_PAUSE_SECONDS
            self._connected = False
            await asyncio.sleep(pause * random.uniform(0.7, 1.3))
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def _until_lost(self) -> str:
        """Open a connection, use it until it is lost, and return why it was."""
        try:
            async with asyncio.timeout(self.answer_seconds):
                connection = await self._open(self._hear)
        except Exception as error:  # noqa: BLE001 - after any error the bus connects again
            return _reason(error)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(connection.listen())
                tasks.create_task(self._talk(connection))
        except Exception as error:  # noqa: BLE001 - as above
            return _reason(error)
        finally:
            with contextlib.suppress(Exception):
                await connection.close()
        return "closed"

    async def _talk(self, connection: BusConnection) -> None:
        await self._await_echo(connection)
        self._connected = True
        log.info("bus_connected", over=self.name)
        self._deliver([JobsWaiting()])
        self._idle_if_empty()
        loop = asyncio.get_running_loop()
        next_check = loop.time() + self.check_seconds
        while True:
            if loop.time() >= next_check:
                await self._await_echo(connection)
                next_check = loop.time() + self.check_seconds
            if await self._notified_before(next_check):
                await self._send(connection)
                await asyncio.sleep(GATHER_SECONDS)

    async def _notified_before(self, moment: float) -> bool:
        try:
            async with asyncio.timeout_at(moment):
                await self._wanted.wait()
        except TimeoutError:
            return False
        return True

    async def _send(self, connection: BusConnection) -> None:
        self._wanted.clear()
        messages = self._outbox.take_messages(self._sender, self.max_bytes)
        async with asyncio.timeout(self.answer_seconds):
            await connection.send(messages)
        self._idle_if_empty()

    def _idle_if_empty(self) -> None:
        if not self._outbox:
            self._idle.set()

    async def _await_echo(self, connection: BusConnection) -> None:
        self._echo.clear()
        nothing, _ = pack(self._sender, [], self.max_bytes)
        try:
            async with asyncio.timeout(self.answer_seconds):
                await connection.send(nothing)
                await self._echo.wait()
        except TimeoutError as error:
            raise TimeoutError(f"no echo within {self.answer_seconds} s") from error

    # ── what comes in ──────────────────────────────────────────────────────────────────────────────────────────────

    def _hear(self, message: bytes | str) -> None:
        packet = unpack(message)
        if packet is None or packet.unreadable:
            log.warning("notification_unreadable", over=self.name, bytes=len(message))
        if packet is None:
            return
        if packet.sender == self._sender:
            self._echo.set()
        elif packet.notifications:
            self._deliver(packet.notifications)

    def _deliver(self, notifications: Sequence[Notification]) -> None:
        try:
            self._receive(notifications)
        except Exception:
            log.exception("notifications_not_handled", over=self.name)


def _drop(_: Sequence[Notification]) -> None:
    """Drop the notifications: the receiver of a bus that was not started."""


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
