"""What a connection may ask of the server before there is a request: so many bytes, and so much time.

uvicorn's protocol takes a head of any size, waits for it and for the body for ever, and answers what is not HTTP in its own
way. Here the head is bounded, whoever is too slow is sent away, and every refusal is a problem document like any other.

A request that comes in one piece, as nearly all do, costs a few assignments. A timer is set only while something is
awaited: it looks at the connection when it rings, and sets itself again if there was progress.
"""

import asyncio
from enum import Enum, auto
from http import HTTPStatus
from typing import Final

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from stoker import ids
from stoker.api.http_protocol import OneWriteProtocol
from stoker.api.problems import CONTENT_TYPE, Kind, Problem
from stoker.api.streaming import HALF_CLOSED, LISTENS

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_URL_BYTES: Final = 16 * 1024
LINGER_SECONDS: Final = 1.0
"""How long a refused client may go on sending: a connection that is closed under its hands would swallow the answer."""


class Reading(Enum):
    """What part of a request has begun and is not there yet."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()


class GuardedProtocol(OneWriteProtocol):
    head_seconds = 30.0
    """From the connection, or from the first byte of the next request, to the end of the head."""
    body_seconds = 60.0
    """Without a byte of a body that is awaited."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._reading = Reading.NOTHING
        self._chunk_bytes = 0
        self._head_bytes = 0
        self._heard_at = self._began_at = self.loop.time()
        self._problem: Problem | None = None
        self._refused = False
        self._timer: asyncio.TimerHandle | None = self.loop.call_later(self.head_seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_looking()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether to keep the connection: a client that is done with sending may still wait for its answer."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or self._reading is not Reading.NOTHING:
            return False
        cycle.keep_alive = False
        cycle.scope[HALF_CLOSED] = self.transport.close  # type: ignore[typeddict-unknown-key]
        return LISTENS not in cycle.scope

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._heard_at = self.loop.time()
        self._count(len(data))
        super().data_received(data)
        if self._reading is Reading.HEAD and self._head_bytes > MAX_HEAD_BYTES and not self._refused:
            self._refuse(_head_too_large())
        self._keep_looking()

    def handle_websocket_upgrade(self) -> None:
        self._reading = Reading.NOTHING
        self._stop_looking()
        super().handle_websocket_upgrade()

    # --- the parser tells how far a request has come ---------------------------------------------------

    def on_message_begin(self) -> None:
        self._reading = Reading.HEAD
        self._began_at = self._heard_at
        self._head_bytes, self._chunk_bytes = self._chunk_bytes, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > MAX_URL_BYTES:
            self._give_up(Problem(Kind.URL_TOO_LONG, f"the URL is longer than {MAX_URL_BYTES:,} bytes"))

    def on_headers_complete(self) -> None:
        if self._head_bytes > MAX_HEAD_BYTES and self._parsed_bytes() > MAX_HEAD_BYTES:
            self._give_up(_head_too_large())
        super().on_headers_complete()
        self._reading = Reading.BODY

    def on_message_complete(self) -> None:
        self._reading = Reading.NOTHING
        super().on_message_complete()

    def _count(self, size: int) -> None:
        """A chunk counts for the head that it continues or begins; one that ends something else first counts for nobody."""
        if self._reading is Reading.HEAD:
            self._head_bytes += size
        self._chunk_bytes = size if self._reading is Reading.NOTHING else 0

    def _parsed_bytes(self) -> int:
        """As they came, with the colon, the space and the end of the line."""
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _give_up(self, problem: Problem) -> None:
        """Leave the parser, which makes an error of it and comes back with `send_400_response`."""
        self._problem = problem
        raise problem

    # --- time ------------------------------------------------------------------------------------------

    def _keep_looking(self) -> None:
        if self._timer is None and self._awaits_something():
            if self._reading is Reading.NOTHING:
                self._began_at = self._heard_at
            self._timer = self.loop.call_later(self._seconds_left(), self._look)

    def _awaits_something(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        if self._refused or self.transport.is_closing():
            return False
        return self._reading is not Reading.NOTHING or cycle is None or cycle.response_complete

    def _seconds_left(self) -> float:
        now = self.loop.time()
        if self._reading is not Reading.BODY:
            return self._began_at + self.head_seconds - now
        if self.flow.read_paused:  # it is us who are slow
            return self.body_seconds
        return self._heard_at + self.body_seconds - now

    def _look(self) -> None:
        self._timer = None
        if not self._awaits_something() or self.timeout_keep_alive_task is not None:
            return
        left = self._seconds_left()
        if left > 0:
            self._timer = self.loop.call_later(left, self._look)
        elif self._reading is Reading.NOTHING:
            self.transport.close()
        else:
            part = "head" if self._reading is Reading.HEAD else "body"
            self._refuse(Problem(Kind.TOO_SLOW, f"the {part} of the request did not come in time"))

    def _stop_looking(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- refusals --------------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        self._refuse(
            self._problem or Problem(Kind.UNREADABLE, "this is not HTTP/1.1 as the server understands it")
        )

    def _refuse(self, problem: Problem) -> None:
        """Answer the request that is being read, if nothing else is being answered, and read no more."""
        self._refused = True
        self._stop_looking()
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or (cycle.response_complete and self._reading is not Reading.BODY):
            self._say(problem)
        elif cycle.response_started:
            self.transport.close()
        elif cycle.more_body:
            cycle.disconnected = True
            cycle.message_event.set()
            self._say(problem)
        else:
            cycle.keep_alive = False  # what was asked before is answered, and then it ends

    def _say(self, problem: Problem) -> None:
        self.transport.write(self._answer(problem))
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _answer(self, problem: Problem) -> bytes:
        request_id = ids.new_id()
        body = problem.document(request_id)
        status = HTTPStatus(problem.kind.status)
        headers = [
            *self.server_state.default_headers,
            (b"content-type", CONTENT_TYPE),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", request_id.encode()),
            (b"connection", b"close"),
        ]
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}".encode(),
            *(name + b": " + value for name, value in headers),
        ]
        return b"\r\n".join([*lines, b"", body])


def _head_too_large() -> Problem:
    return Problem(Kind.HEAD_TOO_LARGE, f"the head of the request is larger than {MAX_HEAD_BYTES:,} bytes")
