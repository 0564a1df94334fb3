"""Every (status, event) pair: a verb applied to a job in a status gives what the table says, or changes nothing."""

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from stoker.domain import extras
from stoker.domain.edit import Changes
from stoker.domain.errors import StateConflict
from stoker.domain.extras import Extras
from stoker.domain.job import Job
from stoker.domain.lifecycle import EVENTS, FINAL, STATUSES, TRANSITIONS, Event, Status, after, waiting
from stoker.domain.retry import Kind, Outcome, claim_of
from stoker.store.base import Store
from stoker.store.outcomes import Finish
from tests.conformance.steps import (
    HOUR,
    SILENT,
    STEADY,
    a_job,
    a_session,
    a_worker,
    blocked,
    claim,
    claimed,
    end,
    look,
    submit,
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

    def expected(self, status: Status) -> tuple[Event | None, tuple[Status, ...]]:
        for event in self.events:
            to = after(status, event)
            if to and status in self.only_from:
                return event, to
        return None, (status,)


async def _report(kind: Kind, store: Store, clock: FakeClock, job: Job) -> None:
    # The claim number is the current one: only the status can keep the report out.
    await end(store, claim_of(replace(job, worker_id="w1")), kind)


async def _fail(store: Store, clock: FakeClock, job: Job) -> None:
    await end(store, replace(claim_of(job), attempt=job.max_attempts), "error")


async def _snooze(store: Store, clock: FakeClock, job: Job) -> None:
    claim = claim_of(replace(job, worker_id="w1"))
    await store.finish([Finish(claim, Outcome("snoozed", "snoozed", delay_us=60_000_000))])


async def _postpone(store: Store, clock: FakeClock, job: Job) -> None:
    with contextlib.suppress(StateConflict):
        await store.edit(job.id, Changes(run_at=store.now_us() + HOUR))


async def _time_up(store: Store, clock: FakeClock, job: Job) -> None:
    clock.advance(3600)
    await store.end_overdue(100)


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
    Verb("report snoozed", ("snoozed",), _snooze),
    Verb("postpone", ("postponed",), _postpone, ("scheduled", "queued", *FINAL, "running")),
    Verb("expiry", ("expired",), _time_up),
    Verb("deadline", ("overdue",), _time_up),
    Verb("report handed_back", ("handed_back",), partial(_report, "handed_back")),
    Verb("report cancelled", ("cancelled",), partial(_report, "cancelled"), ("running",)),
]


def _limits(verb: Verb, store: Store) -> str | None:
    """The extras of a job whose time is up when this verb looks at it."""
    at = store.now_us() + 1800 * 1_000_000
    if verb.name == "expiry":
        return extras.encode(Extras(expires_at=at))
    return extras.encode(Extras(deadline_at=at)) if verb.name == "deadline" else None


async def _job_in(status: Status, store: Store, text: str | None = None) -> Job:
    """A job in this status, with a claim behind it where that is possible; `text` are its extras."""
    await store.open_session(a_session(store))
    if status == "blocked":
        (job,) = await submit(store, replace(a_job(store), status="blocked", pending_deps=1, extras=text))
        return job
    if status == "scheduled" and text is not None:  # one that backs off has started, and does not expire
        (job,) = await submit(store, replace(a_job(store, delay_us=2 * HOUR), extras=text))
        return job
    await submit(store, replace(a_job(store), extras=text))
    (job,) = await claim(store, a_worker(threads=1))
    if status == "running":
        return job
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
    if verb.name == "postpone" and status == "blocked":
        return  # a blocked job gets another due time and stays blocked: see test_edit.py
    job = await _job_in(status, store, _limits(verb, store))
    assert job.status == status
    event, expected = verb.expected(status)
    await verb.apply(store, clock, job)
    now = await look(store, job)
    assert now.status == (
        waiting(now.pending_deps, now.run_at, store.now_us()) if event == "replayed" else expected[0]
    )
    assert now.status in expected
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


async def test_a_replayed_job_still_waits_for_the_jobs_before_it(store: Store) -> None:
    job = await blocked(store)
    await store.cancel([job.id])
    (after_replay,) = await store.replay([job.id])
    assert after_replay is not None
    assert after_replay.status == "blocked"
    assert await claim(store) == []
    assert {(count.status, count.count) for count in await store.counts()} == {("blocked", 1)}


async def test_a_replayed_job_that_was_never_due_waits_for_its_time(store: Store, clock: FakeClock) -> None:
    job = await submitted(store, delay_us=HOUR)
    await store.cancel([job.id])
    (after_replay,) = await store.replay([job.id])
    assert after_replay is not None
    assert (after_replay.status, after_replay.run_at) == ("scheduled", job.run_at)
    assert await claim(store) == []
    clock.advance(3600)
    assert await store.promote(10) == 1
    assert [found.id for found in await claim(store)] == [job.id]


async def test_a_snoozed_job_is_not_charged_and_comes_back(store: Store, clock: FakeClock) -> None:
    job = await claimed(store)
    await _snooze(store, clock, job)
    snoozed = await look(store, job)
    assert (snoozed.status, snoozed.attempt, snoozed.run_at) == ("scheduled", 0, clock.now_us() + 60_000_000)
    (attempt,) = await store.attempts(job.id)
    assert (attempt.kind, attempt.charged) == ("snoozed", False)
