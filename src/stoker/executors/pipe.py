"""What a supervisor and its Python children say to each other over a socket pair: length-prefixed MessagePack.

Times are readings of CLOCK_MONOTONIC, which all processes of one machine share. Each job sent to a child has an index
that only grows; results and output name it.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from stoker.domain.retry import Kind
from stoker.wire.frames import Stream

HEADER_BYTES: Final = 4
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024

# ── supervisor → child ─────────────────────────────────────────────────────────────────────────────────────────────


class ChildJob(msgspec.Struct, array_like=True, frozen=True, gc=False):
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
    memory_mb: int | None = None
    cpus: list[int] | None = None


class Jobs(msgspec.Struct, array_like=True, frozen=True, tag="j"):
    jobs: list[ChildJob]


class CancelJob(msgspec.Struct, array_like=True, frozen=True, tag="c"):
    """Only for children that run many jobs at once; the others see the board."""

    index: int


ToChild = Jobs | CancelJob

# ── child → supervisor ─────────────────────────────────────────────────────────────────────────────────────────────


class Ready(msgspec.Struct, array_like=True, frozen=True, tag="y"):
    """The first thing a child says: the types it can run, or why it cannot start."""

    types: list[str]
    async_types: list[str] = []
    error: str | None = None
    about: dict[str, dict[str, Any]] = {}
    """What tasks of the user's app say of themselves: `description` and `schema`."""


class ChildResult(msgspec.Struct, array_like=True, frozen=True, gc=False):
    index: int
    kind: Kind
    result: bytes | None
    error: bytes | None
    started: float
    finished: float
    cpu_us: int | None = None
    peak_memory_kb: int | None = None


class Results(msgspec.Struct, array_like=True, frozen=True, tag="r"):
    results: list[ChildResult]


class Printed(msgspec.Struct, array_like=True, frozen=True, tag="o"):
    """What a job wrote."""

    index: int
    stream: Stream
    data: bytes


class Progressed(msgspec.Struct, array_like=True, frozen=True, tag="p"):
    index: int
    done: float
    total: float | None
    message: str | None


FromChild = Ready | Results | Printed | Progressed

_ENCODER: Final = msgspec.msgpack.Encoder()
TO_CHILD: Final[msgspec.msgpack.Decoder[ToChild]] = msgspec.msgpack.Decoder(ToChild)
FROM_CHILD: Final[msgspec.msgpack.Decoder[FromChild]] = msgspec.msgpack.Decoder(FromChild)


def pack(message: ToChild | FromChild) -> bytes:
    body = _ENCODER.encode(message)
    return len(body).to_bytes(HEADER_BYTES, "little") + body


class Unpacker:
    """Cuts a stream of bytes back into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= HEADER_BYTES:
            size = int.from_bytes(self._buffer[start : start + HEADER_BYTES], "little")
            if size > MAX_FRAME_BYTES:
                raise ValueError(f"a message of {size} bytes")
            end = start + HEADER_BYTES + size
            if len(self._buffer) < end:
                break
            body = bytes(self._buffer[start + HEADER_BYTES : end])
            start = end
            yield body
        del self._buffer[:start]
