"""A simulated network: connections deliver messages in order, and promise nothing else.

A connection is two pipes. A message arrives later, in order, unless the pipe is blocked (it arrives when the block ends, as
TCP sends again), or a middlebox forgot the connection (it never arrives and neither end is told), or the connection was
reset. After one side closes, messages on the way still arrive, perhaps after frames of a newer connection.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from websockets.exceptions import ConnectionClosedError

from stoker.testing.loop import Process, SimLoop

CAPACITY = 16 * 1024
"""Bytes that may be on the way. A sender waits for room beyond that, as for the buffers of a kernel."""
FIN = object()
RESET = object()


class Weather:
    """The state of the simulated network: the simulation changes it, and every pipe reads it."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.low, self.high = 0.0002, 0.004
        self.spike = 0.0
        """The chance that a message is late by up to a second."""
        self.double = 0.0
        """The chance that a message arrives twice."""
        self.blocked: set[tuple[str, str]] = set()
        """Pairs (from, to) of hosts between which nothing arrives for now."""
        self.pipes: list[Pipe] = []

    def latency(self, random: Random) -> float:
        late = random.random() < self.spike
        return random.uniform(self.low, self.high) + (random.uniform(0.05, 1.0) if late else 0.0)

    def is_blocked(self, source: str, target: str) -> bool:
        return (source, target) in self.blocked

    def block(self, source: str, target: str) -> None:
        self.blocked.add((source, target))

    def unblock(self, source: str, target: str) -> None:
        self.blocked.discard((source, target))
        for pipe in list(self.pipes):
            if (pipe.source, pipe.target) == (source, target):
                pipe.flush()


class Pipe:
    """One direction of a connection."""

    def __init__(self, weather: Weather, random: Random, source: str, target: str) -> None:
        self._weather = weather
        self._random = random
        self.source = source
        self.target = target
        self.lost = False
        self.on_the_way = 0
        self.room = asyncio.Event()
        self.hold_until = 0.0
        self._held: deque[Any] = deque()
        self._last = 0.0
        self.deliver: Callable[[Any], None] = lambda _: None
        self.receiver: Process | None = None
        weather.pipes.append(self)

    def send(self, item: Any) -> None:
        if self.lost:
            return
        self.on_the_way += _size(item)
        if self._held or self._weather.is_blocked(self.source, self.target):
            self._held.append(item)
        else:
            self._schedule(item)

    def flush(self) -> None:
        """Send what waited for the end of a block."""
        while self._held and not self._weather.is_blocked(self.source, self.target):
            self._schedule(self._held.popleft())

    def _schedule(self, item: Any) -> None:
        loop = self._weather.loop
        at = max(self._last, loop.time() + self._weather.latency(self._random), self.hold_until)
        self._last = at
        assert self.receiver is not None  # noqa: S101 - the other end was made with this one
        self.receiver.call_at(at, self._arrive, item)
        if self._weather.double and item not in (FIN, RESET) and self._random.random() < self._weather.double:
            self.receiver.call_at(at, self._arrive, item)

    def _arrive(self, item: Any) -> None:
        self.on_the_way -= _size(item)
        self.room.set()
        if not self.lost:
            self.deliver(item)

    @property
    def full(self) -> bool:
        return self.on_the_way > CAPACITY and not self.lost

    async def wait_for_room(self) -> None:
        self.room.clear()
        await self.room.wait()

    def lose(self) -> None:
        """Drop everything that is on the way, and everything sent from now on."""
        self.lost = True
        self._held.clear()
        self.room.set()


def _size(item: Any) -> int:
    return 0 if item is FIN or item is RESET else len(item)


class ConnectionEnd:
    """One end of a connection, as the process that holds it sees it."""

    def __init__(self, process: Process, out: Pipe, into: Pipe, *, strict: bool) -> None:
        self.process = process
        self.strict = strict
        """Whether sending on a closed connection raises, as in a worker's WebSocket library; in ASGI it does nothing."""
        self._out = out
        self.closed = False
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()
        into.receiver = process
        into.deliver = self._take
        self._into = into

    def _take(self, item: Any) -> None:
        if self.closed:
            return
        if item is RESET:
            self.closed = True
            self._out.room.set()
            # A reset discards what had arrived and was not read.
            while not self._inbox.empty():
                self._inbox.get_nowait()
        self._inbox.put_nowait(item)

    def break_now(self) -> None:
        """Reset this end of the connection; the other end may not notice."""
        if not self.closed:
            self.process.call_later(0.0, self._take, RESET)

    def close_now(self) -> None:
        if not self.closed:
            self.closed = True
            self._out.room.set()
            self._out.send(FIN)
            self._inbox.put_nowait(FIN)

    # The methods that a coordinator uses (`stoker.coordinator.connection.Socket`).

    async def receive(self) -> bytes | str | None:
        item = await self._inbox.get()
        if item is FIN or item is RESET:
            self.closed = True
            self._out.room.set()
            self._inbox.put_nowait(item)
            return None
        data: bytes | str = item
        return data

    async def send(self, data: bytes | str) -> None:
        while self._out.full and not self.closed:
            await self._out.wait_for_room()
        if not self.closed:
            self._out.send(data)
        elif self.strict:
            raise ConnectionClosedError(None, None)

    def send_now(self, data: bytes | str) -> bool:
        if self.closed or self._out.full:
            return False
        self._out.send(data)
        return True

    async def close(self, code: int = 1000, reason: str = "") -> None:
        self.close_now()

    # The methods that a worker uses (`websockets.asyncio.client.ClientConnection`).

    @property
    def transport(self) -> "ConnectionEnd":
        return self

    def abort(self) -> None:
        self._out.send(RESET)
        self.break_now()

    def send_soon(self, data: bytes) -> None:
        if not self.closed:
            self._out.send(data)

    async def recv(self) -> bytes | str:
        data = await self.receive()
        if data is None:
            raise ConnectionClosedError(None, None)
        return data

    def __aiter__(self) -> "ConnectionEnd":
        return self

    async def __anext__(self) -> bytes | str:
        return await self.recv()


class NetConnection:
    """Both ends and both pipes of a connection, for tests that break it."""

    def __init__(self, weather: Weather, random: Random, name: str, worker: Process, server: Process) -> None:
        hosts = host(worker), host(server)
        self.name = name
        self.up = Pipe(weather, random, *hosts)
        self.down = Pipe(weather, random, hosts[1], hosts[0])
        self.worker = ConnectionEnd(worker, self.up, self.down, strict=True)
        self.server = ConnectionEnd(server, self.down, self.up, strict=False)

    @property
    def open(self) -> bool:
        return not (self.worker.closed and self.server.closed) and not self.forgotten

    @property
    def forgotten(self) -> bool:
        return self.up.lost and self.down.lost

    def reset(self) -> None:
        """Reset both ends at once, and drop what is on the way."""
        self.forget()
        self.worker.break_now()
        self.server.break_now()

    def forget(self) -> None:
        """Lose the connection as if a middlebox forgot it: nothing arrives any more, and neither end is told."""
        self.up.lose()
        self.down.lose()

    def hold(self, side: str, seconds: float) -> None:
        """Delay everything that this side sends within the next `seconds` until they have passed."""
        self._of(side)[1].hold_until = self.worker.process.now + seconds

    def leave_half_open(self, side: str) -> None:
        """Break the connection for this side only. The other side still receives what is on the way, and then its end."""
        end, pipe = self._of(side)
        pipe.send(FIN)
        end.break_now()

    def _of(self, side: str) -> tuple[ConnectionEnd, Pipe]:
        return (self.worker, self.up) if side == "worker" else (self.server, self.down)

    def worker_died(self) -> None:
        self.up.send(RESET)

    def server_died(self) -> None:
        self.down.send(RESET)


def host(process: Process) -> str:
    """Return the host of a process: `w1` for `w1#3`."""
    return process.name.partition("#")[0]
