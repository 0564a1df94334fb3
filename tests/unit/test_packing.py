"""Output in rows: whatever was written is read again."""

import random
import zlib

import msgspec
import pytest

from stoker.store.logs import Segment
from stoker.store.packing import WORTH_COMPRESSING, entries, packed


def read(raw_bytes: int, data: bytes) -> bytes:
    return b"".join(entry.data for entry in entries(1, 1, raw_bytes, data))


def output_that_compresses_to_its_own_length() -> Segment:
    """Random bytes with an end that repeats itself: what that saves is what compression costs."""
    chance = random.Random(1)
    for noise in range(200, 300):
        for repeated in range(60):
            data = chance.randbytes(noise) + b"a" * repeated
            raw = msgspec.msgpack.encode([Segment("stdout", 0, bytearray(data))])
            if len(zlib.compress(raw, 6)) == len(raw):
                return Segment("stdout", 0, bytearray(data))
    raise AssertionError("there is no such output")


@pytest.mark.parametrize("length", [0, 1, WORTH_COMPRESSING, 5_000])
def test_output_is_read_as_it_was_written(length: int) -> None:
    data = bytes(random.Random(length).choices(b"abc", k=length))
    rows = list(packed([Segment("stdout", 0, bytearray(data))]))
    assert b"".join(read(*row) for row in rows) == data


def test_output_that_does_not_become_smaller_is_kept_as_it_is() -> None:
    segment = output_that_compresses_to_its_own_length()
    (row,) = packed([segment])
    assert read(*row) == bytes(segment.data)


def test_a_row_that_an_earlier_version_compressed_to_its_own_length_is_read() -> None:
    segment = output_that_compresses_to_its_own_length()
    raw = msgspec.msgpack.encode([segment])
    assert read(len(raw), zlib.compress(raw, 6)) == bytes(segment.data)
