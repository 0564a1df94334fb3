"""What a supervisor and its children say to each other over a socket pair: length-prefixed MessagePack.

Times are readings of CLOCK_MONOTONIC, which all processes of one machine share. Each job sent to a child has an index
that only grows; results name it.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from stoker.domain.retry import Kind

HEADER_BYTES: Final = 4
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024


class ChildJob(msgspec.Struct, array_like=True, frozen=True):
    index: int
    id: str
    claim_id: int
    type: str
    payload: bytes
    attempt: int
    max_attempts: int
    threads: int
    queue: str
    name: str | None
    metadata: dict[str, str]


class ChildResult(msgspec.Struct, array_like=True, frozen=True):
    index: int
    kind: Kind
    result: bytes | None
    error: bytes | None
    started: float
    finished: float


class Ready(msgspec.Struct, array_like=True, frozen=True):
    """The first thing a child says: the types it can run, or why it cannot start."""

    types: list[str]
    error: str | None = None


_ENCODER: Final = msgspec.msgpack.Encoder()
JOBS: Final = msgspec.msgpack.Decoder(list[ChildJob])
RESULTS: Final = msgspec.msgpack.Decoder(list[ChildResult])
READY: Final = msgspec.msgpack.Decoder(Ready)


def pack(message: object) -> bytes:
    body = _ENCODER.encode(message)
    return len(body).to_bytes(HEADER_BYTES, "little") + body


class Unpacker:
    """Cuts a stream of bytes back into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._buffer += data
        while len(self._buffer) >= HEADER_BYTES:
            size = int.from_bytes(self._buffer[:HEADER_BYTES], "little")
            if size > MAX_FRAME_BYTES:
                raise ValueError(f"a message of {size} bytes")
            end = HEADER_BYTES + size
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[HEADER_BYTES:end])
            del self._buffer[:end]
            yield body
