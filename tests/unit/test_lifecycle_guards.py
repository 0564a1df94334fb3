"""The statements of both stores leave and enter the statuses that the table of the lifecycle allows."""

import re
from collections.abc import Iterable

import pytest

from stoker.domain.lifecycle import STATUSES, Event, sources, targets
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
}
POSTGRES: dict[str, tuple[Event, ...]] = {
    "claim_jobs": ("claimed",),
    "complete_jobs": ("completed",),
    "requeue_jobs": ("retried", "snoozed", "lost", "handed_back"),
    "request_cancels": ("cancel_requested",),
    "hurry_jobs": ("hurried",),
    "promote_jobs": ("due",),
    "rewrite_jobs": ("postponed", "hurried", "released"),
}
"""Which events each statement that changes a status writes. Jobs that end otherwise move to the history by COPY,
after a look at the locked row."""

CASES = [("sqlite", *case) for case in SQLITE.items()] + [("postgres", *case) for case in POSTGRES.items()]
ONLY_WAITING = {"cancel_waiting"}
"""A running job is cancelled by its report."""

_LEFT = re.compile(r"status(?: \|\| '')? (?:= '(\w+)'|IN \(([^)]+)\))")
_ENTERED = re.compile(r"SET status = '(\w+)'|'(completed)' FROM done")


def _statuses(found: Iterable[tuple[str, str]]) -> set[str]:
    return {name for one, many in found for name in re.findall(r"\w+", one or many)}


@pytest.mark.parametrize(("store", "name", "events"), CASES)
def test_a_statement_guards_its_write_with_the_statuses_of_the_table(
    store: str, name: str, events: tuple[Event, ...]
) -> None:
    sql = queries.load(f"stoker.store.{store}")[name]
    entered = _statuses(_ENTERED.findall(sql))
    left = _statuses(_LEFT.findall(_ENTERED.sub("", sql)))
    allowed = {status for event in events for status in sources(event)}
    assert left == (allowed - {"running"} if name in ONLY_WAITING else allowed)
    assert entered <= {status for event in events for status in targets(event)}


@pytest.mark.parametrize(("store", "known"), [("sqlite", SQLITE), ("postgres", POSTGRES)])
def test_every_statement_that_sets_a_status_is_compared(
    store: str, known: dict[str, tuple[Event, ...]]
) -> None:
    setting = {
        name
        for name, sql in queries.load(f"stoker.store.{store}").items()
        if re.search(r"UPDATE (?:stoker\.)?jobs\s+SET status = ", sql)
    }
    assert setting - known.keys() == set()
    assert set(STATUSES) >= {
        status for events in known.values() for event in events for status in sources(event)
    }
