"""Lists of jobs from the PostgreSQL store, newest first, within the bounds of `stoker.store.walks`.

The filter decides which sources a page is read from, and the status which of the two tables they are in:

- Jobs with a name, and failed, cancelled, scheduled, blocked and dead ones, have indexes ordered by `seq`.
- Queued jobs are ordered by `seq` within each pair of lane and rank, so pairs are merged, if there are not too many.
- Running jobs, jobs of one fingerprint, and jobs whose id, name or error matches a text are read whole while they are few.
  A text that matches names of types also has the sources of these types.
- For everything else `jobs` or `history` is walked.

The counts tell at once when nothing matches. The statements run with `WALKING`, so that each source is read in the order of
its index and stops as early as it may, even while the planner's statistics are stale.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from stoker.domain.errors import TooDeep
from stoker.domain.lifecycle import FINAL, Status
from stoker.store.postgres.database import Link
from stoker.store.postgres.filters import Clauses, filter_clauses, numbered
from stoker.store.postgres.memory import PostgresMemory
from stoker.store.postgres.rows import Q
from stoker.store.queries import like_part
from stoker.store.reads import TOTAL_CAP, Count, JobFilter, JobQuery, counted, id_range, is_counted
from stoker.store.walks import (
    DEEP,
    ID_PREFIX,
    NAMES,
    ORDER_PAD,
    PLAIN_PAIRS,
    SKIP,
    SMALL,
    SOURCES,
    WALK,
    Abreast,
    Merged,
    Merging,
    Span,
    only,
    present,
    ranks_of,
)

WALKING: Final = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; "
    "SET LOCAL jit = off; SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL plan_cache_mode = force_custom_plan"
)
"""The statements that begin the transaction of a list."""
_SMALL_STATUSES: Final[tuple[Status, ...]] = ("running", "queued")
_INDEXED: Final[tuple[Status, ...]] = ("failed", "cancelled", "scheduled", "blocked")
COMPARED_PAIRS: Final = 30
"""The most pairs of lane and rank that are walked one by one, when their jobs must be compared with the filter."""
_TABLES: Final = ("jobs", "history")
_FAILED_IN_WAYS: Final = (
    "SELECT seq FROM stoker.{table} WHERE status = 'failed' AND fingerprint = ANY(?::text[])"
)


class PostgresListSource(NamedTuple):
    """An index or a table from which jobs are read, newest first, and compared with `wanted`. Each `?` in `key` stands for
    one of `values`."""

    table: str
    wanted: JobFilter
    key: str = "true"
    values: tuple[Any, ...] = ()
    whole: bool = False
    """Few enough to be read and sorted."""
    most: int | None = None
    """How many of them can match at most, where counters know it."""
    pairs: tuple[list[int], list[int]] | None = None
    """The lanes and, in the same order, the ranks of the pairs that the source merges."""
    but: JobFilter = JobFilter()
    """Jobs that another source has, which are passed over: no job may come from two sources."""
    plain: bool = False
    """Whether the index has nothing that does not match."""
    walk: str = "walk"
    """The name of the statement that walks the source."""

    @property
    def lookup(self) -> bool:
        return self.key != "true" or self.walk != "walk"

    @property
    def exact(self) -> bool:
        """Return whether the source needs no walk in steps: every job matches, or there are few."""
        return self.whole or self.plain


class PostgresLists:
    """Reads pages of jobs and their totals, over one connection in one transaction. `memory` has the lanes."""

    def __init__(self, link: Link, memory: PostgresMemory, counts: Sequence[Count]) -> None:
        self._link = link
        self._memory = memory
        self._counts = counts

    async def page(self, query: JobQuery) -> tuple[Merged, int, bool]:
        """Return the sequence numbers of a page, the total of its list, and whether the total was capped."""
        wanted = query.filter
        sources = await self._sources(wanted)
        whole = spans = {
            table: await self._span(table, wanted) for table in {source.table for source in sources}
        }
        if query.before_seq is not None:
            high = query.before_seq
            spans = {table: span._replace(high=min(span.high, high)) for table, span in spans.items()}
        take = query.offset + query.limit + 1
        if is_counted(wanted):
            total = counted(self._counts, wanted)
            if query.offset > DEEP:
                return await self._skipped(query, sources, spans, total), total, False
            return (await self._merging(sources, spans, take, 0)).page(query), total, False
        if query.offset > DEEP:
            raise TooDeep(query.offset)
        first = query.before_seq is None
        merging = await self._merging(sources, spans, take, TOTAL_CAP + 1 if first else 0)
        from_top = merging if first else await self._merging(sources, whole, 0, TOTAL_CAP + 1)
        return merging.page(query), *from_top.total()

    async def _merging(
        self, sources: Sequence[PostgresListSource], spans: Mapping[str, Span], take: int, goal: int
    ) -> Merging:
        """Walk the sources until `take` jobs are found for a page, and `goal` are counted."""
        tops = [None if source.exact else await self._top(source, spans[source.table]) for source in sources]
        merging = Merging(tops, [source.lookup for source in sources], take, goal)
        for place, source in enumerate(sources):
            span = spans[source.table]
            if source.whole:
                most = max(take, merging.wanting)
                merging.ended(place, await self._matches(source, span, most))
            elif source.plain:
                newest = await self._newest(source, span, take)
                merging.ended(place, newest, await self._length(source, span, merging.wanting))
        while (walk := merging.next()) is not None:
            place, high, chunk = walk
            source = sources[place]
            below = spans[source.table]._replace(high=high)
            merging.walked(place, *await self._step(source, below, chunk))
        return merging

    async def _newest(self, source: PostgresListSource, span: Span, take: int) -> list[int]:
        """Return the newest jobs of a plain source."""
        if source.pairs is None:
            return await self._matches(source, span, take) if take else []
        lanes, ranks = source.pairs
        abreast = Abreast(len(lanes), span.high, take)
        while (going := abreast.next())[0]:
            reached, each = going
            rows = await self._link.fetch(
                Q["newest_of_pairs"],
                list(reached),
                [lanes[place] for place in reached],
                [ranks[place] for place in reached],
                list(reached.values()),
                span.low,
                each,
            )
            found: dict[int, list[int]] = {}
            for place, seq in rows:
                found.setdefault(place, []).append(seq)
            abreast.read({place: sorted(seqs, reverse=True) for place, seqs in found.items()})
        return abreast.seqs

    async def _length(self, source: PostgresListSource, span: Span, most: int) -> int:
        """Return how many jobs a plain source has, at most `most`."""
        if not most:
            return 0
        if source.pairs is None:
            return int((await self._walked(source, span, most))[0])
        return int(await self._link.fetchval(Q["length_of_pairs"], *source.pairs, *span, most))

    async def _top(self, source: PostgresListSource, span: Span) -> int | None:
        """Return a number above all sequence numbers of a source; None if it is empty."""
        if not source.lookup:
            return span.high
        _, highest = await self._walked(source, span, 1)
        return None if highest is None else highest + 1

    # ── which sources ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _sources(self, wanted: JobFilter) -> list[PostgresListSource]:
        """Return the sources of the jobs that match a filter; none when the counts show that no job does."""
        found_in = present(wanted, self._counts)
        if not found_in:
            return []
        tables = [
            table
            for table in _TABLES
            if any((status in FINAL) == (table == "history") for status in found_in)
        ]
        if wanted.name is not None:
            return [
                PostgresListSource(table, wanted, "name = ?", (wanted.name,), plain=only(wanted, "name"))
                for table in tables
            ]
        if wanted.metadata and wanted.text is None:
            return await self._described(wanted, found_in, tables)
        if wanted.text is not None and (found := await self._searched(wanted, tables)) is not None:
            return found
        if wanted.fingerprint is not None and (few := await self._few_alike(wanted)) is not None:
            return [few]
        if (
            found_in == (everything := present(JobFilter(), self._counts))
            and (wanted.type, wanted.queue, wanted.priority) == (None,) * 3
        ):
            return [PostgresListSource(table, wanted) for table in tables]
        return await self._by_status(wanted, found_in, everything)

    async def _by_status(
        self, wanted: JobFilter, found_in: Counter[Status], everything: Counter[Status]
    ) -> list[PostgresListSource]:
        found: list[PostgresListSource] = []
        walked: dict[str, dict[Status, int]] = {table: {} for table in _TABLES}
        for status, number in found_in.items():
            part = replace(wanted, status=status)
            table = "history" if status in FINAL else "jobs"
            if status == "failed" and wanted.dead_letters:
                part = replace(part, status=None)
                key = "status = 'failed' AND discarded_at IS NULL"
                found.append(PostgresListSource(table, part, key, plain=only(part, "dead_letters")))
            elif status in _INDEXED:
                found.append(
                    PostgresListSource(table, part, f"status = '{status}'", plain=only(part, "status"))
                )
            elif everything[status] <= SMALL and status in _SMALL_STATUSES:
                found.append(PostgresListSource(table, part, f"status = '{status}'", whole=True))
            elif status == "queued" and (pairs := await self._pairs(part)) is not None:
                found += pairs
            else:
                walked[table][status] = number
        for table, numbers in walked.items():
            if numbers:
                found.append(
                    PostgresListSource(
                        table, replace(wanted, status=tuple(numbers)), most=sum(numbers.values())
                    )
                )
        return found

    async def _pairs(self, wanted: JobFilter) -> list[PostgresListSource] | None:
        """Return sources for the pairs of lane and rank in which matching jobs are queued; None if there are too many."""
        types = wanted.text_types if wanted.text is None and wanted.text_types else None
        lanes = self._memory.lanes_matching(wanted.queue, wanted.type, types)
        if len(lanes) > SOURCES:
            return None
        if wanted.priority is None:
            kept = await self._link.fetch(Q["pairs_of_lanes"], lanes)
        else:
            ranks = ranks_of(wanted.priority)
            kept = await self._link.fetch(Q["pairs_of_priority"], lanes, ranks, wanted.priority)
        if only(wanted, "status", "type", "queue", "priority", "text_types"):
            key = "status = 'queued' AND lane_id = pair.lane_id AND rank = pair.rank"
            pairs = [row[0] for row in kept], [row[1] for row in kept]
            return (
                [PostgresListSource("jobs", wanted, key, pairs=pairs, plain=True)]
                if len(kept) <= PLAIN_PAIRS
                else None
            )
        key = "status = 'queued' AND lane_id = ? AND rank = ?"
        few = len(kept) <= COMPARED_PAIRS
        return [PostgresListSource("jobs", wanted, key, (row[0], row[1])) for row in kept] if few else None

    async def _searched(self, wanted: JobFilter, tables: Sequence[str]) -> list[PostgresListSource] | None:
        """Return the sources of a search for text; None if it must be compared job by job."""
        text = wanted.text or ""
        ids = id_range(text)
        few_ids = 0 if ids is None else await self._at_most(SMALL, Q["ids_between"], *ids)
        keys: list[str] = []
        values: list[Any] = []
        if few_ids and ids is not None:
            keys.append("SELECT seq FROM stoker.{table} WHERE id BETWEEN ?::uuid AND ?::uuid")
            values += ids
        if few_ids is not None and await self._at_most(NAMES, Q["names"]) is not None:
            keys.append("SELECT seq FROM stoker.{table} WHERE name IS NOT NULL AND name ILIKE ? ESCAPE '\\'")
            values.append(like_part(text))
        elif not keys or len(text) < ID_PREFIX:
            return None
        found: list[PostgresListSource] = []
        but = JobFilter(text_types=wanted.text_types)
        in_history: list[str] = []
        ways: list[Any] = []
        if wanted.text_types:
            found += await self._sources(replace(wanted, text=None, text_failures=()))
        if wanted.text_failures:
            ways.append(list(wanted.text_failures))
            if await self._at_most(SMALL, Q["failed_in_ways"], *ways) is not None:
                in_history.append(_FAILED_IN_WAYS)
            else:
                many = await self._sources(replace(wanted, text=None, text_types=()))
                found += [source._replace(but=but) for source in many]
                but = replace(but, text_failures=wanted.text_failures)
        rest = replace(wanted, text=None, text_types=(), text_failures=())
        for table in tables:
            parts = [*keys, *in_history] if table == "history" else keys
            given = (*values, *ways) if len(parts) > len(keys) else tuple(values)
            # As an array they are found first, and not one by one while all jobs are walked.
            key = f"seq = ANY(ARRAY({' UNION ALL '.join(parts)}))".format(table=table)
            found.append(PostgresListSource(table, rest, key, given, whole=True, but=but))
        return found

    async def _described(
        self, wanted: JobFilter, found_in: Counter[Status], tables: Sequence[str]
    ) -> list[PostgresListSource]:
        """Return the jobs that have the rarest of the metadata entries; they are compared with the others. The status is
        always part of the comparison, because the metadata table also has the jobs of the other table."""
        entries = []
        for entry in wanted.metadata:
            few = await self._at_most(SMALL, Q["metadata_entries"], *entry)
            entries.append((SMALL + 1 if few is None else few, entry))
        number, entry = min(entries)
        found: list[PostgresListSource] = []
        for table in tables:
            statuses = tuple(status for status in found_in if (status in FINAL) == (table == "history"))
            part = wanted if wanted.dead_letters else replace(wanted, status=statuses)
            found.append(
                PostgresListSource(table, part, values=entry, whole=number <= SMALL, walk="metadata_walk")
            )
        return found

    async def _few_alike(self, wanted: JobFilter) -> PostgresListSource | None:
        """Return the jobs with the fingerprint of the filter; None if there are many."""
        if await self._at_most(SMALL, Q["failed_alike"], wanted.fingerprint) is None:
            return None
        key = "status = 'failed' AND fingerprint = ?"
        return PostgresListSource("history", wanted, key, (wanted.fingerprint,), whole=True)

    async def _at_most(self, most: int, statement: str, *values: Any) -> int | None:
        """Return how many rows a statement finds; None for more than `most`."""
        found = int(await self._link.fetchval(statement, most + 1, *values))
        return None if found > most else found

    # ── reading them ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _span(self, table: str, wanted: JobFilter) -> Span:
        first, last = (await self._link.fetch(Q["first_and_last"].format(table=table)))[0]
        if first is None:
            return Span(0, 0)
        low, high = span = Span(first, last + 1)
        if wanted.created_after is not None:
            low = max(low, await self._first_at(table, wanted.created_after, span) - ORDER_PAD)
        if wanted.created_before is not None:
            high = min(high, await self._first_at(table, wanted.created_before, span) + ORDER_PAD)
        return Span(low, high)

    async def _first_at(self, table: str, moment: int, span: Span) -> int:
        return int(await self._link.fetchval(Q["first_at"].format(table=table), moment, *span))

    def _walk(
        self, source: PostgresListSource, span: Span, budget: int, order: str = "DESC"
    ) -> tuple[str, list[Any]]:
        """Return the statement for the first jobs of a source, and its values."""
        limit = None if source.whole else budget
        more = ", discarded_at, fingerprint" if source.table == "history" else ""
        sql = Q[source.walk].format(table=source.table, key=source.key, order=order, more=more)
        return sql, [*source.values, span.low, span.high, limit]

    def _matching(
        self, source: PostgresListSource, span: Span, budget: int, take: int, order: str = "DESC"
    ) -> tuple[str, list[Any]]:
        """Return the statement for those of the first jobs that match, and its values."""
        walk, values = self._walk(source, span, budget, order)
        compared = Clauses() if source.plain else self._compared(source)
        sql = Q["walk_matches"].format(walk=walk, where=compared.where)
        values = [*values, *compared.values, take]
        if source.pairs is None:
            return sql, values
        return Q["over_pairs"].format(each=sql, order=order), [*source.pairs, *values, take]

    def _compared(self, source: PostgresListSource) -> Clauses:
        final = source.table == "history"
        found = filter_clauses(source.wanted, self._memory, final=final)
        if source.but != JobFilter():
            but = filter_clauses(source.but, self._memory, final=final)
            found.add(f"({but.where}) IS NOT TRUE", *but.values)
        return found

    async def _rows(self, sql: str, values: Sequence[Any]) -> list[Any]:
        return await self._link.fetch(numbered(sql), *values)

    async def _matches(self, source: PostgresListSource, span: Span, take: int) -> list[int]:
        """Return the first matching jobs of an exact source."""
        return [row[0] for row in await self._rows(*self._matching(source, span, take, take))]

    async def _step(
        self, source: PostgresListSource, span: Span, budget: int
    ) -> tuple[list[int], int, int | None]:
        """Return the matches of one step, how many jobs it looked at, and the lowest sequence number among those."""
        walk, values = self._walk(source, span, budget)
        compared = self._compared(source)
        sql = Q["walk_step"].format(walk=walk, where=compared.where)
        ((looked_at, lowest, seqs),) = await self._rows(sql, [*compared.values, *values])
        return seqs or [], looked_at, lowest

    async def _walked(self, source: PostgresListSource, span: Span, budget: int) -> Any:
        """Return how many jobs a walk looks at, and the lowest sequence number among them."""
        walk, values = self._walk(source, span, budget)
        return (await self._rows(Q["walked"].format(walk=walk), values))[0]

    async def _skipped(
        self, query: JobQuery, sources: Sequence[PostgresListSource], spans: Mapping[str, Span], total: int
    ) -> Merged:
        """Return a page far into a list whose length is known, counted from whichever end is nearer."""
        take, skip = query.limit + 1, query.offset
        from_the_end = 2 * skip > total
        if from_the_end:
            take = max(0, min(take, total - skip))
            skip = max(0, total - skip - take)
        pure = all(source.wanted == JobFilter() for source in sources)
        if (
            not is_counted(query.filter)
            or skip > (SKIP if pure else SKIP // 5)
            or (len(sources) > 1 and not pure)
        ):
            raise TooDeep(query.offset)
        order = "ASC" if from_the_end else "DESC"
        budget = WALK + 2 * skip
        seqs = await self._one_table(spans, take, skip, order) if pure else None
        if seqs is not None:
            return Merged(seqs[: query.limit], seqs[query.limit - 1] if len(seqs) > query.limit else None)
        parts = [
            self._matching(source, spans[source.table], budget, take + skip, order) for source in sources
        ]
        await self._link.execute(Q["sort_in_memory"])
        sql = Q["skipped"].format(parts=" UNION ALL ".join(f"({part})" for part, _ in parts), order=order)
        rows = await self._rows(sql, [*(value for _, values in parts for value in values), take, skip])
        seqs = sorted((row[0] for row in rows), reverse=True)
        if not from_the_end and not seqs:
            raise TooDeep(query.offset)
        return Merged(seqs[: query.limit], seqs[query.limit - 1] if len(seqs) > query.limit else None)

    async def _one_table(
        self, spans: Mapping[str, Span], take: int, skip: int, order: str
    ) -> list[int] | None:
        """Return a page of all jobs; None if jobs of both tables come before its end."""
        newest = order == "DESC"
        (table, span), *others = sorted(
            spans.items(), key=lambda item: -item[1].high if newest else item[1].low
        )
        sql = Q["numbers_at"].format(table=table, order=order)
        seqs = [row[0] for row in await self._rows(sql, [*span, take, skip])]
        if len(seqs) < take or not seqs:
            return None
        if any(seqs[-1] < other.high if newest else other.low <= seqs[-1] for _, other in others):
            return None
        return sorted(seqs, reverse=True)
