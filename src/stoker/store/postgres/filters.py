"""Filters as SQL: a WHERE clause with its values, that fits both `jobs` and `history`."""

import itertools
import re
from typing import Any

from stoker.domain.lifecycle import FINAL
from stoker.store.postgres.memory import PostgresMemory
from stoker.store.postgres.rows import Q
from stoker.store.queries import like_part, status_list
from stoker.store.reads import JobFilter, id_range


def numbered(sql: str, first: int = 1) -> str:
    """A statement in which every `?` stands for a value, in their order, as PostgreSQL wants it."""
    places = itertools.count(first)
    return re.sub(r"\?", lambda _: f"${next(places)}", sql)


class Clauses:
    """Clauses in the making: `?` in one stands for the value that is given with it."""

    def __init__(self) -> None:
        self._clauses: list[str] = []
        self.values: list[Any] = []

    def add(self, clause: str, *values: Any) -> None:
        self._clauses.append(clause)
        self.values += values

    @property
    def where(self) -> str:
        return " AND ".join(self._clauses) or "true"


def filter_sql(filter: JobFilter, memory: PostgresMemory, *, first: int) -> tuple[str, list[Any]]:
    """A WHERE clause and its values, numbered from `first`."""
    found = filter_clauses(filter, memory, final=tables(filter) != "hot")
    return numbered(found.where, first), found.values


def filter_clauses(filter: JobFilter, memory: PostgresMemory, *, final: bool) -> Clauses:
    """Return what jobs are compared with; `final` for those in `history`, because `jobs` has no column for how one
    failed. What belongs to a lane is asked of the lanes in memory."""
    found = Clauses()
    if filter.dead_letters:
        found.add("status = 'failed' AND discarded_at IS NULL")
    elif filter.statuses is not None:
        found.add(_status_sql(filter.statuses))
    if filter.type is not None or filter.queue is not None:
        found.add("lane_id = ANY(?::int[])", memory.lanes_matching(filter.queue, filter.type))
    for field, clause in (
        ("priority", "priority = ?"),
        ("name", "name = ?"),
        ("created_after", "created_at >= ?"),
        ("created_before", "created_at < ?"),
    ):
        value = getattr(filter, field)
        if value is not None:
            found.add(clause, value)
    if filter.text is not None or filter.text_types or filter.text_failures:
        _add_text(filter, memory, found, final=final)
    _add_searches(filter, found)
    return found


def _status_sql(statuses: tuple[Any, ...]) -> str:
    if len(statuses) == 1:
        return f"status = {status_list(statuses)}"
    return f"status IN ({status_list(statuses)})" if statuses else "false"


def _add_searches(filter: JobFilter, found: Clauses) -> None:
    """What needs a look into another table comes last: it is asked of few jobs then."""
    for entry in filter.metadata:
        found.add(Q["has_metadata"], *entry)
    if filter.fingerprint is not None:
        found.add("status = 'failed' AND fingerprint = ?", filter.fingerprint)
    if filter.worker is not None:
        found.add(Q["worker_matches"], filter.worker, filter.worker)


def _add_text(filter: JobFilter, memory: PostgresMemory, found: Clauses, *, final: bool) -> None:
    """Any of what a text is looked for in."""
    parts: list[str] = []
    values: list[Any] = []
    if filter.text is not None:
        parts.append("name ILIKE ? ESCAPE '\\'")
        values.append(like_part(filter.text))
        if (ids := id_range(filter.text)) is not None:
            parts.append("id BETWEEN ?::uuid AND ?::uuid")
            values += ids
    if filter.text_types:
        parts.append("lane_id = ANY(?::int[])")
        values.append(memory.lanes_matching(None, None, filter.text_types))
    if filter.text_failures and final:
        parts.append("(status = 'failed' AND fingerprint = ANY(?::text[]))")
        values.append(list(filter.text_failures))
    found.add(f"coalesce({' OR '.join(parts)}, false)" if parts else "false", *values)


def by_lane(filter: JobFilter) -> bool:
    """Return whether the lanes in memory are asked, which must be up to date then."""
    return filter.type is not None or filter.queue is not None or bool(filter.text_types)


def tables(filter: JobFilter) -> str:
    """Return where the jobs can be that match: a status is enough to know."""
    if filter.dead_letters or filter.fingerprint is not None:
        return "final"  # `jobs` has no column for how one failed
    statuses = filter.statuses
    if statuses is None:
        return "jobs"
    final = [status in FINAL for status in statuses]
    return "final" if all(final) else "jobs" if any(final) else "hot"
