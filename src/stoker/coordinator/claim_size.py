"""Limits how many jobs one claim takes, by how long the last claims took.

An urgent job waits for the claim that is under way, and that lasts as long as the jobs in it need. Where a claim of
thousands takes more than `LONG_US`, several smaller ones let it through sooner.
"""

from typing import Final

from stoker.domain.placement import PREFETCH_US, WorkerView

LONG_US: Final = 4 * PREFETCH_US
SHORT_US: Final = 2 * PREFETCH_US
LEAST: Final = 512
MOST: Final = 65_536


class ClaimSize:
    """The limit, halved after a slow claim and doubled after a quick one that reached it."""

    def __init__(self) -> None:
        self.most = MOST
        self._limited = False

    def limit(self, views: list[WorkerView]) -> None:
        """Divide the limit among these workers."""
        each = self.most // len(views) + 1
        self._limited = any(view.room > each for view in views)
        if self._limited:
            for view in views:
                view.room = min(view.room, each)

    def note(self, count: int, elapsed_us: int) -> bool:
        """Adjust the limit to a claim of this many jobs. Return whether the limit may have cut it short."""
        full = self._limited and count >= self.most // 2
        if elapsed_us > LONG_US and count > LEAST:
            self.most = max(LEAST, min(self.most, count) // 2)
        elif full and elapsed_us < SHORT_US:
            self.most = min(MOST, self.most * 2)
        return full
