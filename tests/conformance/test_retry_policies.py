"""What each end of an attempt does under each retry policy, told as a worker tells it, and equal on every store."""

from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from stoker.clock import SECOND
from stoker.coordinator.observers import Observers
from stoker.coordinator.reports import ReportSink
from stoker.coordinator.run_times import RunTimes
from stoker.coordinator.sessions import WorkerSession
from stoker.domain import extras
from stoker.domain.extras import Extras, extras_of
from stoker.domain.job import NO_DEFAULTS, Job, JobSpec, new_job
from stoker.domain.lifecycle import Status
from stoker.domain.retry import claim_of, problem
from stoker.domain.retry_rules import MAX_SNOOZES, ErrorNote, RetryRules
from stoker.ids import new_id
from stoker.store.base import Store
from stoker.wire.frames import PROTOCOL, Hello, Report
from tests.conformance.steps import SILENT, STEADY, a_session, claim_again, look, submit
from tests.support.clock import FakeClock

CONNECTION = ErrorNote(["ConnectionError", "OSError", "Exception", "BaseException"])
VALUE = ErrorNote(["ValueError", "Exception", "BaseException"])

SERVER = None
"""A job without a policy of its own: 2^retry seconds, by the coordinator's settings."""
PLAIN = RetryRules(jitter=0)
LINEAR = RetryRules(backoff="linear", base_sec=5, cap_sec=12, jitter=0)
FIXED = RetryRules(backoff="fixed", base_sec=7, jitter=0)
LIST = RetryRules(delays_sec=(1, 5, 30))
ONLY_OS = RetryRules(jitter=0, on=("OSError",))
NEVER_OS = RetryRules(jitter=0, never=("OSError", "timeout", "crash", "lost"))
POLICIES: dict[str, RetryRules | None] = {
    "server": SERVER,
    "plain": PLAIN,
    "linear": LINEAR,
    "fixed": FIXED,
    "list": LIST,
    "only_os": ONLY_OS,
    "never_os": NEVER_OS,
}


class End(NamedTuple):
    """How an attempt ends, and what becomes of its job under each policy: the seconds to wait for the second attempt and, if
    that ends in the same way, for the third; 0 is "at once", and None is a dead letter."""

    kind: str
    note: ErrorNote | None
    expected: dict[str, list[float | None]]


FAILED: list[float | None] = [None]
BACKOFF: dict[str, list[float | None]] = {
    "server": [2, 4],
    "plain": [2, 4],
    "linear": [5, 10],
    "fixed": [7, 7],
    "list": [1, 5],
}
ENDS: dict[str, End] = {
    "connection_error": End("error", CONNECTION, {**BACKOFF, "only_os": [2, 4], "never_os": FAILED}),
    "value_error": End("error", VALUE, {**BACKOFF, "only_os": FAILED, "never_os": [2, 4]}),
    "error_without_names": End("error", None, {**BACKOFF, "only_os": FAILED, "never_os": [2, 4]}),
    "retry_after": End(
        "error", ErrorNote(CONNECTION.names, retry_after_sec=33), {policy: [33, 33] for policy in POLICIES}
    ),
    "fail": End("invalid", VALUE, dict.fromkeys(POLICIES, FAILED)),
    "timeout": End("timeout", None, {**BACKOFF, "only_os": [2, 4], "never_os": FAILED}),
    # The third crash is the last, whatever the policy says.
    "crash": End("crash", None, {**BACKOFF, "only_os": [2, 4], "never_os": FAILED}),
    "lost": End("lost", None, {**{policy: [0, 0] for policy in POLICIES}, "never_os": FAILED}),
}


async def running(store: Store, rules: RetryRules | None, **fields: Any) -> Job:
    """One job with this policy, running in session w1."""
    spec = JobSpec(retry=rules, **fields) if rules is not None else JobSpec(**fields)
    now = store.now_us()
    job = new_job(
        spec,
        id=new_id(),
        now=now,
        run_at=now,
        max_attempts=4,
        order="lowest_first",
        extras=extras_of(spec, NO_DEFAULTS, now),
    )
    await store.open_session(a_session(store))
    (stored,) = await submit(store, job)
    return await claim_again(store, stored)


def a_sink(store: Store) -> ReportSink:
    return ReportSink(
        store,
        RunTimes(),
        STEADY,
        max_result_bytes=1_000,
        spread=lambda: 0.0,
        wake=lambda: None,
        observers=Observers(),
    )


async def ended(store: Store, clock: FakeClock, job: Job, kind: str, note: ErrorNote | None) -> Job:
    """The job after its attempt ended like this."""
    if kind == "lost":
        clock.advance(SILENT / SECOND + 1)
        await store.expire(store.now_us() - SILENT, STEADY)
        return await look(store, job)
    session = WorkerSession(Hello(PROTOCOL, "w1", "w1", 1, ["echo"]), lambda frame: None)
    report = Report(job.id, job.claim_id, kind, error=problem("Oops", "for a test"), note=note)  # type: ignore[arg-type]
    assert await a_sink(store).take(session, [report], [claim_of(job)]) == []
    return await look(store, job)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("how", ENDS)
async def test_what_an_end_does_under_a_policy(store: Store, clock: FakeClock, how: str, policy: str) -> None:
    kind, note, expected = ENDS[how]
    job = await running(store, POLICIES[policy])
    for number, delay in enumerate(expected[policy], 1):
        if kind == "lost" and number > 1:
            await store.open_session(a_session(store, "w2"))
            job = await _claimed_by(store, job, "w2")
        after = await ended(store, clock, job, kind, note)
        assert after.attempt == number
        if delay is None:
            assert (after.status, after.completed_at) == ("failed", store.now_us())
            return
        status: Status = "queued" if kind == "lost" else "scheduled"
        assert (after.status, after.run_at) == (status, store.now_us() + int(delay * SECOND))
        if kind != "lost":
            clock.advance(delay)
            await store.promote(10)
            job = await claim_again(store, after)
    if kind == "crash":
        assert (await ended(store, clock, job, kind, note)).status == "failed"


async def _claimed_by(store: Store, job: Job, session_id: str) -> Job:
    return await claim_again(store, job, session_id)


async def test_a_list_of_delays_says_how_many_attempts_there_are(store: Store, clock: FakeClock) -> None:
    job = await running(store, LIST)
    assert job.max_attempts == 4
    for delay in (1, 5, 30):
        job = await ended(store, clock, job, "error", None)
        assert job.run_at == store.now_us() + delay * SECOND
        clock.advance(delay)
        await store.promote(10)
        job = await claim_again(store, job)
    assert (await ended(store, clock, job, "error", None)).status == "failed"


async def test_a_snooze_is_not_charged_and_is_counted(store: Store, clock: FakeClock) -> None:
    job = await running(store, None, max_attempts=1)
    for number in (1, 2, 3):
        job = await ended(store, clock, job, "error", ErrorNote([], snooze_sec=60))
        assert (job.status, job.attempt, job.run_at) == ("scheduled", 0, store.now_us() + 60 * SECOND)
        assert extras.decode(job.extras).snoozes == number
        clock.advance(60)
        await store.promote(10)
        job = await claim_again(store, job)
    attempts = await store.attempts(job.id)
    assert [(attempt.kind, attempt.charged) for attempt in attempts[:3]] == [("snoozed", False)] * 3
    assert (await ended(store, clock, job, "error", None)).status == "failed"


async def test_a_job_that_snoozed_a_thousand_times_fails_at_the_next(store: Store, clock: FakeClock) -> None:
    job = await running(store, None)
    almost = claim_of(job)
    text = extras.encode(Extras(snoozes=MAX_SNOOZES))
    session = WorkerSession(Hello(PROTOCOL, "w1", "w1", 1, ["echo"]), lambda frame: None)
    report = Report(job.id, job.claim_id, "error", note=ErrorNote([], snooze_sec=1))
    await a_sink(store).take(session, [report], [replace(almost, extras=text)])
    after = await look(store, job)
    assert after.status == "failed"
    assert after.error is not None
    assert b"too_many_snoozes" in after.error


async def test_a_replayed_job_may_snooze_anew(store: Store, clock: FakeClock) -> None:
    job = await running(store, PLAIN)
    job = await ended(store, clock, job, "error", ErrorNote([], snooze_sec=0))
    await store.promote(10)
    job = await claim_again(store, job)
    job = await ended(store, clock, job, "invalid", None)
    assert (job.status, extras.decode(job.extras).snoozes) == ("failed", 1)
    (again,) = await store.replay([job.id])
    assert again is not None
    assert (extras.decode(again.extras).snoozes, extras.decode(again.extras).retry) == (0, PLAIN)
    assert extras.decode((await look(store, job)).extras).snoozes == 0


async def test_a_snooze_that_is_reported_twice_counts_once(store: Store, clock: FakeClock) -> None:
    job = await running(store, None)
    note = ErrorNote([], snooze_sec=60)
    await ended(store, clock, job, "error", note)
    after = await ended(store, clock, job, "error", note)
    assert extras.decode(after.extras).snoozes == 1


async def test_a_job_whose_cancel_was_asked_for_does_not_snooze(store: Store, clock: FakeClock) -> None:
    job = await running(store, None)
    await store.cancel([job.id])
    assert (await ended(store, clock, job, "error", ErrorNote([], snooze_sec=60))).status == "cancelled"
