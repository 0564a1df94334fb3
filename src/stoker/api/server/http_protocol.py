"""uvicorn's HTTP protocol, with the head and the body of an answer in one write.

uvicorn hands the transport the head of a response and then its body, and each becomes a system call and a wake-up of
the client. For small answers those two writes are a good part of a request's cost (docs/decisions/0005), so the head
waits for the body that follows it in the same turn of the loop.
"""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from stoker.api.server.streaming import GONE

_HEAD: Final = b"HTTP/1."
_LARGE_BYTES: Final = 64 * 1024
"""A body beyond this is not copied to save a system call."""


class OneWriteTransport:
    """A transport that joins the head of a response with what is written next."""

    __slots__ = ("_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        head = self._head
        if head is not None:
            self._head = None
            if len(data) > _LARGE_BYTES:
                self._transport.write(head)
                self._transport.write(data)
            else:
                self._transport.write(head + data)
        elif data.startswith(_HEAD):
            self._head = data
            self._loop.call_soon(self._flush)  # an answer without a body, or one whose body comes later
        else:
            self._transport.write(data)

    def _flush(self) -> None:
        head, self._head = self._head, None
        if head is not None:
            self._transport.write(head)

    def forget(self) -> None:
        """The connection is lost, and what waits with it."""
        self._head = None

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class OneWriteProtocol(HttpToolsProtocol):
    """Also knows which request is being answered. uvicorn knows only the one that was read last: with several in the line,
    the one before it would never learn that the client has left, would wait on, and would write to a closed connection."""

    answering: RequestResponseCycle | None = None
    """The request that was handed to the application last."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(OneWriteTransport(transport, self.loop))  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport.forget()  # type: ignore[attr-defined]
        self.pipeline.clear()
        for cycle in self.unanswered():
            cycle.scope[GONE] = True  # type: ignore[typeddict-unknown-key]
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def unanswered(self) -> list[RequestResponseCycle]:
        """Return the request that is being answered, and the one that was read last, if they are not answered yet."""
        cycles: list[RequestResponseCycle | None] = [self.answering]
        if self.cycle is not self.answering:
            cycles.append(self.cycle)
        return [cycle for cycle in cycles if cycle is not None and not cycle.response_complete]

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.answering = cycle
        super()._start_asgi_task(cycle, app)
