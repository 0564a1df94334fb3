"""Limits on a connection before there is a request: the bytes of the head, and the time that it may take.

uvicorn's protocol takes a head of any size, waits for it and for the body for ever, and answers what is not HTTP in its own
way. Here the head is bounded, a client that is too slow is cut off, and every refusal is a problem document like any other.

A connection that would leave the process no file descriptors for anything else is answered with 503 and closed: where the
descriptors run out, the system closes new connections without a word.

A request that comes in one piece, as nearly all do, costs a few assignments. A timer is set only while something is
awaited: it looks at the connection when it rings, and sets itself again if there was progress.
"""

import asyncio
import math
import re
from http import HTTPStatus
from typing import Final

import structlog
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from stoker import ids
from stoker.api.problems import CONTENT_TYPE, Kind, RequestProblem, retry_after
from stoker.api.server.http_protocol import LINGER_SECONDS, OneWriteProtocol
from stoker.api.server.streaming import HALF_CLOSED, LISTENS

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_URL_BYTES: Final = 16 * 1024
RETRY_SECONDS: Final = 1
TELL_SECONDS: Final = 10.0
"""How often the log says that connections are turned away."""
_RAISE: Final = (
    "the limit on open files allows no more; raise it (`ulimit -n`, LimitNOFILE= of systemd, "
    "--ulimit nofile= of Docker)"
)

log = structlog.get_logger()


class GuardedProtocol(OneWriteProtocol):
    """HTTP on one connection, with limits on the size of a request and on the time it may take."""

    head_seconds = 30.0
    """From the connection, or from the first byte of the next request, to the end of the head."""
    body_seconds = 60.0
    """Without a byte of a body that is awaited."""
    max_connections: float = math.inf
    _tell_again_at = -math.inf

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._complete = True
        """Whether the request whose head came last is there as a whole."""
        self._large = False
        self._head_bytes = 0
        self._heard_at = self._began_at = self.loop.time()
        self._problem: RequestProblem | None = None
        self._refused = False
        self._timer: asyncio.TimerHandle | None = self.loop.call_later(self.head_seconds, self._look)
        if len(self.connections) > self.max_connections:
            self._turn_away()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_looking()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return whether to keep the connection: a client that is done with sending may still wait for its answer."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or self._in_head() or not self._complete:
            return False
        cycle.keep_alive = False
        waiting = self.unanswered()
        for each in waiting:
            each.scope[HALF_CLOSED] = self.transport.close  # type: ignore[typeddict-unknown-key]
        return not any(LISTENS in each.scope for each in waiting)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        scope, cycle, was_complete = self.scope, self.cycle, self._complete
        size = len(data)
        self._large = self._head_bytes + size > MAX_HEAD_BYTES
        super().data_received(data)
        if self._complete and self.cycle is not cycle and self.cycle.scope is self.scope:
            return  # a whole request, or several
        self._heard_at = self.loop.time()
        if self.scope is not scope:
            self._began_at = self._heard_at
        # Otherwise the data also held the end of another request, and is not counted as part of this head.
        if was_complete and self.cycle is cycle:
            self._head_bytes += size
        self._look_at_the_rest()

    def on_headers_complete(self) -> None:
        if len(self.url) > MAX_URL_BYTES or (self._large and self._parsed_bytes() > MAX_HEAD_BYTES):
            self._problem = self._too_large()
            raise self._problem  # the parser makes an error of it, and comes back with `send_400_response`
        if not self.url.startswith(b"/") and not self._names_its_host():
            self._problem = RequestProblem(
                Kind.UNREADABLE, "the address of the request and its Host header are not of one host"
            )
            raise self._problem
        super().on_headers_complete()
        self._complete = False
        self._head_bytes = 0

    def on_message_complete(self) -> None:
        self._complete = True
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        if self.unanswered():  # its answer would end up between the frames of the WebSocket
            self._refuse(
                RequestProblem(Kind.UNREADABLE, "a handshake must wait for the answers to earlier requests")
            )
            return
        self._refused = True  # nothing that comes now is for this protocol
        self._stop_looking()
        super().handle_websocket_upgrade()

    def _in_head(self) -> bool:
        """Return whether a head has begun that is not there yet: only a whole one gets a cycle."""
        cycle: RequestResponseCycle | None = self.cycle
        return self.scope is not (None if cycle is None else cycle.scope)

    def _names_its_host(self) -> bool:
        """Return whether an address like `http://host/path` has the host of the header, which is the one that is judged."""
        before, slashes, rest = self.url.partition(b"://")
        if not slashes or b"/" in before:
            return True
        authority = re.split(rb"[/?#]", rest, maxsplit=1)[0].lower()
        return all(value.strip().lower() == authority for name, value in self.headers if name == b"host")

    def _parsed_bytes(self) -> int:
        """As they came, with the colon, the space and the end of the line."""
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _too_large(self) -> RequestProblem:
        if len(self.url) > MAX_URL_BYTES:
            return RequestProblem(Kind.URL_TOO_LONG, f"the URL is longer than {MAX_URL_BYTES:,} bytes")
        return RequestProblem(
            Kind.HEAD_TOO_LARGE, f"the head of the request is larger than {MAX_HEAD_BYTES:,} bytes"
        )

    # --- what is not there yet -------------------------------------------------------------------------

    def _look_at_the_rest(self) -> None:
        if self._in_head() and self._head_bytes > MAX_HEAD_BYTES and not self._refused:
            self._refuse(self._too_large())
        if self._timer is None and self._awaits_something():
            if self._complete and not self._in_head():
                self._began_at = self._heard_at
            self._timer = self.loop.call_later(self._seconds_left(), self._look)

    def _awaits_something(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        if self._refused or self.transport.is_closing():
            return False
        return not self._complete or self._in_head() or cycle is None or cycle.response_complete

    def _seconds_left(self) -> float:
        now = self.loop.time()
        if self._complete:
            return self._began_at + self.head_seconds - now
        if self.flow.read_paused:  # it is us who are slow
            return self.body_seconds
        return self._heard_at + self.body_seconds - now

    def _look(self) -> None:
        self._timer = None
        if not self._awaits_something() or self.idle_since is not None:
            return
        left = self._seconds_left()
        if left > 0:
            self._timer = self.loop.call_later(left, self._look)
        elif self._complete and not self._in_head():
            self.transport.close()
        else:
            part = "head" if self._complete else "body"
            self._refuse(RequestProblem(Kind.TOO_SLOW, f"the {part} of the request did not come in time"))

    def _stop_looking(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- refusals --------------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        self._refuse(
            self._problem
            or RequestProblem(Kind.UNREADABLE, "this is not HTTP/1.1 as the server understands it")
        )

    def _refuse(self, problem: RequestProblem) -> None:
        """Answer the request that is being read, if nothing else is being answered, and read no more."""
        self._refused = True
        self._stop_looking()
        cycle: RequestResponseCycle | None = self.cycle
        earlier = self.answering if self.answering in self.unanswered() else None
        if cycle is None or (cycle.response_complete and self._complete):
            self._say(problem)
        elif cycle.more_body and earlier is not None and earlier is not cycle:
            earlier.keep_alive = False  # it is answered, and then the connection ends: what follows cannot be
        elif cycle.response_started:
            self.transport.close()
        elif cycle.more_body:
            cycle.disconnected = True
            cycle.message_event.set()
            self._say(problem)
        else:
            cycle.keep_alive = False  # what was asked before is answered, and then it ends

    def _turn_away(self) -> None:
        """Answer at once, and keep the descriptor no longer than that takes."""
        self._refused = True
        self._stop_looking()
        cls, now = type(self), self.loop.time()
        if now >= cls._tell_again_at:
            cls._tell_again_at = now + TELL_SECONDS
            log.warning("connections_turned_away", connections=self.max_connections, detail=_RAISE)
        detail = f"this coordinator has {self.max_connections:,} connections already; try again in a moment"
        problem = RequestProblem(Kind.UNAVAILABLE, detail, headers=[retry_after(RETRY_SECONDS)])
        self.transport.write(self._answer(problem))
        self.transport.close()

    def _say(self, problem: RequestProblem) -> None:
        self.transport.write(self._answer(problem))
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _answer(self, problem: RequestProblem) -> bytes:
        request_id = ids.new_id()
        body = problem.document(request_id)
        status = HTTPStatus(problem.kind.status)
        headers = [
            *self.server_state.default_headers,
            (b"content-type", CONTENT_TYPE),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", request_id.encode()),
            (b"connection", b"close"),
            *problem.headers,
        ]
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}".encode(),
            *(name + b": " + value for name, value in headers),
        ]
        return b"\r\n".join([*lines, b"", body])
