"""The first job of each lane that has no room, remembered for a moment.

A job that cannot be placed keeps lower ranks from the places that it waits for (`stoker.domain.placement`), so a claim
has to know it although it will not claim it. Many lanes may wait in that way while others are served in hundreds of
claims a second: what was read once is kept for `KEEP_US`, unless the lane was given new jobs, or was read in earnest.

What is remembered may be out of date (cancelled, or claimed by another coordinator). It then holds others back until a
thread is free, and no longer: a free thread makes room, and with room the lane is read in earnest.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from stoker.domain.job_batch import JobBatch

KEEP_US: Final = 100_000


def without_room(rooms: Mapping[int, int]) -> list[int]:
    """Return the lanes of which nothing can be placed, if there are others of which something can."""
    blocked = [lane_id for lane_id, room in rooms.items() if not room]
    return blocked if len(blocked) < len(rooms) else []


def one_more(rooms: Mapping[int, int]) -> int:
    """Return how many jobs beyond its room are read of a lane that has some: one, so that the plan knows of it if more
    wait than can be placed; none where there is no other lane that it could hold back."""
    return 1 if len(rooms) > 1 else 0


class FirstInLine:
    def __init__(self) -> None:
        self._known: dict[int, tuple[int, JobBatch | None]] = {}

    def recall(self, lanes: Iterable[int], now: int) -> dict[int, JobBatch | None]:
        """Return what is known of these lanes and not too old; None stands for a lane that was empty."""
        found: dict[int, JobBatch | None] = {}
        for lane_id in lanes:
            at, batch = self._known.get(lane_id, (now - KEEP_US, None))
            if 0 <= now - at < KEEP_US:
                found[lane_id] = batch
        return found

    def remember(self, read: Mapping[int, JobBatch | None], now: int) -> None:
        for lane_id, batch in read.items():
            self._known[lane_id] = (now, batch)

    def forget(self, lanes: Iterable[int]) -> None:
        """Jobs came to these lanes, or went from them."""
        if self._known:
            for lane_id in lanes:
                self._known.pop(lane_id, None)

    def forget_all(self) -> None:
        self._known.clear()
