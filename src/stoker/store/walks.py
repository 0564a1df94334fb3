"""How far a list may look: the bounds that keep every page quick, however many jobs there are.

A page is read from one or more sources. A source is an index, or the table, read from the newest job down; each job on the way
is compared with the filter. One request looks at `WALK` jobs at most. Where that is not enough to fill the page, the page ends
early, perhaps without a job, and its cursor leads on: a client that follows cursors sees every job that matches, once. A source
that is known to be small is read whole and sorted instead.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from stoker.domain.errors import TooDeep
from stoker.domain.lifecycle import STATUSES, Status
from stoker.store.base import TOTAL_CAP, Count, JobFilter, JobQuery

WALK: Final = 50_000
"""Jobs that a page may look at, and as many again its total."""
SMALL: Final = 5_000
"""Up to so many jobs of an index are read whole and sorted."""
NAMES: Final = 20_000
"""Up to so many names are searched for a text from end to end."""
ID_PREFIX: Final = 8
"""A text of so many characters that begins an id is taken for an id where there are more names than that."""
SOURCES: Final = 500
"""Up to so many sources are merged into one page; with more, the table is walked."""
MERGED: Final = 200_000
"""Rows that are read, at most, to merge sources up to a page far behind."""
SKIP: Final = 500_000
"""Jobs that `offset` may skip from the nearer end of a list whose length is known."""
ORDER_PAD: Final = 10_000
"""Numbers follow times of creation, but for jobs that were accepted at the same moment or while a clock was set: so many jobs
on either side of a moment are compared one by one."""

_WITH_WORKER: Final[tuple[Status, ...]] = ("running", "completed", "failed", "cancelled")


class Found(NamedTuple):
    """What one source has for a page: numbers of jobs, and the last number that it looked at, if it stopped early."""

    seqs: list[int]
    stopped_at: int | None


class Merged(NamedTuple):
    seqs: list[int]
    next_before_seq: int | None


def merged(found: Sequence[Found], query: JobQuery) -> Merged:
    """Return the page of these sources and the number before which the next one begins; None at the end of the list.

    Nothing older than the newest point at which a source stopped may be shown yet: that source may have a job in between.
    """
    stops = [part.stopped_at for part in found if part.stopped_at is not None]
    floor = max(stops, default=None)
    seqs = sorted((seq for part in found for seq in part.seqs if floor is None or seq >= floor), reverse=True)
    page = seqs[query.offset : query.offset + query.limit]
    if len(seqs) > query.offset + query.limit:
        return Merged(page, page[-1])
    if floor is not None and len(seqs) < query.offset:
        raise TooDeep(query.offset)
    return Merged(page, floor)


def capped_total(matches: int, *, complete: bool) -> tuple[int, bool]:
    """The total of a list and whether there may be more."""
    return min(matches, TOTAL_CAP), matches > TOTAL_CAP or not complete


def present(wanted: JobFilter, counts: Sequence[Count]) -> Counter[Status]:
    """The statuses in which jobs of this filter can be, with the number of jobs of its type and queue in each."""
    statuses = STATUSES if wanted.statuses is None else wanted.statuses
    if wanted.dead_letters or wanted.fingerprint is not None:
        statuses = tuple(status for status in statuses if status == "failed")
    if wanted.worker is not None:
        statuses = tuple(status for status in statuses if status in _WITH_WORKER)
    found: Counter[Status] = Counter()
    for count in counts:
        if (
            count.status in statuses
            and wanted.queue in (None, count.queue)
            and wanted.type in (None, count.type)
        ):
            found[count.status] += count.count
    return Counter({status: found[status] for status in statuses if found[status] > 0})


class Span(NamedTuple):
    """The numbers in which a list looks: from `low` up to, but not including, `high`."""

    low: int
    high: int


class Halving:
    """Finds about the lowest number in a span whose job was created at or after a moment. Look up the first job that is not
    before `probe` and tell what was found, until `probe` is None; then the answer is `low`."""

    def __init__(self, moment: int, span: Span) -> None:
        self._moment = moment
        self.low, self._high = span

    @property
    def probe(self) -> int | None:
        return (self.low + self._high) // 2 if self.low < self._high else None

    def tell(self, seq: int, created_at: int) -> None:
        """The first job that is not before the probe. There is one, because the last number of a span has a job."""
        if created_at >= self._moment:
            self._high = (self.low + self._high) // 2
        else:
            self.low = seq + 1
