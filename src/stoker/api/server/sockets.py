"""A worker's WebSocket, from the handshake to the end. The coordinator sees frames, never ASGI messages."""

from collections.abc import Callable
from typing import Final

import structlog
from starlette.types import Receive, Scope, Send

from stoker.api.server.exchange import Header, Response
from stoker.coordinator.workers import WorkerService

WRITE: Final = "stoker.write"
"""In the scope of a WebSocket: sends a message if that needs no waiting, and returns whether it did."""

_log = structlog.get_logger(__name__)

_INTERNAL_ERROR: Final = 1011
_POLICY_VIOLATION: Final = 1008
_NORMAL: Final = 1000


class AsgiSocket:
    """The `Socket` of `stoker.coordinator.connection` of an ASGI connection."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._write: Callable[[bytes | str], bool] = scope.get(WRITE, _cannot_write)
        self._open = True

    async def receive(self) -> bytes | str | None:
        if not self._open:
            return None
        message = await self._receive()
        if message["type"] != "websocket.receive":
            self._open = False
            return None
        data: bytes | None = message.get("bytes")
        text: str | None = message.get("text")
        return text if data is None else data

    async def send(self, data: bytes | str) -> None:
        kind = "bytes" if isinstance(data, bytes) else "text"
        await self._send_if_open({"type": "websocket.send", kind: data})

    def send_now(self, data: bytes | str) -> bool:
        return self._open and self._write(data)

    async def close(self, code: int, reason: str) -> None:
        await self._send_if_open({"type": "websocket.close", "code": code, "reason": reason})
        self._open = False

    async def _send_if_open(self, message: dict[str, object]) -> None:
        """The other side may go at any moment; `receive` is where the coordinator learns of it."""
        if not self._open:
            return
        try:
            await self._send(message)
        except (OSError, RuntimeError):  # how servers say that the connection is gone
            self._open = False


def _cannot_write(data: bytes | str) -> bool:
    """Stands in where the server has no way to send at once."""
    return False


async def serve(
    workers: WorkerService, scope: Scope, receive: Receive, send: Send, headers: list[Header]
) -> None:
    """Let the worker in and hand the connection to the coordinator."""
    await receive()  # websocket.connect
    await send({"type": "websocket.accept", "headers": headers})
    socket = AsgiSocket(scope, receive, send)
    code, reason = _NORMAL, ""
    try:
        await workers.serve(socket)
    except Exception:  # noqa: BLE001 - one worker's connection must not take the server along
        _log.exception("worker_connection_failed")
        code, reason = _INTERNAL_ERROR, "internal error"
    await socket.close(code, reason)


async def deny(scope: Scope, receive: Receive, send: Send, response: Response, headers: list[Header]) -> None:
    """Refuse the handshake: with a problem document where the server can send one, else by closing."""
    await receive()
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": ""})
        return
    await send({"type": "websocket.http.response.start", "status": response.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": response.body})
