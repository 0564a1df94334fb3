"""What the peers' scripts share: `python -m bench.peers.NAME install|produce|consume ORDER`, the order being JSON.

`install` makes the tables. `produce` submits and writes a `Produced` to stdout; connections are open before the clock
starts, and each producer submits its next job or batch when the last one is stored. `consume` works until it is told to
end, and says so on stdout when it is ready.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Protocol

import msgspec
import uvloop

READY: Final = "ready"

JOB: Final = "echo"
"""The name of the job, which does nothing."""


class Produce(msgspec.Struct, frozen=True):
    url: str
    jobs: int
    producers: int
    connections: int
    batch: int = 1
    """Jobs in each call; with 1, the call for a single job is used."""
    gap_seconds: float = 0.0
    """To wait before each call."""


class Produced(msgspec.Struct, frozen=True):
    """Times are of the wall clock, which the database's time stamps share."""

    started_ns: int
    ended_ns: int
    submitted_ns: Sequence[int]
    """When each call began."""


class Consume(msgspec.Struct, frozen=True):
    url: str
    connections: int
    at_once: int
    """Jobs fetched or run at the same time, as the peer understands it."""
    starts: str = ""
    """A file to note in, line by line, which job started when. Empty: none is kept."""


Submit = Callable[[range], Awaitable[object]]
"""Stores one job for each number; returns when they are committed."""
Started = Callable[[int], None]
"""Told the number of each job that starts."""


class Peer(Protocol):
    async def install(self, url: str) -> None:
        """Make the tables in an empty database, tuned as the peer's own guide recommends."""

    def producer(self, order: Produce) -> AbstractAsyncContextManager[Submit]:
        """Open connections, and give what submits over them."""

    async def consume(self, order: Consume, started: Started, ready: Callable[[], None]) -> None:
        """Work until SIGTERM; call `ready` once jobs will be noticed."""


def main(peer: Peer) -> None:
    command, order = sys.argv[1], sys.argv[2].encode()
    if command == "install":
        uvloop.run(peer.install(msgspec.json.decode(order, type=str)))
    elif command == "produce":
        produced = uvloop.run(_produce(peer, msgspec.json.decode(order, type=Produce)))
        sys.stdout.buffer.write(msgspec.json.encode(produced))
    elif command == "consume":
        consume = msgspec.json.decode(order, type=Consume)
        uvloop.run(peer.consume(consume, _noter(consume.starts), _say_ready))
    else:
        sys.exit(f"unknown command {command!r}: install, produce or consume")


async def _produce(peer: Peer, order: Produce) -> Produced:
    work = _slices(order)
    submitted: list[int] = []
    async with peer.producer(order) as submit:
        started_ns = time.time_ns()
        async with asyncio.TaskGroup() as group:
            for _ in range(order.producers):
                group.create_task(_submit_all(submit, work, submitted, order.gap_seconds))
        ended_ns = time.time_ns()
    return Produced(started_ns, ended_ns, submitted)


def _slices(order: Produce) -> Iterator[range]:
    for first in range(0, order.jobs, order.batch):
        yield range(first, min(first + order.batch, order.jobs))


async def _submit_all(submit: Submit, work: Iterator[range], submitted: list[int], gap: float) -> None:
    for numbers in work:
        if gap:
            await asyncio.sleep(gap)
        submitted.append(time.time_ns())
        await submit(numbers)


def _noter(path: str) -> Started:
    if not path:
        return lambda number: None
    file = Path(path).open("w", buffering=1)  # noqa: SIM115 - open as long as the process

    def note(number: int) -> None:
        file.write(f"{number} {time.time_ns()}\n")

    return note


def _say_ready() -> None:
    print(READY, flush=True)
