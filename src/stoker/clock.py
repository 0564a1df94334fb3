"""Time, handed down rather than reached for, so that a test or a simulation can own it.

`now_us` is wall-clock time in integer microseconds, UTC: what is stored and shown. `monotonic` only measures
durations inside one process: leases held by a worker, timeouts, rates.
"""

import time
from typing import Protocol

SECOND = 1_000_000
"""Microseconds in a second; times are integers of microseconds everywhere in the store."""


class Clock(Protocol):
    def now_us(self) -> int: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The machine's own clock."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()
