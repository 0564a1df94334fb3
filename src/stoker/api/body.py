"""Reading a body without ever holding more of it than is allowed."""

from collections.abc import Mapping
from typing import Final

from starlette.types import Receive

from stoker.api.exchange import JSON, ClientGone
from stoker.api.problems import Kind, Problem

_LINGER_BYTES: Final = 64 * 1024 * 1024
"""An upload that is refused but announced no more than this is read and dropped by the server, so that the client gets to
see the answer; beyond it, or when the length is unknown, the connection is closed."""

_CLOSE: Final = (b"connection", b"close")


async def read_body(receive: Receive, headers: Mapping[bytes, bytes], max_bytes: int) -> bytes:
    """The body, if it is JSON by its label and no larger than allowed. Raises 400, 413 or 415."""
    announced = headers.get(b"content-length")
    if announced is not None:
        _check_announced(announced, max_bytes)
    if announced != b"0" and headers.get(b"content-type") != JSON:
        _check_type(headers)
    message = await receive()
    if message["type"] != "http.request":
        raise ClientGone
    body: bytes = message.get("body", b"")
    if message.get("more_body", False) or len(body) > max_bytes:
        return await _rest(receive, body, max_bytes)
    return body


async def _rest(receive: Receive, first: bytes, max_bytes: int) -> bytes:
    chunks = [first]
    size = len(first)
    more = True
    while more:
        if size > max_bytes:
            raise _too_large(max_bytes, close=True)
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        more = message.get("more_body", False)
    if size > max_bytes:
        raise _too_large(max_bytes, close=True)
    return b"".join(chunks)


def _check_announced(announced: bytes, max_bytes: int) -> None:
    if not announced.isdigit() or len(announced) > 18:
        raise Problem(Kind.UNREADABLE, "Content-Length is not a number", headers=[_CLOSE])
    length = int(announced)
    if length > max_bytes:
        raise _too_large(max_bytes, close=length > _LINGER_BYTES)


def _too_large(max_bytes: int, *, close: bool) -> Problem:
    detail = f"the body is larger than {max_bytes:,} bytes; send less, or raise STOKER_MAX_BODY_BYTES"
    return Problem(Kind.TOO_LARGE, detail, headers=[_CLOSE] if close else [])


def _check_type(headers: Mapping[bytes, bytes]) -> None:
    """A page can send a form to anybody without asking; JSON it cannot. So this is also a wall, not only a courtesy."""
    if b"content-length" not in headers and b"transfer-encoding" not in headers:
        return  # no body: told as such by whoever expects one
    given = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if given == JSON or (given.startswith(b"application/") and given.endswith(b"+json")):
        return
    shown = given.decode("latin-1")[:100] or "nothing"
    raise Problem(
        Kind.UNSUPPORTED_MEDIA_TYPE,
        f"the body is labelled {shown}; label it as JSON: -H 'Content-Type: application/json'",
    )
