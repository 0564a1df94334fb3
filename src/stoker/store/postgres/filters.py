"""Filters as SQL: a WHERE clause with its values, that fits both `jobs` and `history`."""

from typing import Any

from stoker.domain.lifecycle import FINAL
from stoker.store.base import JobFilter
from stoker.store.common import id_range, like_part, status_list
from stoker.store.postgres.memory import Memory
from stoker.store.postgres.rows import Q


class Clauses:
    """Clauses in the making: `?` in one stands for the value that is given with it."""

    def __init__(self, first: int) -> None:
        self._first = first
        self.clauses: list[str] = []
        self.values: list[Any] = []

    def add(self, clause: str, *values: Any) -> None:
        for value in values:
            clause = clause.replace("?", f"${self._first + len(self.values)}", 1)
            self.values.append(value)
        self.clauses.append(clause)

    @property
    def where(self) -> str:
        return " AND ".join(self.clauses) or "true"


def filter_sql(filter: JobFilter, memory: Memory, *, first: int) -> tuple[str, list[Any]]:
    """A WHERE clause and its values, numbered from `first`. What belongs to a lane is asked of the lanes in memory."""
    found = Clauses(first)
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
    if filter.text is not None:
        _add_text(filter, filter.text, memory, found)
    return found.where, found.values


def _status_sql(statuses: tuple[Any, ...]) -> str:
    if len(statuses) == 1:
        return f"status = {status_list(statuses)}"
    return f"status IN ({status_list(statuses)})" if statuses else "false"


def _add_searches(filter: JobFilter, found: Clauses) -> None:
    if filter.fingerprint is not None:
        found.add("status = 'failed' AND fingerprint = ?", filter.fingerprint)
    if filter.worker is not None:
        found.add(Q["worker_matches"], filter.worker, filter.worker)


def _add_text(filter: JobFilter, text: str, memory: Memory, found: Clauses) -> None:
    parts: list[str] = [Q["named_like"]]
    values: list[Any] = [like_part(text)] * 2
    ids = id_range(text)
    if ids is not None:
        parts.append(Q["ids_between"])
        values += [*ids, *ids]
    if filter.text_failures:
        parts.append(Q["failed_in_ways"])
        values.append(list(filter.text_failures))
    clause = f"seq IN ({' UNION ALL '.join(parts)})"
    if filter.text_types:
        lanes = [lane for type in filter.text_types for lane in memory.lanes_matching(None, type)]
        found.add(f"({clause} OR lane_id = ANY(?::int[]))", *values, lanes)
    else:
        found.add(clause, *values)


def by_lane(filter: JobFilter) -> bool:
    """Whether the lanes in memory are asked, which must be up to date then."""
    return filter.type is not None or filter.queue is not None or bool(filter.text_types)


def tables(filter: JobFilter) -> str:
    """Where the jobs can be that match: a status is enough to know."""
    if filter.dead_letters or filter.fingerprint is not None:
        return "final"  # `jobs` has no column for how one failed
    statuses = filter.statuses
    if statuses is None:
        return "jobs"
    final = [status in FINAL for status in statuses]
    return "final" if all(final) else "jobs" if any(final) else "hot"
