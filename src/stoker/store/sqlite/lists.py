"""Lists of jobs from the SQLite store, newest first, within the bounds of `stoker.store.walks`.

The filter decides which sources a page is read from:

- Jobs with a name, and failed, cancelled, scheduled, blocked and dead ones, have indexes ordered by `seq`.
- Queued jobs are ordered by `seq` within each pair of lane and rank, so pairs are merged, if there are not too many.
- Running jobs, jobs of one fingerprint, and jobs whose id, name or error matches a text are read whole while they are few.
  A text that matches names of types also has the sources of these types.
- For everything else the table is walked. A long backlog may be newer than all completed jobs, so a walk for these begins at
  the highest `seq` that ever completed, which the writer keeps in memory.

The counts tell at once when nothing matches: a status without jobs of that type and queue is not searched.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import apsw
from msgspec.structs import replace

from stoker.domain.errors import TooDeep
from stoker.domain.lifecycle import Status
from stoker.store.queries import json_text, like_part
from stoker.store.reads import TOTAL_CAP, Count, JobFilter, JobQuery, counted, id_range, is_counted
from stoker.store.sqlite.filters import Q, filter_sql, union
from stoker.store.walks import (
    ABREAST,
    DEEP,
    ID_PREFIX,
    MERGED,
    NAMES,
    ORDER_PAD,
    PAIRS,
    PLAIN_PAIRS,
    SKIP,
    SMALL,
    SOURCES,
    WALK,
    Abreast,
    Halving,
    Merged,
    Merging,
    Span,
    only,
    present,
    ranks_of,
)

_IN_ORDER: Final[dict[Status, str]] = {
    "failed": "jobs_failed",
    "cancelled": "jobs_cancelled",
    "blocked": "jobs_blocked",
    "scheduled": "jobs_scheduled",
}
"""Statuses with an index ordered by `seq`."""
_WHOLE: Final[dict[Status, str]] = {
    "scheduled": "jobs_due",
    "running": "jobs_running",
    "queued": "jobs_ready",
}
"""Statuses with an index in another order."""


class SqliteListSource(NamedTuple):
    """An index or the table, from which jobs are read, newest first, and compared with `wanted`."""

    index_sql: str
    wanted: JobFilter
    key: str = "1"
    values: tuple[Any, ...] = ()
    whole: bool = False
    """Few enough to be read and sorted."""
    most: int | None = None
    """How many of them can match at most, where counters know it."""
    plain: bool = False
    """Whether the index has nothing that does not match."""
    but: JobFilter = JobFilter()
    """Jobs that another source has, which are passed over: no job may come from two sources."""
    pairs: tuple[tuple[int, int], ...] = ()
    """The pairs of lane and rank that the source merges; each is the values of `key`."""
    walk: str = "walk"
    """The name of the statement that walks the source."""

    @property
    def lookup(self) -> bool:
        return self.index_sql != "NOT INDEXED"

    @property
    def exact(self) -> bool:
        """Return whether the source needs no walk in steps: every job matches, or there are few."""
        return self.whole or self.plain


class SqliteLists:
    """Reads pages of jobs and their totals, over one connection. `completed_to` returns the highest `seq` that ever
    completed, or None while that is not known."""

    def __init__(self, db: apsw.Connection, completed_to: Callable[[], int | None]) -> None:
        self._db = db
        self._completed_to = completed_to

    def page(self, query: JobQuery, counts: Sequence[Count]) -> tuple[Merged, int, bool]:
        """Return the sequence numbers of a page, the total of its list, and whether the total was capped."""
        wanted = query.filter
        sources = self._sources(wanted, counts)
        whole = span = self._span(wanted)
        if query.before_seq is not None:
            span = span._replace(high=min(span.high, query.before_seq))
        take = query.offset + query.limit + 1
        ways = sum(len(source.pairs) or 1 for source in sources)
        if ways > 1 and (len(sources) + 2) * take + ways * ABREAST > MERGED:
            sources = [SqliteListSource("NOT INDEXED", wanted)]
        if is_counted(wanted):
            total = counted(counts, wanted)
            if len(sources) == 1 and not sources[0].pairs:
                return self._skipping(query, sources[0], span, total), total, False
            return self._merging(sources, span, take, 0).page(query), total, False
        if query.offset > DEEP:
            raise TooDeep(query.offset)
        first = query.before_seq is None
        merging = self._merging(sources, span, take, TOTAL_CAP + 1 if first else 0)
        from_top = merging if first else self._merging(sources, whole, 0, TOTAL_CAP + 1)
        return merging.page(query), *from_top.total()

    def _merging(self, sources: Sequence[SqliteListSource], span: Span, take: int, goal: int) -> Merging:
        """Walk the sources until `take` jobs are found for a page, and `goal` are counted."""
        tops = [None if source.exact else self._top(source, span) for source in sources]
        merging = Merging(tops, [source.lookup for source in sources], take, goal)
        for place, source in enumerate(sources):
            if source.whole:
                merging.ended(place, self._matches(source, span, max(take, merging.wanting)))
            elif source.plain:
                merging.ended(
                    place, self._newest(source, span, take), self._length(source, span, merging.wanting)
                )
        while (walk := merging.next()) is not None:
            place, high, chunk = walk
            below = span._replace(high=high)
            seqs = self._matches(sources[place], below, chunk, chunk)
            merging.walked(place, seqs, *self._walked(sources[place], below, chunk))
        return merging

    def _newest(self, source: SqliteListSource, span: Span, take: int) -> list[int]:
        """Return the newest jobs of a plain source."""
        if not source.pairs:
            return self._matches(source, span, take)
        abreast = Abreast(len(source.pairs), span.high, take)
        while (going := abreast.next())[0]:
            reached, each = going
            abreast.read(
                {
                    place: self._matches(self._pair(source, place), span._replace(high=high), each)
                    for place, high in reached.items()
                }
            )
        return abreast.seqs

    def _length(self, source: SqliteListSource, span: Span, most: int) -> int:
        """Return how many jobs a plain source has, counting no further than `most`."""
        found = 0
        for place in range(len(source.pairs) or 1):
            if found >= most:
                break
            part = self._pair(source, place) if source.pairs else source
            found += int(self._walked(part, span, most - found)[0])
        return found

    def _pair(self, source: SqliteListSource, place: int) -> SqliteListSource:
        return source._replace(values=source.pairs[place], pairs=())

    def _top(self, source: SqliteListSource, span: Span) -> int | None:
        """Return a number above all sequence numbers of a source; None if it is empty."""
        if not source.lookup:
            return self._within(source, span).high
        _, highest = self._walked(source, span, 1)
        return None if highest is None else int(highest) + 1

    # ── which sources ──────────────────────────────────────────────────────────────────────────────────────────────

    def _sources(self, wanted: JobFilter, counts: Sequence[Count]) -> list[SqliteListSource]:
        """Return the sources of the jobs that match a filter; none when the counts show that no job does."""
        found_in = present(wanted, counts)
        if not found_in:
            return []
        if wanted.name is not None:
            plain = only(wanted, "name")
            return [SqliteListSource("INDEXED BY jobs_name", wanted, "name = ?", (wanted.name,), plain=plain)]
        if wanted.metadata and wanted.text is None:
            return [self._described(wanted)]
        if wanted.text is not None and (found := self._searched(wanted, counts)) is not None:
            return found
        if wanted.fingerprint is not None and (few := self._few_alike(wanted)) is not None:
            return [few]
        if (
            found_in == (everything := present(JobFilter(), counts))
            and (wanted.type, wanted.queue, wanted.priority) == (None,) * 3
        ):
            return [SqliteListSource("NOT INDEXED", wanted)]
        return self._by_status(wanted, found_in, everything)

    def _by_status(
        self, wanted: JobFilter, found_in: Counter[Status], everything: Counter[Status]
    ) -> list[SqliteListSource]:
        found: list[SqliteListSource] = []
        walked: dict[Status, int] = {}
        for status, number in found_in.items():
            part = replace(wanted, status=status)
            if status == "failed" and wanted.dead_letters:
                key = "status = 'failed' AND discarded_at IS NULL"
                part = replace(part, status=None)
                found.append(
                    SqliteListSource("INDEXED BY jobs_dead", part, key, plain=only(part, "dead_letters"))
                )
            elif status in _IN_ORDER:
                index, key = f"INDEXED BY {_IN_ORDER[status]}", f"status = '{status}'"
                found.append(SqliteListSource(index, part, key, plain=only(part, "status")))
            elif everything[status] <= SMALL and status in _WHOLE:
                found.append(
                    SqliteListSource(f"INDEXED BY {_WHOLE[status]}", part, f"status = '{status}'", whole=True)
                )
            elif status == "queued" and (pairs := self._pairs(part)) is not None:
                found += pairs
            else:
                walked[status] = number
        if walked:
            found.append(
                SqliteListSource(
                    "NOT INDEXED", replace(wanted, status=tuple(walked)), most=sum(walked.values())
                )
            )
        return found

    def _pairs(self, wanted: JobFilter) -> list[SqliteListSource] | None:
        """Return sources for the pairs of lane and rank in which matching jobs are queued; None if there are too many."""
        types = json_text(wanted.text_types) if wanted.text is None and wanted.text_types else None
        lanes = self._db.execute(
            Q["matching_lanes"],
            (wanted.queue, wanted.queue, wanted.type, wanted.type, types, types, SOURCES + 1),
        ).fetchall()
        if len(lanes) > SOURCES:
            return None
        ids = json_text([lane for (lane,) in lanes])
        if wanted.priority is None:
            rows: list[Any] = self._db.execute(Q["pairs_of_lanes"], (ids, PAIRS)).fetchall()
        else:
            ranks = json_text(ranks_of(wanted.priority))
            rows = self._db.execute(Q["pairs_of_priority"], (ids, ranks, wanted.priority)).fetchall()
        pairs = tuple((lane, rank) for lane, rank, _ in rows)
        plain = only(wanted, "status", "type", "queue", "priority", "text_types")
        if len(rows) == PAIRS or len(pairs) > (PLAIN_PAIRS if plain else SOURCES):
            return None
        key = "status = 'queued' AND lane_id = ? AND rank = ?"
        if pairs and plain:
            return [SqliteListSource("INDEXED BY jobs_ready", wanted, key, plain=True, pairs=pairs)]
        return [SqliteListSource("INDEXED BY jobs_ready", wanted, key, pair) for pair in pairs]

    def _searched(self, wanted: JobFilter, counts: Sequence[Count]) -> list[SqliteListSource] | None:
        """Return the sources of a search for text; None if it must be compared job by job."""
        text = wanted.text or ""
        ids = id_range(text) or ("", "")
        few_ids = self._at_most(SMALL, Q["ids_between"], *ids)
        names = like_part(text)
        parts, values = [Q["ids_between"]], list(ids)
        if few_ids is not None and self._at_most(NAMES, Q["names"]) is not None:
            parts.append(Q["names_like"])
            values.append(names)
        elif not few_ids or len(text) < ID_PREFIX:
            return None
        found: list[SqliteListSource] = []
        but = JobFilter(text_types=wanted.text_types)
        if wanted.text_types:
            found += self._sources(replace(wanted, text=None, text_failures=()), counts)
        if wanted.text_failures:
            failures = json_text(wanted.text_failures)
            if self._at_most(SMALL, Q["failed_in_ways"], failures) is not None:
                parts.append(Q["failed_in_ways"])
                values.append(failures)
            else:
                many = self._sources(replace(wanted, text=None, text_types=()), counts)
                found += [source._replace(but=but) for source in many]
                but = replace(but, text_failures=wanted.text_failures)
        rest = replace(wanted, text=None, text_types=(), text_failures=())
        key = f"seq IN ({union(parts)})"
        return [SqliteListSource("NOT INDEXED", rest, key, tuple(values), whole=True, but=but), *found]

    def _described(self, wanted: JobFilter) -> SqliteListSource:
        """Return the jobs that have the rarest of the metadata entries; they are compared with the others."""
        entries = [
            (
                SMALL + 1 if (few := self._at_most(SMALL, Q["metadata_entries"], *entry)) is None else few,
                entry,
            )
            for entry in wanted.metadata
        ]
        number, entry = min(entries)
        return SqliteListSource("metadata", wanted, values=entry, whole=number <= SMALL, walk="metadata_walk")

    def _few_alike(self, wanted: JobFilter) -> SqliteListSource | None:
        """Return the jobs with the fingerprint of the filter; None if there are many."""
        if self._at_most(SMALL, Q["failed_alike"], wanted.fingerprint) is None:
            return None
        key = "status = 'failed' AND fingerprint = ?"
        return SqliteListSource("INDEXED BY jobs_fingerprint", wanted, key, (wanted.fingerprint,), whole=True)

    def _at_most(self, most: int, statement: str, *values: Any) -> int | None:
        """Return how many rows a statement finds; None for more than `most`."""
        sql = f"SELECT count(*) FROM (SELECT 1 FROM ({statement}) LIMIT ?)"  # noqa: S608
        (number,) = self._db.execute(sql, (*values, most + 1)).fetchone() or (0,)
        return None if number > most else int(number)

    # ── reading them ───────────────────────────────────────────────────────────────────────────────────────────────

    def _span(self, wanted: JobFilter) -> Span:
        first, last = self._db.execute(Q["first_and_last"]).fetchone() or (None, None)
        if first is None:
            return Span(0, 0)
        low, high = span = Span(int(str(first)), int(str(last)) + 1)
        if wanted.created_after is not None:
            low = max(low, self._first_at(wanted.created_after, span) - ORDER_PAD)
        if wanted.created_before is not None:
            high = min(high, self._first_at(wanted.created_before, span) + ORDER_PAD)
        return Span(low, high)

    def _first_at(self, moment: int, span: Span) -> int:
        halving = Halving(moment, span)
        while (probe := halving.probe) is not None:
            row: Any = self._db.execute(Q["created_from"], (probe,)).fetchone()
            halving.tell(*row)
        return halving.low

    def _within(self, source: SqliteListSource, span: Span) -> Span:
        """Narrow the span of a walk for completed jobs to the highest `seq` that ever completed."""
        if source.index_sql == "NOT INDEXED" and source.wanted.statuses == ("completed",):
            highest = self._completed_to()
            return span if highest is None else span._replace(high=min(span.high, highest + 1))
        return span

    def _walk(
        self, source: SqliteListSource, span: Span, budget: int, order: str = "DESC"
    ) -> tuple[str, list[Any], str, list[Any]]:
        """Return the statement for the first jobs of a source, and the condition to compare them with, each with values."""
        low, high = self._within(source, span)
        where, compared = ("1", []) if source.plain else _compared(source)
        limit = -1 if source.whole else budget
        columns = "seq" if source.plain else ", ".join(dict.fromkeys(("seq", *_columns(source))))
        sql = Q[source.walk].format(columns=columns, index=source.index_sql, key=source.key, order=order)
        return sql, [*source.values, low, high, limit], where, compared

    def _matches(
        self,
        source: SqliteListSource,
        span: Span,
        take: int,
        budget: int = 0,
        skip: int = 0,
        order: str = "DESC",
    ) -> list[int]:
        walk, values, where, compared = self._walk(
            source, span, max(budget, take) if source.exact else budget, order
        )
        if source.plain and not skip:
            return [int(row[0]) for row in self._db.execute(walk, (*values[:-1], take))]
        sql = Q["walk_matches"].format(walk=walk, where=where)
        return [int(row[0]) for row in self._db.execute(sql, (*values, *compared, take, skip))]

    def _walked(self, source: SqliteListSource, span: Span, budget: int) -> Any:
        """Return how many jobs a walk looks at, and the lowest sequence number among them."""
        walk, values, _, _ = self._walk(
            source._replace(wanted=JobFilter(status=source.wanted.status), but=JobFilter()), span, budget
        )
        return self._db.execute(Q["walked"].format(walk=walk), values).fetchone()

    def _skipping(self, query: JobQuery, source: SqliteListSource, span: Span, total: int) -> Merged:
        """Return a page of one source whose length is known, counted from whichever end is nearer."""
        take, skip = query.limit + 1, query.offset
        from_the_end = query.before_seq is None and 2 * skip > total
        if from_the_end:
            take = max(0, min(take, total - skip))
            skip = max(0, total - skip - take)
        if skip > SKIP:
            raise TooDeep(query.offset)
        order, budget = ("ASC" if from_the_end else "DESC"), WALK + 2 * skip
        most = take if source.most is None else min(take, max(source.most - skip, 0))
        seqs = self._matches(source, span, most, budget, skip, order)
        looked_at, lowest = (0, None) if len(seqs) >= most else self._walked(source, span, budget)
        if looked_at == budget and not source.whole and (from_the_end or (skip and not seqs)):
            raise TooDeep(query.offset)
        seqs.sort(reverse=True)
        if looked_at == budget and not source.whole:
            return Merged(seqs[: query.limit], lowest)
        return Merged(seqs[: query.limit], seqs[query.limit - 1] if len(seqs) > query.limit else None)


_COLUMN_OF: Final = {
    "type": "type",
    "queue": "queue",
    "priority": "priority",
    "name": "name",
    "created_after": "created_at",
    "created_before": "created_at",
    "worker": "worker_id",
}


def _compared(source: SqliteListSource) -> tuple[str, list[Any]]:
    """Return the condition that jobs of a source are compared with, and its values."""
    where, values = filter_sql(source.wanted)
    if source.but == JobFilter():
        return where, values
    but, more = filter_sql(source.but)
    return f"{where} AND ({but}) IS NOT TRUE", [*values, *more]


def _columns(source: SqliteListSource) -> list[str]:
    """Return the columns that the comparison needs."""
    return _columns_of(source.wanted) + _columns_of(source.but)


def _columns_of(wanted: JobFilter) -> list[str]:
    found = [column for field, column in _COLUMN_OF.items() if getattr(wanted, field) is not None]
    failing = wanted.fingerprint is not None or bool(wanted.text_failures)
    if wanted.statuses is not None or wanted.dead_letters or failing:
        found += ["status", "completed_at", "discarded_at", "fingerprint"]
    if wanted.text is not None:
        found += ["id", "name"]
    if wanted.text_types:
        found.append("type")
    return found
