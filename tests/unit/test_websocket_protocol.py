"""The WebSocket of a worker: whole data frames go a short way, and it makes no difference to the messages."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, Protocol

from stoker.api.server.sockets import WRITE
from stoker.api.server.websocket_protocol import WorkerProtocol

LIMIT = 200_000
HANDSHAKE = (
    b"GET /workers/connect HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False
        self.paused = 0

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused += 1

    def resume_reading(self) -> None:
        self.paused -= 1


class Line:
    """A protocol with an application that accepts the handshake and keeps what it is told."""

    def __init__(self, kind: type[WebSocketsSansIOProtocol], *, read: bool = True) -> None:
        self.told: list[Any] = []
        self.read = read
        config = uvicorn.Config(
            self.app, interface="asgi3", ws_max_size=LIMIT, ws_per_message_deflate=False, log_config=None
        )
        self.protocol = kind(config, ServerState(), {}, asyncio.get_running_loop())
        self.wire = Wire()
        self.protocol.connection_made(self.wire)
        self.scope: Any = None

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.scope = scope
        await receive()
        await send({"type": "websocket.accept"})
        while self.read:
            message = await receive()
            self.told.append(message.get("bytes", message.get("text")))
            if message["type"] == "websocket.disconnect":
                self.told[-1] = message["code"]
                return
        await asyncio.Event().wait()

    async def open(self) -> None:
        self.protocol.data_received(HANDSHAKE)
        await turns()
        assert self.wire.written.startswith(b"HTTP/1.1 101")
        self.wire.written = b""

    async def hear(self, pieces: Sequence[bytes]) -> list[Any]:
        for piece in pieces:
            self.protocol.data_received(piece)
            await turns()
        return self.told

    def stop(self) -> None:
        for task in list(self.protocol.tasks):
            task.cancel()


async def turns() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


def frame(opcode: Opcode, data: bytes, *, fin: bool = True, mask: bool = True) -> bytes:
    return bytes(Frame(opcode, data, fin).serialize(mask=mask))


async def heard(
    kind: type[WebSocketsSansIOProtocol], pieces: Sequence[bytes]
) -> tuple[list[Any], bytes, bool]:
    line = Line(kind)
    await line.open()
    told = await line.hear(pieces)
    line.stop()
    return told, line.wire.written, line.wire.closed


MESSAGES = st.one_of(
    st.binary(max_size=300).map(lambda data: [frame(Opcode.BINARY, data)]),
    st.integers(120, 70_000).map(lambda size: [frame(Opcode.BINARY, b"x" * size)]),
    st.text(max_size=50).map(lambda text: [frame(Opcode.TEXT, text.encode())]),
    st.binary(max_size=20).map(lambda data: [frame(Opcode.PING, data)]),
    st.binary(max_size=20).map(lambda data: [frame(Opcode.PONG, data)]),
    st.lists(st.binary(max_size=20), min_size=1, max_size=3).map(
        lambda parts: [
            frame(Opcode.BINARY, b"first", fin=False),
            *(frame(Opcode.CONT, part, fin=False) for part in parts),
            frame(Opcode.CONT, b"last"),
        ]
    ),
)


@given(st.lists(MESSAGES, max_size=6), st.lists(st.integers(1, 5_000), min_size=1, max_size=8))
def test_however_the_bytes_come_the_messages_are_those_of_the_library(
    messages: list[list[bytes]], sizes: list[int]
) -> None:
    whole = b"".join(part for message in messages for part in message)
    pieces: list[bytes] = []
    place = 0
    while place < len(whole):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(whole[place : place + size])
        place += size
    assert asyncio.run(heard(WorkerProtocol, pieces)) == asyncio.run(heard(WebSocketsSansIOProtocol, pieces))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(Opcode.BINARY, b"not masked", mask=False), 1002),
        (b"\xf2" + frame(Opcode.BINARY, b"reserved bits")[1:], 1002),
        (frame(Opcode.BINARY, b"x" * (LIMIT + 1)), 1009),
        (frame(Opcode.BINARY, b"x" * (LIMIT + 1))[:20], 1009),
        (frame(Opcode.TEXT, b"\xff\xfe"), 1007),
        (frame(Opcode.CLOSE, (1000).to_bytes(2, "big") + b"bye"), 1000),
    ],
    ids=["not masked", "reserved bits", "too large", "says it is too large", "not UTF-8", "close"],
)
async def test_what_breaks_the_protocol_ends_the_connection(data: bytes, code: int) -> None:
    told, written, closed = await heard(WorkerProtocol, [frame(Opcode.BINARY, b"fine"), data, b"\x82"])
    assert told == [b"fine", code]
    assert closed
    assert written[:1] == b"\x88", "a close frame"


async def test_what_comes_before_the_handshake_is_answered_is_read_by_the_library() -> None:
    line = Line(WorkerProtocol)
    line.protocol.data_received(HANDSHAKE)
    line.protocol.data_received(frame(Opcode.BINARY, b"early")[:3])
    await turns()
    assert await line.hear([frame(Opcode.BINARY, b"early")[3:], frame(Opcode.BINARY, b"next")])
    assert [len(each) for each in line.told] == [5, 4]
    line.stop()


async def test_reading_pauses_while_messages_wait() -> None:
    line = Line(WorkerProtocol, read=False)
    await line.open()
    await line.hear([frame(Opcode.BINARY, b"small")] * 3)
    assert line.wire.paused == 0
    await line.hear([frame(Opcode.BINARY, b"small")])
    assert line.wire.paused == 1
    for _ in range(4):
        await line.protocol.receive()
    assert line.wire.paused == 0
    await line.hear([frame(Opcode.BINARY, b"x" * 100_000)])
    assert line.wire.paused == 1, "a large one is enough"
    line.stop()


@pytest.mark.parametrize(
    "message", [b"", b"x" * 125, b"x" * 126, b"x" * 65_535, b"x" * 65_536, "Käse", "x" * 300]
)
async def test_a_message_that_is_written_at_once_arrives(message: bytes | str) -> None:
    line = Line(WorkerProtocol)
    await line.open()
    assert line.scope[WRITE](message)
    client = Protocol(CLIENT, max_size=None)
    client.receive_data(line.wire.written)
    (event,) = client.events_received()
    assert isinstance(event, Frame)
    assert event.data == (message if isinstance(message, bytes) else message.encode())
    assert (event.opcode is Opcode.TEXT) == isinstance(message, str)
    line.stop()


async def test_nothing_is_written_to_a_client_that_is_slow_or_gone() -> None:
    line = Line(WorkerProtocol)
    await line.open()
    line.protocol.pause_writing()
    assert not line.scope[WRITE](b"later")
    line.protocol.resume_writing()
    assert line.scope[WRITE](b"now")
    written = line.wire.written
    line.protocol.connection_lost(None)
    assert not line.scope[WRITE](b"too late")
    assert line.wire.written == written
    await turns()
