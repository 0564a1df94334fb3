"""Rows of the time series, as both stores keep them."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from stoker.domain.series import KEPT_SEC, SECOND, GaugeRow, Gauges, Histogram, Tally, TallyRow

SERIES_CHUNK_SEC: Final = 600
"""Series that are too old are deleted in parts of this length."""
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(Histogram).decode


def old_spans(now: int) -> Iterator[tuple[int, int, int]]:
    """Return, for each length of buckets, what is too old: (length in seconds, until when, how much to delete at a time)."""
    for bucket_sec, kept_sec in KEPT_SEC.items():
        yield bucket_sec, now - kept_sec * SECOND, SERIES_CHUNK_SEC * SECOND


def tally_values(row: TallyRow) -> tuple[Any, ...]:
    tally = row.tally
    return (
        row.bucket_sec,
        row.at,
        row.queue,
        row.type,
        tally.submitted,
        tally.completed,
        tally.failed,
        tally.cancelled,
        tally.retried,
        tally.queue_depth_max,
        _pack(tally.wait),
        _pack(tally.run),
    )


def tally_of(row: Sequence[Any]) -> TallyRow:
    bucket_sec, at, queue, type, submitted, completed, failed, cancelled, retried, depth, wait, run = row
    tally = Tally(submitted, completed, failed, cancelled, retried, depth, _unpack(wait), _unpack(run))
    return TallyRow(bucket_sec, at, queue, type, tally)


def gauge_values(row: GaugeRow) -> tuple[Any, ...]:
    return (row.bucket_sec, row.at, *astuple(row.gauges))


def gauge_of(row: Sequence[Any]) -> GaugeRow:
    return GaugeRow(row[0], row[1], Gauges(*row[2:]))
