"""A worker's connection by bytes: reports are read no faster than they are stored, and a sender that fails hangs up."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from stoker.coordinator import connection as module
from stoker.coordinator.connection import STORING_BYTES, Connection
from stoker.coordinator.sessions import Sessions
from stoker.wire import codec, frames
from stoker.wire.frames import PROTOCOL, Assign, Done, Frame, Hello, Reports
from tests.support.clock import START_US
from tests.support.turns import until


class Wire:
    """A socket: what comes in is put here, what goes out is kept. Sending waits for `open`."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.sent: list[Any] = []
        self.closed: list[int] = []
        self.open = asyncio.Event()
        self.open.set()
        self.read = 0

    def put(self, frame: Frame) -> None:
        self.incoming.put_nowait(codec.encode(frame))

    async def receive(self) -> bytes | None:
        data = await self.incoming.get()
        self.read += 1
        return data

    def send_now(self, data: bytes | str) -> bool:
        if not self.open.is_set():
            return False
        self.sent.append(codec.decode_to_worker(data))
        return True

    async def send(self, data: bytes | str) -> None:
        await self.open.wait()
        self.sent.append(codec.decode_to_worker(data))

    async def close(self, code: int, reason: str) -> None:
        self.closed.append(code)
        self.incoming.put_nowait(None)


class Books:
    """A store and a sink of reports that take their time."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.storing = 0
        self.peak = 0
        self.woken = 0

    def now_us(self) -> int:
        return START_US

    async def open_session(self, session: Any) -> str:
        return "live"

    async def keep(self, types: Any, schemas: Any) -> None:
        pass

    async def declare(self, app: Any, version: Any, schedules: Any) -> None:
        pass

    async def held(self, session_id: str) -> list[Any]:
        return []

    def wake(self) -> None:
        self.woken += 1

    def release(self, session: Any, reports: list[Any]) -> list[None]:
        return [None] * len(reports)

    def release_done(self, session: Any, done: Done) -> list[None]:
        return [None] * len(done.ids)

    async def settled(self, ids: Any) -> None:
        pass

    async def take_done(self, session: Any, done: Done, held: Any) -> list[Any]:
        self.storing += sum(map(len, done.results))
        self.peak = max(self.peak, self.storing)
        await self.gate.wait()
        self.storing -= sum(map(len, done.results))
        return []


class Served:
    def __init__(self) -> None:
        self.wire, self.books, self.sessions = Wire(), Books(), Sessions()
        stand_in: Any = self.books
        self.connection = Connection(
            self.wire,
            store=stand_in,
            sessions=self.sessions,
            sink=stand_in,
            output=stand_in,
            announced=stand_in,
            schedules=stand_in,
            heartbeat_timeout_sec=10,
            max_result_bytes=1024 * 1024,
        )
        self.task = asyncio.create_task(self.connection.run())
        self.wire.put(Hello(PROTOCOL, "w1", "n", 4, ["echo"], batches=True))

    async def ready(self) -> Any:
        await until(lambda: len(self.wire.sent) == 1)
        session = self.sessions.get("w1")
        assert session is not None
        return session

    async def end(self) -> None:
        self.wire.incoming.put_nowait(None)
        await self.task


def a_report(number: int, size: int) -> Reports:
    return Reports(number, [], Done([f"j{number}"], [1], [b"x" * size], [0], [0], [None], [None]))


async def test_reports_are_read_no_faster_than_they_are_stored() -> None:
    served = Served()
    await served.ready()
    served.books.gate.clear()
    for number in range(1, 41):
        served.wire.put(a_report(number, 1024 * 1024))
    await until(lambda: served.books.storing >= STORING_BYTES)
    for _ in range(50):
        await asyncio.sleep(0)
    assert served.wire.read == 1 + 4, "hello, and as many as make more than the bound"
    served.books.gate.set()
    await until(lambda: len(served.wire.sent) == 1 + 40)
    assert served.books.peak <= STORING_BYTES + 1024 * 1024
    assert [frame.number for frame in served.wire.sent[1:]] == list(range(1, 41))
    await served.end()


async def test_a_connection_that_had_much_to_carry_asks_for_more_when_it_was_written() -> None:
    served = Served()
    session = await served.ready()
    served.wire.open.clear()
    woken = served.books.woken
    for number in (1, 2):
        session.send_assign(Assign([], number, []), 3 * 1024 * 1024)
    assert session.view().unsent_bytes == 6 * 1024 * 1024
    served.wire.open.set()
    await until(lambda: session.view().unsent_bytes == 0)
    assert served.books.woken == woken + 2
    session.send_assign(Assign([], 3, []), 1_000)
    await until(lambda: session.view().unsent_bytes == 0)
    assert served.books.woken == woken + 2, "small frames wake nothing"
    await served.end()


async def test_a_frame_for_which_there_is_no_memory_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = Served()
    session = await served.ready()

    def encode(frame: Frame) -> bytes:
        raise MemoryError

    monkeypatch.setattr(module, "codec", SimpleNamespace(encode=encode, BadFrame=codec.BadFrame))
    session.send(frames.Drain())
    await served.task
    assert served.wire.closed == [module.CLOSE_UNSTORED]
    assert served.sessions.get("w1") is None
