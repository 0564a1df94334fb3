"""Reading a body without ever holding more of it than is allowed."""

import asyncio
from collections.abc import Mapping
from typing import Final

from starlette.types import Receive

from stoker.api.problems import Kind, RequestProblem
from stoker.api.server.admission import FREE_BYTES, SMALL_BYTES, BodyBudget, arrival_seconds
from stoker.api.server.exchange import JSON, ClientGone

_LINGER_BYTES: Final = 64 * 1024 * 1024
"""An upload that is refused but announced no more than this is read and dropped by the server, so that the client gets to
see the answer; beyond it, or when the length is unknown, that is done for a moment, and the connection is closed."""

_CLOSE: Final = (b"connection", b"close")


class Body:
    """The body of one request: read within the bounds of a body and of the budget, counted until it is given back."""

    __slots__ = ("_budget", "_max_bytes", "counted")

    def __init__(self, budget: BodyBudget, max_bytes: int) -> None:
        self._budget = budget
        self._max_bytes = max_bytes
        self.counted = 0

    async def read(self, receive: Receive, headers: Mapping[bytes, bytes]) -> bytes:
        """Return the body, if it is JSON by its label and no larger than allowed. Raises 400, 408, 413, 415 or 503."""
        announced = headers.get(b"content-length")
        length = None if announced is None else _announced_length(announced, self._max_bytes)
        if length != 0 and headers.get(b"content-type") != JSON:
            _check_type(headers)
        if b"content-encoding" in headers:
            _check_encoding(headers[b"content-encoding"])
        if length is not None and length > FREE_BYTES:
            self._count_up_to(length, close=length > _LINGER_BYTES)
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        body: bytes = message.get("body", b"")
        if message.get("more_body", False) or len(body) > self._max_bytes:
            return await self._in_time(receive, body, length)
        return body

    def give_back(self) -> None:
        self._budget.give_back(self.counted)
        self.counted = 0

    def _count_up_to(self, size: int, *, close: bool) -> None:
        self._budget.take(size - self.counted, size, close=close)
        self.counted = size

    async def _in_time(self, receive: Receive, first: bytes, length: int | None) -> bytes:
        try:
            async with asyncio.timeout(arrival_seconds(self._max_bytes if length is None else length)):
                return await self._rest(receive, first)
        except TimeoutError:
            raise RequestProblem(
                Kind.TOO_SLOW, "the body of the request did not come in time", headers=[_CLOSE]
            ) from None

    async def _rest(self, receive: Receive, first: bytes) -> bytes:
        chunks = [first]
        size = len(first)
        more = True
        while more:
            self._check_size(size)
            message = await receive()
            if message["type"] != "http.request":
                raise ClientGone
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            more = message.get("more_body", False)
        self._check_size(size)
        return b"".join(chunks)

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            raise _too_large(self._max_bytes, close=True)
        if size > max(self.counted, FREE_BYTES):  # its length was not announced
            self._count_up_to(min(size + SMALL_BYTES, self._max_bytes), close=True)


def _announced_length(announced: bytes, max_bytes: int) -> int:
    if not announced.isdigit() or len(announced) > 18:
        raise RequestProblem(Kind.UNREADABLE, "Content-Length is not a number", headers=[_CLOSE])
    length = int(announced)
    if length > max_bytes:
        raise _too_large(max_bytes, close=length > _LINGER_BYTES)
    return length


def _too_large(max_bytes: int, *, close: bool) -> RequestProblem:
    detail = f"the body is larger than {max_bytes:,} bytes; send less, or raise STOKER_MAX_BODY_BYTES"
    return RequestProblem(Kind.TOO_LARGE, detail, headers=[_CLOSE] if close else [])


def _check_encoding(given: bytes) -> None:
    """Raise 415 for a compressed body: what it becomes is not bounded by what was sent."""
    if given.strip().lower() not in (b"", b"identity"):
        shown = given.decode("latin-1")[:100]
        raise RequestProblem(
            Kind.UNSUPPORTED_MEDIA_TYPE,
            f"the body is compressed (Content-Encoding: {shown}), which is not understood here; send it as it is",
            headers=[(b"accept-encoding", b"identity")],
        )


def _check_type(headers: Mapping[bytes, bytes]) -> None:
    """Raise 415 unless the body is labelled as JSON. This also protects against cross-site requests: a web page can send
    a form to any host without asking, but not JSON."""
    if b"content-length" not in headers and b"transfer-encoding" not in headers:
        return  # no body: the decoder of an endpoint that expects one says so
    given = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if given == JSON or (given.startswith(b"application/") and given.endswith(b"+json")):
        return
    shown = given.decode("latin-1")[:100] or "nothing"
    raise RequestProblem(
        Kind.UNSUPPORTED_MEDIA_TYPE,
        f"the body is labelled {shown}; label it as JSON: -H 'Content-Type: application/json'",
    )
