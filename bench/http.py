"""Just enough HTTP/1.1 to count answers honestly: one response after another on one connection, by Content-Length."""

import re
import socket
import time
from typing import Any, Final

import msgspec

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*(?:\r\n|\Z)", re.IGNORECASE)
_RECEIVE_BYTES: Final = 256 * 1024
_IDLE_SECONDS: Final = 2.0
"""Servers close connections that say nothing for a while; one that may be closed is not used again."""


class BadResponse(Exception):
    """What came back is not a response that this client understands."""


class ResponseReader:
    """Fed with what arrives; says when a response is complete. There is never more than one under way."""

    def __init__(self) -> None:
        self._head = b""
        self._status = 0
        self._left = 0
        self._body: list[bytes] = []

    def feed(self, data: bytes) -> int | None:
        """The status of the response that these bytes complete, None while something is missing."""
        if self._left:
            self._body.append(data)
            self._left -= len(data)
        else:
            head = self._head + data
            end = head.find(_HEAD_END)
            if end < 0:
                self._head = head
                return None
            self._begin(head, end)
        if self._left < 0:
            raise BadResponse("more came back than one response")
        return None if self._left else self._status

    def _begin(self, head: bytes, end: int) -> None:
        if not head.startswith(b"HTTP/1.1 "):
            raise BadResponse(f"not HTTP/1.1: {head[:40]!r}")
        match = _LENGTH.search(head, 0, end + 2)
        if match is None:
            raise BadResponse(f"no Content-Length in {head[:end]!r}")
        body = head[end + len(_HEAD_END) :]
        self._head = b""
        self._status = int(head[9:12])
        self._body = [body]
        self._left = int(match[1]) - len(body)

    def body(self) -> bytes:
        """The body of the response that was completed last."""
        return b"".join(self._body)


def request_bytes(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    if body or method == "POST":
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


class Client:
    """One keep-alive connection, one request after the other, with nothing in between that takes time."""

    def __init__(self, port: int, timeout_seconds: float = 60.0) -> None:
        self._port = port
        self._timeout_seconds = timeout_seconds
        self._connect()

    def _connect(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self._port), self._timeout_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = ResponseReader()
        self._used_at = time.monotonic()

    def call(self, method: str, path: str, body: bytes = b"") -> int:
        """Send a request and wait for the whole answer; its status."""
        if time.monotonic() - self._used_at > _IDLE_SECONDS:
            self.close()
            self._connect()
        self._socket.sendall(request_bytes(method, path, body))
        while True:
            data = self._socket.recv(_RECEIVE_BYTES)
            if not data:
                raise BadResponse("the server closed the connection")
            status = self._reader.feed(data)
            if status is not None:
                self._used_at = time.monotonic()
                return status

    def json(self, method: str, path: str, body: bytes = b"") -> Any:
        """The answer decoded. Raises BadResponse unless it is a 2xx."""
        status = self.call(method, path, body)
        if not 200 <= status < 300:
            raise BadResponse(f"{method} {path} answered {status}: {self._reader.body()[:300]!r}")
        return msgspec.json.decode(self._reader.body())

    def close(self) -> None:
        self._socket.close()
