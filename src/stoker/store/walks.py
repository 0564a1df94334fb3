"""How far a list may look: the bounds that keep every page quick, however many jobs there are.

A page is read from one or more sources. A source is an index, or the table, read from the newest job down; each job on the
way is compared with the filter. One request looks at `WALK` jobs at most. Where that is not enough to fill the page, the
page ends early, perhaps without a job, and its cursor leads on: a client that follows cursors sees every job that matches,
once. A source that is known to be small is read whole and sorted instead.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, get_args

from stoker.domain.errors import TooDeep
from stoker.domain.job import PriorityOrder, rank_of
from stoker.domain.lifecycle import STATUSES, Status
from stoker.store.reads import TOTAL_CAP, Count, JobFilter, JobQuery

WALK: Final = 30_000
"""Jobs of a table that a page may look at; behind the first page its total looks at as many again."""
CHUNK: Final = 5_000
"""Jobs that a source looks at before another one has its turn."""
LOOKUP: Final = 4
"""A job that is looked up from an index costs so many times as much as the next one of a table."""
SMALL: Final = 5_000
"""Up to so many jobs of an index are read whole and sorted."""
NAMES: Final = 20_000
"""Up to so many names are searched for a text from end to end."""
ID_PREFIX: Final = 8
"""A text of so many characters that begins an id is taken for an id where there are more names than that."""
SOURCES: Final = 200
"""Up to so many sources are merged into one page; with more, the table is walked."""
PLAIN_PAIRS: Final = 1_000
"""Up to so many lanes and ranks in which every job matches are read abreast."""
PAIRS: Final = 4_000
"""Up to so many lanes and ranks are looked through for those of a filter."""
DEEP: Final = 20_000
"""Beyond this offset only lists whose length is known are counted through."""
MERGED: Final = 200_000
"""Rows that are read, at most, to merge sources up to a page far behind."""
ABREAST: Final = 16
"""Jobs that are read of each lane and rank before it is known which of them go on, or more for a large page."""
SKIP: Final = 500_000
"""Jobs that `offset` may skip from the nearer end of a list whose length is known."""
ORDER_PAD: Final = 10_000
"""Numbers follow times of creation, but for jobs that were accepted at the same moment or while a clock was set: so many
jobs on either side of a moment are compared one by one."""

_WITH_WORKER: Final[tuple[Status, ...]] = ("running", "completed", "failed", "cancelled")


class Merged(NamedTuple):
    """Numbers of the jobs of a page, and the number before which the next one begins; None at the end of the list."""

    seqs: list[int]
    next_before_seq: int | None


class Merging:
    """Decides how far each source of a page is walked, and puts together what they find.

    Nothing older than the newest point that a source has reached may be shown yet: that source may have a job in between. So
    it is always that source which walks on, until `take` jobs are known to be the newest and `goal` are known to match, or
    `WALK` jobs were looked at, or every source is at its end.
    """

    def __init__(self, tops: Sequence[int | None], lookups: Sequence[bool], take: int, goal: int = 0) -> None:
        """`tops` has a number above all that each source has, or None for one without jobs; `lookups` says of each whether
        its jobs are looked up from an index."""
        self._lookups = lookups
        self._reached = {place: top for place, top in enumerate(tops) if top is not None}
        self._left = WALK
        self._take = take
        self._goal = goal
        self._seqs: list[int] = []
        self._matches = 0

    @property
    def wanting(self) -> int:
        """How many jobs are missing from the goal."""
        return max(self._goal - self._matches, 0)

    def next(self) -> tuple[int, int, int] | None:
        """The source that walks on, the number before which it does, and how many jobs it looks at; None at the end."""
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
        """Take in what a source found on its way; where it looked at less than it might, it is at its end."""
        self._seqs += seqs
        self._matches += len(seqs)
        self._left -= looked_at * (LOOKUP if self._lookups[source] else 1)
        if looked_at < self._chunk(source) or lowest is None:
            del self._reached[source]
        else:
            self._reached[source] = lowest

    def ended(self, source: int, seqs: Sequence[int], matches: int | None = None) -> None:
        """Take in all of a source that the page can need; `matches` says how many it has, if not these."""
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
        """The total of a list that was walked from its top, and whether there may be more."""
        return min(self._matches, TOTAL_CAP), self._matches > TOTAL_CAP or bool(self._reached)


class Abreast:
    """Finds the newest jobs of many sources in which every job matches. All are read a few jobs at a time, and one that has
    come below the newest `take` of what was found has nothing more to add: so it costs the number of sources and the length
    of the page, not their product."""

    def __init__(self, sources: int, high: int, take: int) -> None:
        self._take = take
        self._each = max(ABREAST, 2 * take // max(sources, 1))
        self._reached = dict.fromkeys(range(sources), high)
        self._seqs: list[int] = []

    def next(self) -> tuple[dict[int, int], int]:
        """The sources that go on, each with the number before which it does, and how many jobs each reads; none at the
        end."""
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
        """What each of those sources has there, highest first."""
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
    """The statuses in which jobs of this filter can be, with the number of jobs of its type and queue in each."""
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
    """Whether a filter asks for these fields alone."""
    return wanted == JobFilter(**{field: getattr(wanted, field) for field in fields})


def ranks_of(priority: int) -> list[int]:
    """The ranks that can stand for a priority: which of them does, depends on the order that a database was made with."""
    return sorted({rank_of(priority, order) for order in get_args(PriorityOrder)})


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
