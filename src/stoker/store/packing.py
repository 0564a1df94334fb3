"""Packs output into rows: what one write stores of one attempt, together and compressed.

A row holds up to about 64 KiB: many lines of text share a row, and a page can be read without unpacking a whole attempt.
"""

import zlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from stoker.store.logs import Entry, Segment, whole_characters

ROW_BYTES: Final = 64 * 1024
WORTH_COMPRESSING: Final = 200

_ZLIB: Final = b"x"
"""How compressed data begins, and no list in MessagePack does. Earlier versions also stored compressed data that was just as
long as the raw data."""
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(list[Segment]).decode


class Packed(NamedTuple):
    """A row. Its data is compressed if and only if it is shorter than `raw_bytes`."""

    raw_bytes: int
    data: bytes


def packed(segments: Iterable[Segment]) -> Iterator[Packed]:
    """Iterate over the rows for these segments, in order."""
    for row in _rows(segments):
        raw = _pack(row)
        smaller = zlib.compress(raw, 6) if len(raw) > WORTH_COMPRESSING else raw
        yield Packed(len(raw), smaller if len(smaller) < len(raw) else raw)


def entries(claim_id: int, attempt: int, raw_bytes: int, data: bytes) -> list[Entry]:
    """Unpack a row."""
    compressed = len(data) < raw_bytes or data[:1] == _ZLIB
    segments = _unpack(zlib.decompress(data) if compressed else data)
    return [Entry(claim_id, attempt, segment.stream, segment.at, bytes(segment.data)) for segment in segments]


def _rows(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    row: list[Segment] = []
    size = 0
    for part in (part for segment in segments for part in _split(segment)):
        if row and size + len(part.data) > ROW_BYTES:
            yield row
            row, size = [], 0
        row.append(part)
        size += len(part.data)
    if row:
        yield row


def _split(segment: Segment) -> Iterator[Segment]:
    """Split a long segment at line ends where possible, and never inside a character."""
    data = bytes(segment.data)
    while len(data) > ROW_BYTES:
        end = data.rfind(b"\n", 0, ROW_BYTES) + 1 or whole_characters(data, ROW_BYTES)
        yield Segment(segment.stream, segment.at, bytearray(data[:end]))
        data = data[end:]
    if data:
        yield Segment(segment.stream, segment.at, bytearray(data))
