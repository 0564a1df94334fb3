"""The statements of both stores leave and enter the statuses that the table of the lifecycle allows.

Every statement that sets a status is compared, and every event of the table is written by one of them, or is listed with
those that PostgreSQL writes by COPY. `tests/conformance/test_lifecycle.py` tries every verb on every status.
"""

import re
from collections.abc import Iterable

import pytest

from stoker.domain.lifecycle import EVENTS, TRANSITIONS, Event, sources, targets
from stoker.store import queries

SQLITE: dict[str, tuple[Event, ...]] = {
    "claim_jobs": ("claimed",),
    "complete_jobs": ("completed",),
    "end_attempt": ("retried", "snoozed", "failed", "lost", "handed_back"),
    "cancel_waiting": ("cancelled",),
    "request_cancel": ("cancel_requested",),
    "replay_job": ("replayed",),
    "hurry_job": ("hurried",),
    "promote_job": ("due",),
    "end_waiting": ("expired", "overdue"),
    "rewrite_job": ("postponed", "hurried", "released"),
    "release": ("released",),
}
POSTGRES: dict[str, tuple[Event, ...]] = {
    "claim_jobs": ("claimed",),
    "complete_jobs": ("completed",),
    "requeue_jobs": ("retried", "snoozed", "lost", "handed_back"),
    "request_cancels": ("cancel_requested",),
    "hurry_jobs": ("hurried",),
    "promote_jobs": ("due",),
    "rewrite_jobs": ("postponed", "hurried", "released"),
    "release": ("released",),
}
"""Which events each statement that changes a status writes."""
BY_COPY: dict[str, set[Event]] = {
    "sqlite": set(),
    "postgres": {"failed", "cancelled", "expired", "overdue", "replayed"},
}
"""Events that move a job between `jobs` and `history`, after a look at the locked row."""

CASES = [("sqlite", *case) for case in SQLITE.items()] + [("postgres", *case) for case in POSTGRES.items()]
ONLY_WAITING = {"cancel_waiting"}
"""A running job is cancelled by its report."""

_LEFT = re.compile(r"status(?: \|\| '')? (?:= '(\w+)'|IN \(([^)]+)\))")
_SETS_STATUS = re.compile(r"UPDATE (?:stoker\.)?(?:jobs|history)\b(?: AS \w+)?\s+SET (?:[^;]*?, )?status = ")
_ENTERED = re.compile(r"SET status = '(\w+)'|'(completed)' FROM done")


def _statements(store: str) -> dict[str, str]:
    package = f"stoker.store.{store}"
    return queries.load(package) | queries.load(package, "schedules.sql")


def _statuses(found: Iterable[tuple[str, str]]) -> set[str]:
    return {name for one, many in found for name in re.findall(r"\w+", one or many)}


@pytest.mark.parametrize(("store", "name", "events"), CASES)
def test_a_statement_guards_its_write_with_the_statuses_of_the_table(
    store: str, name: str, events: tuple[Event, ...]
) -> None:
    sql = _statements(store)[name]
    entered = _statuses(_ENTERED.findall(sql))
    left = _statuses(_LEFT.findall(_ENTERED.sub("", sql)))
    allowed = {status for event in events for status in sources(event)}
    assert left == (allowed - {"running"} if name in ONLY_WAITING else allowed)
    assert entered <= {status for event in events for status in targets(event)}


@pytest.mark.parametrize(("store", "known"), [("sqlite", SQLITE), ("postgres", POSTGRES)])
def test_every_statement_that_sets_a_status_is_compared(
    store: str, known: dict[str, tuple[Event, ...]]
) -> None:
    setting = {name for name, sql in _statements(store).items() if _SETS_STATUS.search(_before_where(sql))}
    assert setting - known.keys() == set()


def _before_where(sql: str) -> str:
    """What a statement sets, without the guards that follow."""
    return re.sub(r"\bWHERE\b[^;]*", "", sql) if sql.lstrip().startswith("UPDATE") else sql


@pytest.mark.parametrize(("store", "known"), [("sqlite", SQLITE), ("postgres", POSTGRES)])
def test_every_event_is_written_by_a_statement_that_is_compared(
    store: str, known: dict[str, tuple[Event, ...]]
) -> None:
    written = {event for events in known.values() for event in events}
    assert written | BY_COPY[store] == set(EVENTS)


def test_an_event_leads_to_the_same_statuses_wherever_it_starts() -> None:
    assert all(to == targets(event) for (_, event), to in TRANSITIONS.items())
