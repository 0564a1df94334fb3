"""One request and its answer, as handlers see them: plain values, nothing of the transport."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from stoker.api.problems import CONTENT_TYPE as PROBLEM
from stoker.api.problems import RequestProblem

if TYPE_CHECKING:
    from stoker.api.context import Context

Header = tuple[bytes, bytes]

JSON: Final = b"application/json"
TEXT: Final = b"text/plain; charset=utf-8"
TEXT_METRICS: Final = b"text/plain; version=0.0.4; charset=utf-8"


class Request:
    """What a handler may look at. `body` and `query` are already of the types that the endpoint table names."""

    __slots__ = ("address", "body", "context", "headers", "leaving", "params", "query")

    def __init__(
        self,
        context: Context,
        headers: dict[bytes, bytes],
        params: dict[str, str],
        query: Any,
        body: Any,
        address: str,
        leaving: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self.context = context
        self.headers = headers
        self.params = params
        self.query = query
        self.body = body
        self.address = address
        self.leaving = leaving
        """Ends when the client hangs up."""


class Response:
    """An answer: status, body, its type, and whatever headers are its own."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self, status: int, body: bytes, headers: Sequence[Header] = (), content_type: bytes = JSON
    ) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.content_type = content_type


class RevocableResponse(Response):
    """An answer that gives something away. `lost` is called when the client is known to have left before it was sent."""

    __slots__ = ("lost",)

    def __init__(self, status: int, body: bytes, lost: Callable[[], None]) -> None:
        super().__init__(status, body)
        self.lost = lost


class ClientGone(Exception):
    """The client hung up before its request was complete, or while it waited, so no response can be sent."""


class Interrupted(Exception):
    """Raised by the pieces of a stream that cannot be finished: the client must not take it for whole."""


class Stream(Response):
    """An answer whose body is sent piece by piece, as it comes. Its end may be far away; the client may leave before."""

    __slots__ = ("pieces",)

    def __init__(
        self, pieces: AsyncGenerator[bytes, None], headers: Sequence[Header] = (), content_type: bytes = TEXT
    ) -> None:
        super().__init__(200, b"", headers, content_type)
        self.pieces = pieces


def problem_response(problem: RequestProblem, request_id: str) -> Response:
    return Response(problem.kind.status, problem.document(request_id), problem.headers, PROBLEM)
