"""The worker's line to a coordinator: dial, say hello, carry frames, dial again.

It tries the addresses in turn, with a growing, jittered pause after each full round, for ever: a coordinator that is
away comes back, and the lease decides what the worker may still run meanwhile.
"""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidStatus,
    InvalidURI,
    WebSocketException,
)
from websockets.frames import apply_mask  # type: ignore[attr-defined]  # in C where it was built
from websockets.protocol import State

from stoker.wire import codec
from stoker.wire.frames import MAX_ASSIGN_FRAME_BYTES, Frame, Hello, Refused, ToWorker, Welcome, older_hello
from stoker.wire.websocket import BINARY, MASKED, PING, PONG, frame_at, frame_head

PATH: Final = "/workers/connect"
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 2.0
OPEN_SECONDS: Final = 5.0
WELCOME_SECONDS: Final = 10.0
_END_OF_HEAD: Final = b"\r\n\r\n"
CLOSE_PROTOCOL: Final = 1002
"""The code with which a coordinator hangs up on what it cannot read."""

log = structlog.get_logger()


class NotAllowed(Exception):
    """The coordinator does not let this worker in, and trying again will not help."""


class SessionLost(Exception):
    """The coordinator gave this session up: the jobs that it ran go to other workers."""


class _OlderCoordinator(Exception):
    """The hello has a field that the coordinator, of an older release, does not know and refuses."""


Deliver = Callable[[bytes], bool]
"""Takes a message if it can, and returns whether it did."""


def _to_the_queue(_: bytes) -> bool:
    return False


class FrameSocket(ClientConnection):
    """A WebSocket that sends without waiting, and passes on what comes when it comes: between a frame and the child that it
    is for stand no queue and no other task.

    It reads and writes whole binary frames itself, as the coordinator's end does (`api/server/websocket_protocol.py`). The
    library gets everything else, always in whole frames.
    """

    deliver: Deliver = staticmethod(_to_the_queue)
    """What it does not take waits in the queue of the library, as does all that came after it."""

    _by_library = False
    """Whether the library reads all that comes from here on."""
    _wanted = 0
    """How many bytes the frame has that `_rest` begins with; 0 if that is not known."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._rest = bytearray()

    def send_soon(self, data: bytes) -> None:
        """Send this, after what waits for room already. On a connection that is closing it does nothing."""
        if self.protocol.state is State.OPEN:
            mask = os.urandom(4)
            self.transport.write(frame_head(BINARY, len(data), MASKED) + mask + apply_mask(data, mask))

    def data_received(self, data: bytes) -> None:
        if self._by_library or self.response is None:
            # What comes together with the answer to the handshake stays with the library.
            self._by_library = self._by_library or not data.endswith(_END_OF_HEAD)
            super().data_received(data)
            return
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return
            data = bytes(self._rest)
        start, size, self._wanted = 0, len(data), 0
        while (frame := frame_at(data, start)) is not None:
            body, end = frame
            kind = data[start]
            is_large, is_masked = end - body > MAX_ASSIGN_FRAME_BYTES, data[start + 1] & MASKED
            if kind not in (BINARY, PING, PONG) or is_large or is_masked:
                self._by_library = True
                end = size
            elif end > size:
                self._wanted = end - start
                break
            waits = len(self.recv_messages.frames) > 0
            if kind != BINARY or self._by_library or waits or not self.deliver(data[body:end]):
                super().data_received(data[start:end])
            start = end
        if start < size or self._rest:
            self._rest = bytearray(data[start:])


class Link:
    """One open connection."""

    def __init__(self, socket: FrameSocket, url: str) -> None:
        self._socket = socket
        self.url = url

    def send(self, frame: Frame) -> None:
        self._socket.send_soon(codec.encode(frame))

    async def receive(self, handle: Callable[[ToWorker], None]) -> Refused | None:
        """Pass the frames of the coordinator to `handle` until the connection ends. Return the one that refuses this worker,
        which is the last."""
        failed: list[Exception] = []

        def deliver(data: bytes) -> bool:
            try:
                frame = codec.decode_to_worker(data)
                if not isinstance(frame, Refused):
                    handle(frame)
                    return True
            except Exception as error:  # noqa: BLE001 - raised below, where the connection is waited for
                failed.append(error)
            return False

        self._socket.deliver = deliver
        try:
            async for data in self._socket:
                if failed:
                    raise failed[0]
                frame = codec.decode_to_worker(data)
                if isinstance(frame, Refused):
                    return frame
                handle(frame)
        except (WebSocketException, codec.BadFrame) as error:
            log.warning("coordinator_connection_lost", url=self.url, detail=str(error))
        finally:
            self._socket.deliver = _to_the_queue
        return None

    async def close(self) -> None:
        await self._socket.close()

    def drop(self) -> None:
        """Close at once, without a closing handshake: the coordinator does not answer."""
        self._socket.transport.abort()


Connect = Callable[..., Awaitable[Any]]
"""`websockets.asyncio.client.connect`, or what stands in for it."""


class Dialer:
    def __init__(
        self,
        urls: tuple[str, ...],
        token: str | None,
        *,
        connect: Connect = connect,
        spread: Callable[[], float] = lambda: random.uniform(0.7, 1.3),
    ) -> None:
        self._urls = [socket_url(url) for url in urls]
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connect = connect
        self._spread = spread

    async def dial(self, hello: Callable[[], Hello]) -> tuple[Link, Welcome]:
        """Connect to whichever coordinator answers first. Raises `NotAllowed` or `SessionLost`."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            for url in self._urls:
                opened = await self._try(url, hello())
                if opened is not None:
                    return opened
            await asyncio.sleep(pause * self._spread())
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _try(self, url: str, hello: Hello) -> tuple[Link, Welcome] | None:
        try:
            return await self._try_with(url, hello)
        except _OlderCoordinator:
            log.info("coordinator_older", url=url)
            return await self._try_with(url, older_hello(hello))

    async def _try_with(self, url: str, hello: Hello) -> tuple[Link, Welcome] | None:
        try:
            socket: FrameSocket = await self._connect(
                url,
                create_connection=FrameSocket,
                additional_headers=self._headers,
                max_size=MAX_ASSIGN_FRAME_BYTES,
                open_timeout=OPEN_SECONDS,
                compression=None,
                ping_interval=None,  # the protocol has its own heartbeats
                proxy=None,
                max_queue=256,
            )
        except InvalidStatus as error:
            if error.response.status_code in (401, 403):
                raise NotAllowed(
                    f"{url} answered {error.response.status_code}; set STOKER_TOKEN to the coordinator's token"
                ) from error
            log.warning("coordinator_unreachable", url=url, detail=str(error))
            return None
        except InvalidURI as error:
            raise NotAllowed(f"{url} is not an address that a worker can dial: {error}") from error
        except (OSError, TimeoutError, InvalidHandshake, WebSocketException) as error:
            log.warning("coordinator_unreachable", url=url, detail=str(error) or type(error).__name__)
            return None
        link = Link(socket, url)
        welcome = await self._introduce(link, socket, hello)
        if welcome is None:
            await link.close()
            return None
        return link, welcome

    async def _introduce(self, link: Link, socket: FrameSocket, hello: Hello) -> Welcome | None:
        try:
            await socket.send(codec.encode(hello))
            async with asyncio.timeout(WELCOME_SECONDS):
                answer = codec.decode_to_worker(await socket.recv())
        except (WebSocketException, TimeoutError, OSError, codec.BadFrame) as error:
            if _knows_less(error) and hello != older_hello(hello):
                raise _OlderCoordinator from error
            log.warning("coordinator_unreachable", url=link.url, detail=str(error) or type(error).__name__)
            return None
        if isinstance(answer, Welcome):
            return answer
        if isinstance(answer, Refused):
            await link.close()
            if answer.new_session:
                raise SessionLost(answer.reason)
            raise NotAllowed(f"{link.url} refused this worker: {answer.reason}")
        return None


def _knows_less(error: Exception) -> bool:
    """Return whether a coordinator hung up because of a field that it does not know."""
    closed = error.rcvd if isinstance(error, ConnectionClosed) else None
    return closed is not None and closed.code == CLOSE_PROTOCOL and "unknown field" in closed.reason


def socket_url(url: str) -> str:
    """`http://host:8080` → `ws://host:8080/workers/connect`."""
    parts = urlsplit(url)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/") + PATH, "", ""))
