"""Every (status, event) pair: a verb applied to a job in a status gives what the table says, or changes nothing."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from stoker.domain.job import Job
from stoker.domain.lifecycle import EVENTS, STATUSES, TRANSITIONS, Event, Status, after
from stoker.domain.retry import Kind, claim_of
from stoker.store.base import Store
from tests.conformance.steps import (
    SILENT,
    STEADY,
    a_session,
    a_worker,
    blocked,
    claim,
    claimed,
    end,
    look,
    submitted,
)
from tests.support.clock import FakeClock

WITHOUT_A_VERB: set[Event] = {"released"}
"""Blocked jobs are released by the end of others, which no store does yet."""


class Verb(NamedTuple):
    """A verb and the events that it may mean, the first that applies counts. `only_from` narrows the table: a report
    can cancel a running job, never one that waits."""

    name: str
    events: tuple[Event, ...]
    apply: Callable[[Store, FakeClock, Job], Awaitable[object]]
    only_from: tuple[Status, ...] = STATUSES

    def expected(self, status: Status) -> tuple[Event | None, Status]:
        for event in self.events:
            to = after(status, event)
            if to is not None and status in self.only_from:
                return event, to
        return None, status


async def _report(kind: Kind, store: Store, clock: FakeClock, job: Job) -> None:
    # The claim number is the current one: only the status can keep the report out.
    await end(store, claim_of(replace(job, worker_id="w1")), kind)


async def _fail(store: Store, clock: FakeClock, job: Job) -> None:
    await end(store, replace(claim_of(job), attempt=job.max_attempts), "error")


async def _claim(store: Store, clock: FakeClock, job: Job) -> None:
    await claim(store, a_worker(threads=100))


async def _promote(store: Store, clock: FakeClock, job: Job) -> None:
    clock.advance(3600)
    await store.promote(100)


async def _expire(store: Store, clock: FakeClock, job: Job) -> None:
    clock.advance(3600)
    await store.expire(store.now_us() - SILENT, STEADY)


async def _cancel(store: Store, clock: FakeClock, job: Job) -> None:
    await store.cancel([job.id])


async def _replay(store: Store, clock: FakeClock, job: Job) -> None:
    await store.replay([job.id])


VERBS = [
    Verb("promote", ("due",), _promote),
    Verb("replay", ("hurried", "replayed"), _replay),
    Verb("claim", ("claimed",), _claim),
    Verb("cancel", ("cancel_requested", "cancelled"), _cancel),
    Verb("expire", ("lost",), _expire),
    Verb("report completed", ("completed",), partial(_report, "completed")),
    Verb("report error", ("retried",), partial(_report, "error")),
    Verb("report last error", ("failed",), _fail),
    Verb("report handed_back", ("handed_back",), partial(_report, "handed_back")),
    Verb("report cancelled", ("cancelled",), partial(_report, "cancelled"), ("running",)),
]


async def _job_in(status: Status, store: Store) -> Job:
    """A job in this status, with a claim behind it where that is possible."""
    await store.open_session(a_session(store))
    if status == "blocked":
        return await blocked(store)
    if status == "running":
        return await claimed(store)
    job = await claimed(store)
    kinds: dict[Status, Kind] = {
        "queued": "handed_back",
        "scheduled": "error",
        "completed": "completed",
        "failed": "invalid",
        "cancelled": "cancelled",
    }
    assert await end(store, job, kinds[status]) == status
    return await look(store, job)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
@pytest.mark.parametrize("status", STATUSES)
async def test_a_verb_does_what_the_table_says_and_nothing_else(
    store: Store, clock: FakeClock, status: Status, verb: Verb
) -> None:
    job = await _job_in(status, store)
    assert job.status == status
    event, expected = verb.expected(status)
    await verb.apply(store, clock, job)
    now = await look(store, job)
    assert now.status == expected
    assert now.claim_id == job.claim_id + (event == "claimed")
    if event is None:
        assert now == job


def test_every_transition_is_reached_by_some_verb() -> None:
    reached = {
        (status, event)
        for verb in VERBS
        for status in STATUSES
        for event in [verb.expected(status)[0]]
        if event is not None
    }
    assert reached == {pair for pair in TRANSITIONS if pair[1] not in WITHOUT_A_VERB}


def test_every_event_has_a_verb() -> None:
    assert {event for verb in VERBS for event in verb.events} | WITHOUT_A_VERB == set(EVENTS)


async def test_a_job_that_was_never_claimed_can_end_by_no_report(store: Store) -> None:
    job = await submitted(store, type="x")
    for kind in ("completed", "error", "handed_back", "cancelled"):
        assert await end(store, job, kind) is None
    assert await look(store, job) == job
