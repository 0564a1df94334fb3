"""Limits how many jobs one claim takes, by how long the last claims took.

An urgent job waits for the claim that is under way, and that lasts as long as the jobs in it need. Where a claim of
thousands takes more than `LONG_US`, several smaller ones let it through sooner.
"""

from typing import Final

from stoker.domain.placement import PREFETCH_US
from stoker.store.claims import JOBS_MAX

LONG_US: Final = 4 * PREFETCH_US
SHORT_US: Final = 2 * PREFETCH_US
LEAST: Final = 512


class ClaimSize:
    """The limit, halved after a slow claim and doubled after a quick one that reached it."""

    def __init__(self) -> None:
        self.most = JOBS_MAX

    def note(self, count: int, elapsed_us: int) -> bool:
        """Adjust the limit to a claim of this many jobs. Return whether the limit may have cut it short."""
        full = count >= self.most // 2
        if elapsed_us > LONG_US and count > LEAST:
            self.most = max(LEAST, min(self.most, count) // 2)
        elif full and elapsed_us < SHORT_US:
            self.most = min(JOBS_MAX, self.most * 2)
        return full
