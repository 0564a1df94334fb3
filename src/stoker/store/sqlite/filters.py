"""Filters as SQL: a WHERE clause with its values, and the index that serves it best."""

from collections.abc import Sequence
from typing import Any, Final

from stoker.domain.lifecycle import FINAL, Status
from stoker.store import queries
from stoker.store.queries import json_text, like_part, status_list
from stoker.store.reads import JobFilter, id_range

Q: Final = queries.load("stoker.store.sqlite")

_STATUS_INDEX: Final[dict[Status, str]] = {
    "queued": "jobs_ready",
    "scheduled": "jobs_due",
    "running": "jobs_running",
    "blocked": "jobs_blocked",
    "completed": "jobs_finished",
    "failed": "jobs_finished",
    "cancelled": "jobs_finished",
}
_COLUMNS: Final = (
    ("type", "type = ?"),
    ("queue", "queue = ?"),
    ("priority", "priority = ?"),
    ("name", "name = ?"),
    ("created_after", "created_at >= ?"),
    ("created_before", "created_at < ?"),
)


def filter_sql(filter: JobFilter) -> tuple[str, list[Any]]:
    """A WHERE clause and its values."""
    clauses = [_status_sql(filter)]
    values: list[Any] = []
    for field, clause in _COLUMNS:
        value = getattr(filter, field)
        if value is not None:
            clauses.append(clause)
            values.append(value)
    if filter.fingerprint is not None:
        clauses.append("status = 'failed' AND fingerprint = ?")
        values.append(filter.fingerprint)
    for entry in filter.metadata:
        clauses.append(Q["has_metadata"])
        values += entry
    if filter.worker is not None:
        clauses.append(Q["worker_matches"])
        values += [filter.worker, filter.worker]
    if filter.text is not None or filter.text_types or filter.text_failures:
        clause, given = _text_sql(filter)
        clauses.append(clause)
        values += given
    return " AND ".join(clause for clause in clauses if clause) or "1", values


def _text_sql(filter: JobFilter) -> tuple[str, list[Any]]:
    """Any of what a text is looked for in."""
    found: list[str] = []
    values: list[Any] = []
    if filter.text is not None:
        found.append(Q["text_matches"])
        values += [*(id_range(filter.text) or ("", "")), like_part(filter.text)]
    if filter.text_types:
        found.append(Q["of_types"])
        values.append(json_text(filter.text_types))
    if filter.text_failures:
        found.append(Q["failed_like"])
        values.append(json_text(filter.text_failures))
    return f"({' OR '.join(found)})", values


def _status_sql(filter: JobFilter) -> str:
    if filter.dead_letters:
        return "status = 'failed' AND discarded_at IS NULL"
    statuses = filter.statuses
    if statuses is None:
        return ""
    if len(statuses) != 1:
        return f"status IN ({status_list(statuses)})"
    over = " AND completed_at IS NOT NULL" if statuses[0] in FINAL else ""
    return f"status = {status_list(statuses)}{over}"


def best_index(filter: JobFilter, *, few: bool) -> str:
    """Return the index to read for a filter of at most one status; `few` when that status has few jobs. Where there is
    none, the table is walked from its newest job down."""
    if filter.statuses == ():
        return "NOT INDEXED"  # nothing can match, and SQLite refuses to look for nothing in an index
    if filter.fingerprint is not None:
        return "INDEXED BY jobs_fingerprint"
    if filter.dead_letters:
        return "INDEXED BY jobs_dead"
    if filter.name is not None:
        return "INDEXED BY jobs_name"
    if not filter.statuses or not few or filter.text is not None:
        return "NOT INDEXED"
    return f"INDEXED BY {_STATUS_INDEX[filter.statuses[0]]}"


def union(parts: Sequence[str]) -> str:
    return " UNION ALL ".join(parts)
