"""The bounds that keep every page of a list quick, however many jobs there are.

A page is read from one or more sources. A source is an index, or the table, walked from the newest job down; each job on the
way is compared with the filter. One request looks at about `WALK` jobs at most. If that does not fill the page, the page
ends early, perhaps empty, with a cursor: a client that follows cursors sees every matching job once. A source that is known
to be small is read whole and sorted instead.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, get_args

from stoker.domain.errors import TooDeep
from stoker.domain.job import PriorityOrder, rank_of
from stoker.domain.lifecycle import STATUSES, Status
from stoker.store.reads import TOTAL_CAP, Count, JobFilter, JobQuery

WALK: Final = 30_000
"""Jobs of a table that a page may look at. From the second page on, counting the total may look at as many again."""
CHUNK: Final = 5_000
"""Jobs of a source that one step of a walk looks at."""
LOOKUP: Final = 4
"""The cost of looking up a job from an index, in jobs that are read in the order of the table."""
SMALL: Final = 5_000
"""The most jobs of an index that are read whole and sorted."""
NAMES: Final = 20_000
"""The most names that are all searched for a text."""
ID_PREFIX: Final = 8
"""With more than `NAMES` names, a text of at least this length that begins an id is searched in ids only."""
SOURCES: Final = 200
"""The most sources that are merged into one page; with more, the table is walked."""
PLAIN_PAIRS: Final = 1_000
"""The most pairs of lane and rank that are merged when every job in them matches (`Abreast`)."""
PAIRS: Final = 4_000
"""The most pairs of lane and rank that are searched for those of a filter."""
DEEP: Final = 20_000
"""The largest offset into a list whose length is not known."""
MERGED: Final = 200_000
"""The most rows that are read to merge sources up to a page with a large offset."""
ABREAST: Final = 16
"""Jobs that `Abreast` reads of each source in its first step, or more for a large page."""
SKIP: Final = 500_000
"""Jobs that `offset` may skip from the nearer end of a list whose length is known."""
ORDER_PAD: Final = 10_000
"""Sequence numbers follow creation times, except for jobs that were accepted concurrently or while a clock was set. So this
many jobs on either side of a moment are compared one by one."""

_WITH_WORKER: Final[tuple[Status, ...]] = ("running", "completed", "failed", "cancelled")


class Merged(NamedTuple):
    """The sequence numbers of a page, and the one before which the next page begins; None at the end of the list."""

    seqs: list[int]
    next_before_seq: int | None


class Merging:
    """Decides how far each source of a page is walked, and merges what they find.

    The source that has come least far decides which jobs can be shown: below its position it may have a match that belongs
    in between. So the next step is always on that source, until `take` jobs are known to be the newest and `goal` matches
    are counted, or `WALK` jobs were looked at, or every source is at its end.
    """

    def __init__(self, tops: Sequence[int | None], lookups: Sequence[bool], take: int, goal: int = 0) -> None:
        """`tops` has for each source a number above all its sequence numbers, or None if it has no jobs; `lookups` has for
        each whether its jobs are looked up from an index."""
        self._lookups = lookups
        self._reached = {place: top for place, top in enumerate(tops) if top is not None}
        self._left = WALK
        self._take = take
        self._goal = goal
        self._seqs: list[int] = []
        self._matches = 0

    @property
    def wanting(self) -> int:
        """Return how many matches are missing from the goal."""
        return max(self._goal - self._matches, 0)

    def next(self) -> tuple[int, int, int] | None:
        """Return the next step: the source, the number to walk down from, and how many jobs to look at; None at the end."""
        floor = self._floor
        if floor is None or self._left <= 0:
            return None
        if not self.wanting and sum(seq >= floor for seq in self._seqs) >= self._take:
            return None
        source = next(source for source, reached in self._reached.items() if reached == floor)
        return source, floor, self._chunk(source)

    def _chunk(self, source: int) -> int:
        return CHUNK // LOOKUP if self._lookups[source] else CHUNK

    def walked(self, source: int, seqs: Sequence[int], looked_at: int, lowest: int | None) -> None:
        """Add the matches of a step. A source that looked at fewer jobs than it was allowed is at its end."""
        self._seqs += seqs
        self._matches += len(seqs)
        self._left -= looked_at * (LOOKUP if self._lookups[source] else 1)
        if looked_at < self._chunk(source) or lowest is None:
            del self._reached[source]
        else:
            self._reached[source] = lowest

    def ended(self, source: int, seqs: Sequence[int], matches: int | None = None) -> None:
        """Add all jobs of a source that the page can need. `matches` is how many it has, if that is not their number."""
        self._seqs += seqs
        self._matches += len(seqs) if matches is None else matches
        self._reached.pop(source, None)

    @property
    def _floor(self) -> int | None:
        return max(self._reached.values(), default=None)

    def page(self, query: JobQuery) -> Merged:
        floor = self._floor
        seqs = sorted((seq for seq in self._seqs if floor is None or seq >= floor), reverse=True)
        page = seqs[query.offset : query.offset + query.limit]
        if len(seqs) > query.offset + query.limit:
            return Merged(page, page[-1])
        if floor is not None and len(seqs) < query.offset:
            raise TooDeep(query.offset)
        return Merged(page, floor)

    def total(self) -> tuple[int, bool]:
        """Return the total of a list that was walked from its top, and whether there may be more."""
        return min(self._matches, TOTAL_CAP), self._matches > TOTAL_CAP or bool(self._reached)


class Abreast:
    """Finds the newest `take` jobs of many sources in which every job matches. Each step reads a few jobs of each source and
    drops the sources that are already below the newest `take`. So the cost is the number of sources plus the length of the
    page, not their product."""

    def __init__(self, sources: int, high: int, take: int) -> None:
        self._take = take
        self._each = max(ABREAST, 2 * take // max(sources, 1))
        self._reached = dict.fromkeys(range(sources), high)
        self._seqs: list[int] = []

    def next(self) -> tuple[dict[int, int], int]:
        """Return the sources of the next step, each with the number to read down from, and how many jobs to read of each. At
        the end there are no sources."""
        self._seqs = sorted(self._seqs, reverse=True)[: self._take]
        if len(self._seqs) == self._take:
            lowest = self._seqs[-1] if self._seqs else 0
            self._reached = {
                source: reached
                for source, reached in self._reached.items()
                if self._take and reached > lowest
            }
        return dict(self._reached), self._each

    def read(self, found: Mapping[int, Sequence[int]]) -> None:
        """Add what was read of each source, highest first."""
        for source in list(self._reached):
            seqs = found.get(source, ())
            self._seqs += seqs
            if len(seqs) < self._each:
                del self._reached[source]
            else:
                self._reached[source] = seqs[-1]
        self._each *= 2

    @property
    def seqs(self) -> list[int]:
        return self._seqs


def present(wanted: JobFilter, counts: Sequence[Count]) -> Counter[Status]:
    """Return the statuses that matching jobs can have, with the number of jobs of the filter's type and queue in each."""
    statuses = STATUSES if wanted.statuses is None else wanted.statuses
    types = wanted.text_types if wanted.text is None and not wanted.text_failures else ()
    failures = wanted.text_failures if wanted.text is None and not wanted.text_types else ()
    if wanted.dead_letters or wanted.fingerprint is not None or failures:
        statuses = tuple(status for status in statuses if status == "failed")
    if wanted.worker is not None:
        statuses = tuple(status for status in statuses if status in _WITH_WORKER)
    found: Counter[Status] = Counter()
    for count in counts:
        if (
            count.status in statuses
            and wanted.queue in (None, count.queue)
            and wanted.type in (None, count.type)
            and (not types or count.type in types)
        ):
            found[count.status] += count.count
    return Counter({status: found[status] for status in statuses if found[status] > 0})


def only(wanted: JobFilter, *fields: str) -> bool:
    """Return whether a filter has no other fields than these."""
    return wanted == JobFilter(**{field: getattr(wanted, field) for field in fields})


def ranks_of(priority: int) -> list[int]:
    """Return the ranks that a priority has in either priority order."""
    return sorted({rank_of(priority, order) for order in get_args(PriorityOrder)})


class Span(NamedTuple):
    """A range of sequence numbers, from `low` up to but not including `high`."""

    low: int
    high: int


class Halving:
    """A binary search for about the lowest number in a span whose job was created at or after a moment. Look up the first
    job with a number of at least `probe` and pass it to `tell`, until `probe` is None; then the answer is `low`."""

    def __init__(self, moment: int, span: Span) -> None:
        self._moment = moment
        self.low, self._high = span

    @property
    def probe(self) -> int | None:
        return (self.low + self._high) // 2 if self.low < self._high else None

    def tell(self, seq: int, created_at: int) -> None:
        """Take the first job at or above the probe. There is one, because the last number of a span has a job."""
        if created_at >= self._moment:
            self._high = (self.low + self._high) // 2
        else:
            self.low = seq + 1
