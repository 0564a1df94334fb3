"""A worker's connection to a coordinator: what comes reaches the supervisor at once, whole and in order."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

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
