"""uvicorn's WebSocket protocol, with a short way for whole data frames.

Every assignment and every report of a worker is such a frame: binary or text, in one piece. These are read and written
here. Everything else (the handshake, pings, the close, fragments, frames that are too large or malformed) is handed to
the library that uvicorn uses, always in whole frames, so that its parser never stands in the middle of one.
"""

from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import apply_mask  # type: ignore[attr-defined]  # in C where it was built
from websockets.http11 import Request

from stoker.api.server.sockets import WRITE
from stoker.wire.websocket import BINARY, MASKED, PING, PONG, TEXT, frame_at, frame_head

_END_OF_HEAD: Final = b"\r\n\r\n"
_LARGE_BYTES: Final = 64 * 1024
"""A larger frame is not copied to save a system call, and nothing is read behind one until it was taken."""
_MESSAGES_AHEAD: Final = 4
"""So many smaller ones may wait to be taken before reading pauses."""


class WorkerProtocol(WebSocketsSansIOProtocol):
    """One worker's connection. A handshake that is refused with an answer is complete: uvicorn would send the answer and
    then log, at the level of an error, that none was given."""

    _by_library = False
    """Whether the library reads all that comes from here on."""
    _missing = 0
    """How many bytes of the frame in `_pieces` have not come yet; 0 if that is not known."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._pieces: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        if self._by_library or not self.handshake_complete:
            # What comes together with the handshake, or before it is answered, stays with the library.
            self._by_library = self._by_library or self.handshake_initiated or not data.endswith(_END_OF_HEAD)
            super().data_received(data)
            return
        if self._pieces:
            self._pieces.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        self._read(data)

    def _read(self, data: bytes) -> None:
        """Take the frames that this data begins with, and keep the beginning of the next one."""
        start, size, self._missing = 0, len(data), 0
        while (frame := frame_at(data, start)) is not None:
            body, end = frame
            kind = data[start]
            if kind not in (TEXT, BINARY, PING, PONG) or end - body > self.config.ws_max_size:
                self._by_library = True
                super().data_received(data[start:])
                return
            if end > size:
                self._missing = end - size
                break
            if kind in (PING, PONG) or not data[start + 1] & MASKED:
                super().data_received(data[start:end])
            else:
                self._take(apply_mask(data[body:end], data[body - 4 : body]), kind == TEXT)
            start = end
        if start < size:
            self._pieces.append(data[start:])

    def _take(self, data: bytes, is_text: bool) -> None:
        """Hand a message to the application; read no more while enough of them wait."""
        if self.close_sent:
            return
        if is_text:
            try:
                self.queue.put_nowait({"type": "websocket.receive", "text": data.decode()})
            except UnicodeDecodeError:
                self.conn.fail(1007, "not UTF-8")
                self.handle_parser_exception()
                return
        else:
            self.queue.put_nowait({"type": "websocket.receive", "bytes": data})
        if not self.read_paused and (self.queue.qsize() >= _MESSAGES_AHEAD or len(data) > _LARGE_BYTES):
            self.read_paused = True
            self.transport.pause_reading()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
            self.scope[WRITE] = self.write  # type: ignore[typeddict-unknown-key]

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

    def write(self, message: bytes | str) -> bool:
        """Send a message at once. Return False, and send nothing, where the client is slow or the connection ends."""
        if self.close_sent or self.disconnected or not self.handshake_complete or not self.writable.is_set():
            return False
        data, kind = (message, BINARY) if isinstance(message, bytes) else (message.encode(), TEXT)
        head = frame_head(kind, len(data))
        if len(data) > _LARGE_BYTES:
            self.transport.write(head)
            self.transport.write(data)
        else:
            self.transport.write(head + data)
        return True
