"""A worker's connection to a coordinator: what comes reaches the supervisor at once, whole and in order."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.client import ClientProtocol
from websockets.frames import Frame as RawFrame
from websockets.frames import Opcode
from websockets.uri import parse_uri
from websockets.utils import accept_key

from stoker.wire import codec
from stoker.wire.frames import Ack, Drain, Frame, Goodbye, Refused, ToWorker
from stoker.worker.connection import FrameSocket, Link

Talk = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def linked(talk: Talk) -> AsyncIterator[Link]:
    async with serve(talk, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        socket = await connect(f"ws://127.0.0.1:{port}", create_connection=FrameSocket, proxy=None)
        assert isinstance(socket, FrameSocket)
        yield Link(socket, "ws://test")
        await socket.close()


def halves(frame: Frame) -> list[bytes]:
    data = codec.encode(frame)
    return [data[:3], data[3:]]


async def test_frames_stay_in_order_also_behind_one_that_comes_in_pieces() -> None:
    async def talk(socket: ServerConnection) -> None:
        await socket.send(codec.encode(Ack(1)))
        for number in range(2, 40, 2):
            await socket.send(halves(Ack(number)))
            await socket.send(codec.encode(Ack(number + 1)))

    heard: list[ToWorker] = []
    async with linked(talk) as link:
        await asyncio.sleep(0.05)  # some come before anything receives them
        assert await asyncio.wait_for(link.receive(heard.append), 5) is None
    assert heard == [Ack(number) for number in range(1, 40)]


async def test_what_was_sent_arrives_in_order_and_sending_on_a_closed_connection_does_nothing() -> None:
    heard: list[Frame] = []

    async def talk(socket: ServerConnection) -> None:
        heard.append(codec.decode_from_worker(await socket.recv()))
        heard.append(codec.decode_from_worker(await socket.recv()))

    async with linked(talk) as link:
        link.send(Goodbye())
        link.send(Goodbye())
        await asyncio.wait_for(link.receive(lambda _: None), 5)
        link.send(Goodbye())
    assert heard == [Goodbye(), Goodbye()]


async def test_nothing_is_handled_after_a_refusal() -> None:
    async def talk(socket: ServerConnection) -> None:
        await socket.send(codec.encode(Ack(1)))
        await socket.send(codec.encode(Refused("gone", new_session=True)))
        await socket.send(codec.encode(Drain()))
        await asyncio.sleep(0.05)
        await socket.send(codec.encode(Drain()))

    heard: list[ToWorker] = []
    async with linked(talk) as link:
        refused = await asyncio.wait_for(link.receive(heard.append), 5)
        await asyncio.sleep(0.1)
    assert refused is not None
    assert refused.new_session
    assert heard == [Ack(1)]


async def test_an_error_in_the_supervisor_is_raised_where_it_waits() -> None:
    async def talk(socket: ServerConnection) -> None:
        await socket.send(codec.encode(Ack(1)))
        await socket.wait_closed()

    def fail(_: ToWorker) -> None:
        raise ZeroDivisionError

    async with linked(talk) as link:
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(link.receive(fail), 5)


async def test_what_is_no_frame_ends_the_connection_with_a_word_in_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def talk(socket: ServerConnection) -> None:
        await socket.send(b"\xc1")
        await socket.wait_closed()

    async with linked(talk) as link:
        assert await asyncio.wait_for(link.receive(lambda _: None), 5) is None
    assert "coordinator_connection_lost" in capsys.readouterr().out


# ── the short way for whole frames ───────────────────────────────────────────────────────────────────────────────────


ANSWER = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"


class Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any: ...
    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None: ...
    def abort(self) -> None: ...

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class LibrarySocket(FrameSocket):
    """Has the library read everything."""

    def data_received(self, data: bytes) -> None:
        self._by_library = True
        super().data_received(data)


async def heard_by(kind: type[FrameSocket], pieces: list[bytes], *, delivers: bool) -> list[Any]:
    """Return what a socket is told and what it answers when these pieces come after the handshake."""
    socket = kind(ClientProtocol(parse_uri("ws://test"), max_size=1_000_000), ping_interval=None)
    wire, heard = Wire(), list[Any]()
    socket.connection_made(wire)
    shaking = asyncio.create_task(socket.handshake())
    await asyncio.sleep(0)
    key = re.search(rb"Sec-WebSocket-Key: (\S+)", wire.written)
    assert key is not None
    accept = accept_key(key[1].decode()).encode()
    socket.data_received(ANSWER + b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
    await shaking
    wire.written = b""

    def deliver(data: bytes) -> bool:
        heard.append(data)
        return True

    if delivers:
        socket.deliver = deliver
    for piece in pieces:
        socket.data_received(piece)
    while socket.recv_messages.frames:
        heard.append(await socket.recv())
    return [heard, len(wire.written)]


MESSAGES = st.one_of(
    st.binary(max_size=300).map(lambda data: RawFrame(Opcode.BINARY, data).serialize(mask=False)),
    st.integers(120, 70_000).map(lambda size: RawFrame(Opcode.BINARY, b"x" * size).serialize(mask=False)),
    st.binary(max_size=20).map(lambda data: RawFrame(Opcode.PING, data).serialize(mask=False)),
    st.binary(max_size=20).map(lambda data: RawFrame(Opcode.PONG, data).serialize(mask=False)),
)
LAST = st.sampled_from(
    [
        b"",
        RawFrame(Opcode.TEXT, b"text").serialize(mask=False),
        RawFrame(Opcode.BINARY, b"in", fin=False).serialize(mask=False)
        + RawFrame(Opcode.CONT, b" pieces").serialize(mask=False)
        + RawFrame(Opcode.BINARY, b"after").serialize(mask=False),
        RawFrame(Opcode.BINARY, b"masked").serialize(mask=True),
        RawFrame(Opcode.CLOSE, b"\x03\xe8").serialize(mask=False),
        b"\x8f\x00 no frame",
    ]
)


@given(
    st.lists(MESSAGES, max_size=6),
    LAST,
    st.lists(st.integers(1, 5_000), min_size=1, max_size=8),
    st.booleans(),
)
def test_however_the_bytes_come_the_messages_are_those_of_the_library(
    messages: list[bytes], last: bytes, sizes: list[int], delivers: bool
) -> None:
    whole = b"".join([*messages, last])
    pieces: list[bytes] = []
    place = 0
    while place < len(whole):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(whole[place : place + size])
        place += size
    ours = asyncio.run(heard_by(FrameSocket, pieces, delivers=delivers))
    assert ours == asyncio.run(heard_by(LibrarySocket, pieces, delivers=False))


async def test_frames_in_the_same_bytes_as_the_answer_to_the_handshake_are_not_lost() -> None:
    heard: list[ToWorker] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        key = re.search(rb"Sec-WebSocket-Key: (\S+)", head)
        assert key is not None
        accept = accept_key(key[1].decode()).encode()
        first = RawFrame(Opcode.BINARY, codec.encode(Ack(1))).serialize(mask=False)
        writer.write(ANSWER + b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n" + first[:4])
        await asyncio.sleep(0.05)
        writer.write(first[4:] + RawFrame(Opcode.BINARY, codec.encode(Ack(2))).serialize(mask=False))
        await reader.read(1)
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        socket = await connect(f"ws://127.0.0.1:{port}", create_connection=FrameSocket, proxy=None)
        assert isinstance(socket, FrameSocket)
        receiving = asyncio.create_task(Link(socket, "ws://test").receive(heard.append))
        await asyncio.sleep(0.3)
        socket.transport.abort()
        await asyncio.wait_for(receiving, 5)
    assert heard == [Ack(1), Ack(2)]
