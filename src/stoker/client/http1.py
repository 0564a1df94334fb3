"""The SDK's HTTP/1.1, without I/O: builds the bytes of requests and parses the bytes of answers.

`RequestHead` builds requests. `AnswerReader` parses the answers of one connection, one at a time, and tells when an answer
is complete and whether the connection can be used again. Blocking sockets (`stoker.client.sync_http`) and event loops
(`stoker.client.async_http`) use the same two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlencode

import httptools

from stoker.client.errors import ArgumentError

HEAD_MAX_BYTES: Final = 64 * 1024
BODY_MAX_BYTES: Final = 1024 * 1024 * 1024
"""A limit above the size of any answer of a coordinator."""

FREQUENT: Final = frozenset({"/jobs", "/jobs/batch", "/jobs/wait"})
MAX_STARTS: Final = 16

_JSON: Final = b"Content-Type: application/json\r\n"
_NOT_IN_A_HEADER: Final = re.compile(r"[\r\n\0]")


_TLS_ADVICE: Final = {
    "CERTIFICATE_VERIFY_FAILED": "SSL_CERT_FILE can name the certificates to trust",
    "WRONG_VERSION_NUMBER": "the server does not speak TLS, so http:// may be right",
}
"""By the reason of an `ssl.SSLError`, what to do about it. Another try would not help."""


class ExchangeError(Exception):
    """An exchange ended without an answer.

    `sent`: the server may have received the request. `answered`: a part of an answer came. `lost`: the connection ended,
    which happens to kept-alive connections that the server has closed. `silent`: nothing came for too long.
    `hopeless`: another try would fail in the same way.
    """

    def __init__(
        self,
        reason: str,
        *,
        sent: bool,
        answered: bool = False,
        lost: bool = False,
        silent: bool = False,
        hopeless: bool = False,
    ) -> None:
        super().__init__(reason)
        self.sent = sent
        self.answered = answered
        self.lost = lost
        self.silent = silent
        self.hopeless = hopeless


def never_connected(error: Exception, seconds: float) -> ExchangeError:
    """Return the error for a connection that could not be opened."""
    reason = f"no connection within {seconds:g} s" if isinstance(error, TimeoutError) else str(error)
    advice = _TLS_ADVICE.get(getattr(error, "reason", ""))
    if advice is not None:
        return ExchangeError(f"{reason}; {advice}", sent=False, hopeless=True)
    return ExchangeError(reason or type(error).__name__, sent=False)


def no_answer(seconds: float) -> ExchangeError:
    """Return the error for a server that is silent for too long."""
    return ExchangeError(f"no answer within {seconds:g} s", sent=True, silent=True)


class RawAnswer(NamedTuple):
    """An HTTP response with its body as bytes."""

    status: int
    reason: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes

    def header(self, name: str) -> str | None:
        """Return the value of a header, given its name in lower case."""
        wanted = name.encode("ascii")
        return next((value.decode("latin-1") for name, value in self.headers if name.lower() == wanted), None)


class RequestHead:
    """Builds requests to one server, with the headers that all of them share."""

    def __init__(self, host: str, prefix: str, headers: Mapping[str, str]) -> None:
        """`host` is the value of the Host header; `prefix` is the path that stands before every other."""
        self._prefix = prefix
        self._common = _lines({"Host": host, **headers})
        self._starts: dict[tuple[object, ...], bytes] = {}
        """Cached beginnings of frequent requests."""

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> bytes:
        """Return one whole request; a body is JSON."""
        if body is None and method == "GET":
            return self._start(method, path, params, headers) + b"\r\n"
        if path not in FREQUENT or params:
            return with_body(self._start(method, path, params, headers) + _JSON, body or b"")
        key = (method, path, *headers.items())
        start = self._starts.get(key)
        if start is None:
            start = self._start(method, path, params, headers) + _JSON
            if len(self._starts) < MAX_STARTS:
                self._starts[key] = start
        return with_body(start, body or b"")

    def _start(self, method: str, path: str, params: Mapping[str, str], headers: Mapping[str, str]) -> bytes:
        target = f"{path}?{urlencode(params)}" if params else path
        line = f"{method} {self._prefix}{target} HTTP/1.1\r\n".encode("ascii")
        return line + self._common + _lines(headers)


def with_body(start: bytes, body: bytes) -> bytes:
    """Return a whole request, given its head without Content-Length."""
    return b"%bContent-Length: %d\r\n\r\n%b" % (start, len(body), body)


def _lines(headers: Mapping[str, str]) -> bytes:
    for name, value in headers.items():
        if _NOT_IN_A_HEADER.search(value):
            raise ArgumentError(f"the header {name} cannot have a line break in it", name)
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("utf-8")


class AnswerReader:
    """Reads the answers of one connection: feed it bytes until it returns an answer.

    Interim answers (1xx) are skipped. After an answer, `reusable` says whether the connection can serve another request.
    """

    __slots__ = (
        "_complete",
        "_failure",
        "_fed",
        "_has_head",
        "_headers",
        "_parser",
        "_parts",
        "_reason",
        "_size",
        "_status",
        "reusable",
    )

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.reusable = True
        self._begin()

    def _begin(self) -> None:
        self._complete = self._has_head = False
        self._fed = self._size = self._status = 0
        self._failure: str | None = None
        self._reason = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []

    @property
    def began(self) -> bool:
        """Return whether a part of the next answer has come."""
        return self._fed > 0

    def feed(self, data: bytes) -> RawAnswer | None:
        """Take bytes and return the answer if it is complete. Raises `ExchangeError` for bytes that are not HTTP."""
        if not self._has_head:
            self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise self._broken("the server wants another protocol than HTTP") from None
        except httptools.HttpParserError as error:
            if not self._complete:
                raise self._broken(f"what came is no HTTP ({str(error) or type(error).__name__})") from None
            self.reusable = False
        if self._complete:
            return self._take()
        if self._failure is not None:
            raise self._broken(self._failure)
        if not self._has_head and self._fed > HEAD_MAX_BYTES:
            raise self._broken(f"the head of the answer is larger than {HEAD_MAX_BYTES} bytes")
        return None

    def feed_eof(self) -> RawAnswer:
        """Take the end of the connection. Return the answer if that is how it ends; raises `ExchangeError` otherwise."""
        self.reusable = False
        if not self._fed:
            raise ExchangeError("the server closed the connection without an answer", sent=True, lost=True)
        names = {name.lower() for name, _ in self._headers}
        if not self._has_head or not names.isdisjoint((b"content-length", b"transfer-encoding")):
            raise ExchangeError(
                "the server closed the connection within its answer", sent=True, answered=True, lost=True
            )
        return self._take()

    def _broken(self, reason: str) -> ExchangeError:
        self.reusable = False
        return ExchangeError(reason, sent=True, answered=True)

    def _take(self) -> RawAnswer:
        parts = self._parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        answer = RawAnswer(self._status, self._reason, self._headers, body)
        self._begin()
        return answer

    # --- called by the parser

    def on_message_begin(self) -> None:
        if self._complete:  # bytes after the answer, to a request that we did not send
            self.reusable = False

    def on_status(self, reason: bytes) -> None:
        if not self._complete:
            self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._complete:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if not self._complete:
            self._status = self._parser.get_status_code()
            self._has_head = self._status >= 200

    def on_body(self, data: bytes) -> None:
        if self._complete:
            return
        self._size += len(data)
        if self._size > BODY_MAX_BYTES:
            self._failure = f"the answer is larger than {BODY_MAX_BYTES} bytes"
            self._parts.clear()
            return
        self._parts.append(data)

    def on_message_complete(self) -> None:
        if self._complete:
            return
        if self._status < 200:
            self._reason = b""
            self._headers = []
            return
        self._complete = self._failure is None
        if not self._parser.should_keep_alive():
            self.reusable = False
