"""Shrinks the prefetch of a worker in which jobs start late, and lets it grow back.

The prefetch is measured in run times (`PREFETCH_US` of them per thread). Where a machine is busy with other things, or where
handing over a short job costs more than running it, jobs that were sent ahead of time wait for longer than that, and so
does an urgent one that needs a thread. So the time between sending and starting is watched. When it exceeds `SLOW_US`
the share shrinks; below `QUICK_US` it grows back. What the connection itself takes, the quickest start that was seen on
it, does not count: holding less would help no job there.
"""

from typing import Final

from stoker.domain.placement import PREFETCH_US

QUICK_US: Final = PREFETCH_US
SLOW_US: Final = 2 * PREFETCH_US
LEAST_SHARE: Final = 1 / 16
LEAST_STEP: Final = 1 / 2
"""One late start may be an accident (a checkpoint, a neighbour): it takes no more than half."""
_ABSURD_US: Final = 60_000_000
"""A clock was set, or a machine slept: that says nothing about the prefetch."""


class Pace:
    """The share of its prefetch that one worker gets, between 1/16 and 1."""

    def __init__(self) -> None:
        self.share = 1.0
        self._changed_at = 0
        self._quickest_us = _ABSURD_US

    def note(self, sent_at: int, started_at: int) -> None:
        """Adjust the share to a job of the prefetch that started. Jobs sent before the last adjustment do not count."""
        wait = started_at - sent_at
        if sent_at < self._changed_at <= started_at or not 0 <= wait < _ABSURD_US:
            return
        self._quickest_us = min(wait, self._quickest_us)
        wait -= self._quickest_us
        if wait > SLOW_US:
            self.share = max(LEAST_SHARE, self.share * max(QUICK_US / wait, LEAST_STEP))
            self._changed_at = started_at
        elif wait < QUICK_US and self.share < 1.0:
            self.share = min(1.0, self.share * 1.25)
            self._changed_at = started_at
