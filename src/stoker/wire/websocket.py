"""The head of a WebSocket frame, for the short way that both ends of a worker's connection have for whole data frames.

Every assignment and every report is such a frame: in one piece. Both ends read and write these by themselves, and leave all
else (the handshake, pings, the close, pieces) to the libraries that they use, always in whole frames.
"""

from typing import Final

TEXT: Final = 0x81
BINARY: Final = 0x82
PING: Final = 0x89
PONG: Final = 0x8A
MASKED: Final = 0x80


def frame_at(data: bytes, start: int) -> tuple[int, int] | None:
    """Return where the body of the frame that starts here begins and ends, which may be beyond the data; None where too
    little of its head is there."""
    size = len(data)
    if size < start + 2:
        return None
    length, body = data[start + 1] & 0x7F, start + 2
    if length >= 126:
        body += 2 if length == 126 else 8
        if size < body:
            return None
        length = int.from_bytes(data[start + 2 : body], "big")
    if data[start + 1] & MASKED:
        body += 4
    return body, body + length


def frame_head(kind: int, length: int, masked: int = 0) -> bytes:
    """Return the head of a frame; one with `MASKED` is followed by the mask."""
    if length < 126:
        return bytes((kind, length | masked))
    if length < 1 << 16:
        return bytes((kind, 126 | masked)) + length.to_bytes(2, "big")
    return bytes((kind, 127 | masked)) + length.to_bytes(8, "big")
