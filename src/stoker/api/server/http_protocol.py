"""uvicorn's HTTP protocol, with a short way for an answer that is known as a whole.

uvicorn hands the transport the head of a response and then its body, and each becomes a system call and a wake-up of
the client. For small answers those two writes are a good part of a request's cost (docs/decisions/0005), so the
application may give a whole answer to `answer`, which it finds in the scope, and it is written at once. Nor is a timer
made and cancelled for every answer: one timer a connection looks when it was last in use.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from stoker.api.server.exchange import Header
from stoker.api.server.streaming import GONE

ANSWER: Final = "stoker.answer"
"""In the scope of a request: gives a whole answer at once. `answer(status, headers, body)` returns whether it could."""
CLOSE: Final[Header] = (b"connection", b"close")
LINGER_SECONDS: Final = 1.0
"""How long a refused client may go on sending: a connection that is closed under its hands would swallow the answer."""
LINGER_BYTES: Final = 64 * 1024 * 1024
"""How much of a refused body is read and dropped for the same reason."""
_LARGE_BYTES: Final = 64 * 1024
"""A body beyond this is not copied to be written together with its head."""


class OneWriteProtocol(HttpToolsProtocol):
    """Also knows which request is being answered. uvicorn knows only the one that was read last: with several in the line,
    the one before it would never learn that the client has left, would wait on, and would write to a closed connection."""

    answering: RequestResponseCycle | None = None
    """The request that was handed to the application last."""
    idle_since: float | None = None
    """When the last answer was given, while no request came after it."""
    _idle_timer: asyncio.TimerHandle | None = None
    _ends_with_the_body = False
    """Whether the connection is closed once the body of an answered request has been read and dropped."""
    _dropped = 0

    def connection_lost(self, exc: Exception | None) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
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
        cycle.scope[ANSWER] = self.answer  # type: ignore[typeddict-unknown-key]
        super()._start_asgi_task(cycle, app)

    def answer(self, status: int, headers: Sequence[Header], body: bytes) -> bool:
        """Write the whole answer to the request that is being answered. Return False, and write nothing, where the client is
        slow or gone."""
        cycle = self.answering
        if cycle is None or cycle.disconnected or cycle.response_started or self.flow.write_paused:
            return False
        lines = [STATUS_LINE[status]]
        for name, value in (*cycle.default_headers, *headers):
            lines.append(b"%b: %b\r\n" % (name, value))
            if name == b"connection" and value == b"close":
                cycle.keep_alive = False
        if not cycle.keep_alive and CLOSE not in headers:
            lines.append(b"connection: close\r\n")
        head = b"".join(lines)
        if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines) or b"\0" in head:
            raise ValueError("a header of the answer has a line end in it")
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        if len(body) > _LARGE_BYTES:
            self.transport.writelines((head, b"\r\n", body))
        else:
            self.transport.write(b"%b\r\n%b" % (head, body))
        cycle.message_event.set()
        if not cycle.keep_alive:
            self._end_after(cycle, at_once=CLOSE in headers)
        self.on_response_complete()
        return True

    def _end_after(self, cycle: RequestResponseCycle, *, at_once: bool) -> None:
        """Close the connection after an answer. A client that still sends the body would not get to see it, so the rest is
        read first: all of it, or for a moment where the application wants no more."""
        if not cycle.more_body:
            self.transport.close()
            return
        self._ends_with_the_body = True
        if at_once:
            self.transport.write_eof()
            self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def on_body(self, body: bytes) -> None:
        if not self._ends_with_the_body:
            super().on_body(body)
            return
        self._dropped += len(body)
        if self._dropped > LINGER_BYTES:
            self.transport.close()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self._ends_with_the_body:
            self.transport.close()

    # --- a connection that is not in use ---------------------------------------------------------------

    def on_response_complete(self) -> None:
        """Begin the next request of the line, or note that the connection is idle."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self.idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._look_whether_idle)

    def _unset_keepalive_if_required(self) -> None:
        self.idle_since = None

    def _look_whether_idle(self) -> None:
        self._idle_timer = None
        if self.idle_since is None or self.transport.is_closing():
            return
        left = self.idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._idle_timer = self.loop.call_later(left, self._look_whether_idle)
        else:
            self.transport.close()
