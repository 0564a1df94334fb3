"""Waits and runs of the last minute, in buckets that grow by a fifth each: enough for a percentile, and of constant size."""

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Final

SPAN_SECONDS: Final = 60.0
SLICE_SECONDS: Final = 5.0
PER_OCTAVE: Final = 4

Buckets = Mapping[int, int]
"""How many durations fell into which bucket; only those in which there are any."""


def bucket_of(us: int) -> int:
    return int(PER_OCTAVE * math.log2(us + 1)) if us > 0 else 0


def in_buckets(durations_us: Iterable[int]) -> Counter[int]:
    return Counter(map(bucket_of, durations_us))


def percentile(buckets: Buckets, share: float) -> float | None:
    """Return the duration, in seconds, that this share of them does not exceed; None when there are none."""
    wanted = share * sum(buckets.values())
    seen = 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= wanted and seen:
            return round((2 ** ((bucket + 0.5) / PER_OCTAVE) - 1) / 1e6, 6)
    return None


class LastMinute:
    """Buckets in slices of a few seconds; the oldest slice is forgotten whole."""

    def __init__(self) -> None:
        self._slices: deque[tuple[int, Counter[int]]] = deque()

    def add(self, buckets: Buckets, now: float) -> None:
        number = int(now / SLICE_SECONDS)
        if not self._slices or self._slices[-1][0] != number:
            self._slices.append((number, Counter()))
        self._slices[-1][1].update(buckets)
        self._forget(number)

    def buckets(self, now: float) -> Counter[int]:
        self._forget(int(now / SLICE_SECONDS))
        total: Counter[int] = Counter()
        for _, buckets in self._slices:
            total.update(buckets)
        return total

    def _forget(self, number: int) -> None:
        while self._slices and self._slices[0][0] <= number - SPAN_SECONDS / SLICE_SECONDS:
            self._slices.popleft()
