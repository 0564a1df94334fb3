"""Filters as SQL: a WHERE clause with its values, that fits both `jobs` and `history`."""

import itertools
import re
from typing import Any

from stoker.domain.lifecycle import FINAL
from stoker.store.base import JobFilter
from stoker.store.common import id_range, like_part, status_list
from stoker.store.postgres.memory import Memory
from stoker.store.postgres.rows import Q


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


def filter_sql(filter: JobFilter, memory: Memory, *, first: int) -> tuple[str, list[Any]]:
    """A WHERE clause and its values, numbered from `first`."""
    found = filter_clauses(filter, memory)
    return numbered(found.where, first), found.values


def filter_clauses(filter: JobFilter, memory: Memory) -> Clauses:
    """What jobs are compared with. What belongs to a lane is asked of the lanes in memory."""
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
    _add_searches(filter, found)
    return found


def _status_sql(statuses: tuple[Any, ...]) -> str:
    if len(statuses) == 1:
        return f"status = {status_list(statuses)}"
    return f"status IN ({status_list(statuses)})" if statuses else "false"


def _add_searches(filter: JobFilter, found: Clauses) -> None:
    if filter.fingerprint is not None:
        found.add("status = 'failed' AND fingerprint = ?", filter.fingerprint)
    if filter.worker is not None:
        found.add(Q["worker_matches"], filter.worker, filter.worker)
    if filter.text is not None:
        ids = id_range(filter.text)
        named = "name ILIKE ? ESCAPE '\\'"
        if ids is None:
            found.add(named, like_part(filter.text))
        else:
            found.add(f"(id BETWEEN ?::uuid AND ?::uuid OR {named})", *ids, like_part(filter.text))


def tables(filter: JobFilter) -> str:
    """Where the jobs can be that match: a status is enough to know."""
    if filter.dead_letters or filter.fingerprint is not None:
        return "final"  # `jobs` has no column for how one failed
    statuses = filter.statuses
    if statuses is None:
        return "jobs"
    final = [status in FINAL for status in statuses]
    return "final" if all(final) else "jobs" if any(final) else "hot"
