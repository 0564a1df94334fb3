"""A pooler in transaction mode, as small as it can be: a client has a connection to PostgreSQL only from the first message
of a transaction to its end, and the next transaction may meet another connection.

So whatever a client leaves behind in its session (prepared statements, settings, LISTEN) is lost to it, or in another's way.
Like the poolers people use it takes only a few parameters when connecting and refuses the others.
"""

import asyncio
import contextlib
import struct
import threading
from collections.abc import Callable
from typing import Any, Final, Self

from tests.support.servers import free_port

NOT_NOW: Final = {80877103, 80877104}  # requests for TLS and GSS encryption
CANCEL: Final = 80877102
TAKEN: Final = {"user", "database", "client_encoding", "application_name", "datestyle", "timezone"}
READY: Final = b"Z"
EXPECT_READY: Final = {b"Q", b"S", b"F"}

Message = tuple[bytes, bytes]


class Pooler:
    """Listens on `port`; at most `size` connections to the server."""

    def __init__(self, target: int, *, size: int = 4) -> None:
        self.port = free_port()
        self.switches = 0
        """How often a transaction was given to another connection than its client's last one."""
        self._target = target
        self._free: asyncio.LifoQueue[Upstream | None] = asyncio.LifoQueue()
        self._size = size
        self._loop = asyncio.new_event_loop()
        self._clients: set[asyncio.Task[None]] = set()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started.set,), daemon=True)
        self._thread.start()
        started.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self, started: Callable[[], None]) -> None:
        asyncio.set_event_loop(self._loop)
        for _ in range(self._size):
            self._free.put_nowait(None)
        serving = asyncio.start_server(self._client, "127.0.0.1", self.port)
        server = self._loop.run_until_complete(serving)
        started()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(self._leave())
        self._loop.close()

    async def _leave(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)
        while not self._free.empty():
            upstream = self._free.get_nowait()
            if upstream is not None:
                upstream.writer.close()
        await asyncio.sleep(0)  # what was closed says so to the loop in its next turn

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            asked = await _startup(reader, writer)
            if asked is not None:
                await self._welcome(writer, asked)
                await Downstream(self, reader, writer).run()
        writer.close()

    async def _welcome(self, writer: asyncio.StreamWriter, asked: dict[str, str]) -> None:
        for name in asked:
            if name.lower() not in TAKEN:
                writer.write(_error("08P01", f"unsupported startup parameter: {name}"))
                await writer.drain()
                raise ConnectionError(name)
        self._asked = asked  # one user and one database: that of whoever came
        upstream = await self.take(None)
        writer.write(upstream.greeting)
        self.give_back(upstream)

    async def take(self, last: "Upstream | None") -> "Upstream":
        upstream = await self._free.get()
        if upstream is None:
            try:
                upstream = await Upstream.open(self._target, self._asked)
            except BaseException:
                self._free.put_nowait(None)
                raise
        self.switches += last is not None and upstream is not last
        return upstream

    def give_back(self, upstream: "Upstream", *, whole: bool = True) -> None:
        if not whole:
            upstream.writer.close()
        self._free.put_nowait(upstream if whole else None)


class Downstream:
    """One client."""

    def __init__(self, pooler: Pooler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._pooler = pooler
        self._reader = reader
        self._writer = writer
        self._upstream: Upstream | None = None
        self._last: Upstream | None = None
        self._relay: asyncio.Task[None] | None = None
        self._unanswered = 0

    async def run(self) -> None:
        try:
            while (message := await _message(self._reader))[0] != b"X":
                if self._upstream is None:
                    self._upstream = self._last = await self._pooler.take(self._last)
                    self._relay = asyncio.create_task(self._answer(self._upstream))
                self._unanswered += message[0] in EXPECT_READY
                self._upstream.writer.write(b"".join(_framed(message)))
        finally:
            if self._relay is not None and self._upstream is not None:  # it left in the middle of something
                self._relay.cancel()
                self._pooler.give_back(self._upstream, whole=False)

    async def _answer(self, upstream: "Upstream") -> None:
        """Pass on what the server says, until the transaction is over and all is answered."""
        try:
            while True:
                message = await _message(upstream.reader)
                self._unanswered -= message[0] == READY
                over = message == (READY, b"I") and not self._unanswered
                if over:
                    self._upstream = self._relay = None
                    self._pooler.give_back(upstream)
                self._writer.write(b"".join(_framed(message)))
                if over:
                    return
        except (OSError, asyncio.IncompleteReadError):
            self._writer.close()


class Upstream:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, greeting: bytes) -> None:
        self.reader = reader
        self.writer = writer
        self.greeting = greeting

    @classmethod
    async def open(cls, port: int, asked: dict[str, str]) -> Self:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        words = "".join(f"{name}\0{value}\0" for name, value in asked.items()).encode() + b"\0"
        writer.write(struct.pack("!II", len(words) + 8, 196608) + words)
        greeting = b""
        while not greeting.endswith(READY + b"\x00\x00\x00\x05I"):
            greeting += b"".join(_framed(await _message(reader)))
        return cls(reader, writer, greeting)


async def _startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, str] | None:
    while True:
        length, code = struct.unpack("!II", await reader.readexactly(8))
        rest = await reader.readexactly(length - 8)
        if code == CANCEL:
            return None
        if code not in NOT_NOW:
            words = rest.rstrip(b"\0").decode().split("\0")
            return dict(zip(words[::2], words[1::2], strict=True))
        writer.write(b"N")


async def _message(reader: asyncio.StreamReader) -> Message:
    kind, length = struct.unpack("!cI", await reader.readexactly(5))
    return kind, await reader.readexactly(length - 4)


def _framed(message: Message) -> tuple[bytes, Any]:
    return struct.pack("!cI", message[0], len(message[1]) + 4), message[1]


def _error(code: str, text: str) -> bytes:
    fields = b"".join(
        f"{k}{v}\0".encode() for k, v in (("S", "FATAL"), ("V", "FATAL"), ("C", code), ("M", text))
    )
    return b"".join(_framed((b"E", fields + b"\0")))
