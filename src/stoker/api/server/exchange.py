"""One request and its answer, as handlers see them: plain values, nothing of the transport."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stoker.api.problems import CONTENT_TYPE as PROBLEM
from stoker.api.problems import RequestProblem

if TYPE_CHECKING:
    from stoker.api.context import Context

Header = tuple[bytes, bytes]

JSON: Final = b"application/json"
TEXT: Final = b"text/plain; charset=utf-8"
TEXT_METRICS: Final = b"text/plain; version=0.0.4; charset=utf-8"


class Request(msgspec.Struct, eq=False):
    """What a handler may look at. `body` and `query` are already of the types that the endpoint table names."""

    context: Context
    headers: dict[bytes, bytes]
    params: dict[str, str]
    query: Any
    body: Any
    address: str
    leaving: Callable[[], Coroutine[Any, Any, None]]
    """Ends when the client hangs up."""


class Response(msgspec.Struct, eq=False):
    """An answer: status, body, whatever headers are its own, and the type of the body."""

    status: int
    body: bytes
    headers: Sequence[Header] = ()
    content_type: bytes = JSON


class RevocableResponse(Response, kw_only=True):
    """An answer that gives something away. `lost` is called when the client is known to have left before it was sent."""

    lost: Callable[[], None]


class ClientGone(Exception):
    """The client hung up before its request was complete, or while it waited, so no response can be sent."""


class Interrupted(Exception):
    """Raised by the pieces of a stream that cannot be finished: the client must not take it for whole."""


class Stream(Response, kw_only=True):
    """An answer whose body is sent piece by piece, as it comes. Its end may be far away; the client may leave before."""

    pieces: AsyncGenerator[bytes, None]


def stream_of(
    pieces: AsyncGenerator[bytes, None], headers: Sequence[Header] = (), content_type: bytes = TEXT
) -> Stream:
    """Return an answer of status 200 whose body these pieces are."""
    return Stream(200, b"", headers, content_type, pieces=pieces)


def problem_response(problem: RequestProblem, request_id: str) -> Response:
    return Response(problem.kind.status, problem.document(request_id), problem.headers, PROBLEM)
