"""The load: so many requests over so many keep-alive connections, as fast as they are answered.

A process of its own, so that it takes nothing from the interpreter that it measures: `python -m bench.generator` reads
a `Load` as JSON from stdin and writes a `Loaded` to stdout. Requests are built and connections opened before the clock
starts. Each connection sends its next request when the last one is answered in full; there is no pipelining.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import cast

import msgspec
import uvloop

from bench.http import ResponseReader, request_bytes


class Load(msgspec.Struct, frozen=True):
    port: int
    requests: int
    connections: int
    path: str = "/jobs"
    batch: int = 0
    """Jobs in each request to `/jobs/batch`; 0 for one bare job."""
    type: str = "echo"
    timeout_seconds: float = 120.0
    more_ports: tuple[int, ...] = ()
    """Other coordinators of the same system: the connections are spread over all of them."""
    first: int = 0
    """The number of the first job, for a load that follows others on the same system."""


class Loaded(msgspec.Struct, frozen=True):
    """Times are of the monotonic clock, which all processes of a machine share."""

    started_ns: int
    ended_ns: int
    statuses: dict[int, int]

    @property
    def seconds(self) -> float:
        return (self.ended_ns - self.started_ns) / 1e9

    @property
    def accepted(self) -> int:
        """Requests that were answered with a 2xx."""
        return sum(number for status, number in self.statuses.items() if 200 <= status < 300)


def requests_of(load: Load) -> list[bytes]:
    """All requests of a load. Every job has a payload of its own, so that a mix-up of results cannot hide."""
    size = load.batch or 1
    bodies = (_body(load, load.first + number * size) for number in range(load.requests))
    return [request_bytes("POST", load.path, body) for body in bodies]


def _body(load: Load, first: int) -> bytes:
    jobs = [{"type": load.type, "payload": {"n": first + place}} for place in range(load.batch or 1)]
    return msgspec.json.encode({"jobs": jobs} if load.batch else jobs[0])


class Run:
    """The state that all connections share."""

    def __init__(self, load: Load) -> None:
        self._requests: Iterator[bytes] = iter(requests_of(load))
        self._left = load.requests
        self._statuses: Counter[int] = Counter()
        self._ended_ns = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def next(self) -> bytes | None:
        return next(self._requests, None)

    def answered(self, status: int) -> None:
        self._statuses[status] += 1
        self._left -= 1
        if self._left == 0 and not self.done.done():
            self._ended_ns = time.monotonic_ns()
            self.done.set_result(None)

    def broke(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def result(self, started_ns: int) -> Loaded:
        return Loaded(started_ns, self._ended_ns, dict(self._statuses))


class Connection(asyncio.Protocol):
    def __init__(self, run: Run) -> None:
        self._run = run
        self._reader = ResponseReader()
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # By name, not by isinstance: uvloop's transports are of no class of asyncio's.
        self._transport = cast(asyncio.WriteTransport, transport)

    def send_next(self) -> None:
        request = self._run.next()
        if request is not None and self._transport is not None:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        try:
            status = self._reader.feed(data)
        except Exception as error:  # noqa: BLE001 - the loop would swallow it; the run must not
            self._run.broke(error)
            return
        if status is not None:
            self._run.answered(status)
            self.send_next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._run.broke(exc or ConnectionError("the server closed a connection"))


async def run(load: Load) -> Loaded:
    loop = asyncio.get_running_loop()
    state = Run(load)
    connections: list[Connection] = []
    ports = (load.port, *load.more_ports)
    for place in range(load.connections):
        port = ports[place % len(ports)]
        _, connection = await loop.create_connection(lambda: Connection(state), "127.0.0.1", port)
        connections.append(connection)
    started_ns = time.monotonic_ns()
    for connection in connections:
        connection.send_next()
    async with asyncio.timeout(load.timeout_seconds):
        await state.done
    return state.result(started_ns)


def main() -> None:
    load = msgspec.json.decode(sys.stdin.buffer.read(), type=Load)
    loaded = uvloop.run(run(load))
    sys.stdout.buffer.write(msgspec.json.encode(loaded))


if __name__ == "__main__":
    main()
