"""What becomes of an attempt: who is charged, how long it waits, when it is over."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.domain.lifecycle import after
from stoker.domain.retry import (
    CRASH_LIMIT,
    Kind,
    Outcome,
    RetryPolicy,
    after_attempt,
    backoff_seconds,
    claim_of,
    decide,
    problem,
)
from tests.support.clock import START_US
from tests.support.jobs import a_claim, a_job

KINDS: tuple[Kind, ...] = get_args(Kind)
POLICY = RetryPolicy()
policies = st.builds(
    RetryPolicy,
    base=st.floats(1.0, 100.0),
    cap_seconds=st.floats(0.1, 86_400.0),
    jitter=st.floats(0.0, 1.0),
)
spreads = st.floats(-1.0, 1.0)


# ── backoff ────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.integers(1, 10_000), policies, spreads)
def test_a_delay_stays_within_jitter_and_cap(retry: int, policy: RetryPolicy, spread: float) -> None:
    delay = backoff_seconds(retry, policy, spread)
    plain = min(policy.base ** min(retry, 64), policy.cap_seconds)
    slack = 1e-9 * plain
    assert plain * (1 - policy.jitter) - slack <= delay <= plain * (1 + policy.jitter) + slack
    assert 0 <= delay <= policy.cap_seconds * (1 + policy.jitter) + slack


@given(st.integers(1, 99), policies)
def test_delays_never_shrink_from_one_retry_to_the_next(retry: int, policy: RetryPolicy) -> None:
    assert backoff_seconds(retry, policy, 0.0) <= backoff_seconds(retry + 1, policy, 0.0)


def test_the_default_delays_are_two_four_eight_up_to_five_minutes() -> None:
    delays = [backoff_seconds(retry, POLICY, 0.0) for retry in (1, 2, 3, 8, 9, 5_000)]
    assert delays == [2.0, 4.0, 8.0, 256.0, 300.0, 300.0]


# ── decide ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.sampled_from(KINDS), st.integers(1, 100), st.integers(1, 100), st.integers(0, 5), policies, spreads)
def test_every_decision_may_leave_running_and_only_retries_wait(
    kind: Kind, attempt: int, max_attempts: int, crashes: int, policy: RetryPolicy, spread: float
) -> None:
    claim = a_claim(attempt=attempt, max_attempts=max_attempts, crashes=crashes)
    event, delay_us = decide(kind, claim, policy, spread)
    assert after("running", event) is not None
    assert delay_us >= 0
    assert (delay_us > 0) <= (event == "retried")
    if event in ("retried", "lost"):
        assert attempt < max_attempts


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        ("completed", "completed"),
        ("cancelled", "cancelled"),
        ("handed_back", "handed_back"),
        ("error", "retried"),
        ("timeout", "retried"),
        ("crash", "retried"),
        ("lost", "lost"),
        ("invalid", "failed"),
    ],
)
def test_what_an_end_means_while_attempts_are_left(kind: Kind, event: str) -> None:
    assert decide(kind, a_claim(attempt=1, max_attempts=4), POLICY, 0.0)[0] == event


@pytest.mark.parametrize("kind", ["error", "timeout", "crash", "lost", "invalid"])
def test_the_last_attempt_that_fails_is_final(kind: Kind) -> None:
    assert decide(kind, a_claim(attempt=4, max_attempts=4), POLICY, 0.0) == ("failed", 0)


@pytest.mark.parametrize("kind", ["completed", "cancelled", "handed_back"])
def test_what_is_not_charged_does_not_look_at_attempts(kind: Kind) -> None:
    assert decide(kind, a_claim(attempt=4, max_attempts=4, crashes=9), POLICY, 0.0) == (kind, 0)


def test_the_third_crash_is_the_last_whatever_attempts_are_left() -> None:
    events = [
        decide("crash", a_claim(crashes=crashes, max_attempts=100), POLICY, 0.0)[0]
        for crashes in range(CRASH_LIMIT)
    ]
    assert events == ["retried", "retried", "failed"]


def test_crashes_do_not_count_against_an_ordinary_error() -> None:
    assert decide("error", a_claim(crashes=9, max_attempts=100), POLICY, 0.0)[0] == "retried"


def test_the_delay_grows_with_the_attempt() -> None:
    delays = [decide("error", a_claim(attempt=n), POLICY, 0.0)[1] for n in (1, 2, 3)]
    assert delays == [2_000_000, 4_000_000, 8_000_000]


# ── after an attempt ───────────────────────────────────────────────────────────────────────────────────────────────


RUNNING = a_job(
    status="running", claim_id=3, attempt=2, worker_id="w", claimed_at=START_US, threads_granted=2
)
NOW = START_US + 10


def outcome(kind: Kind) -> Outcome:
    event, delay = decide(kind, claim_of(RUNNING), POLICY, 0.0)
    return Outcome(event, kind, error=problem(kind, "x"), delay_us=delay)


@pytest.mark.parametrize("kind", ["error", "crash", "handed_back", "lost"])
def test_a_job_that_goes_back_is_nobodys(kind: Kind) -> None:
    job = after_attempt(RUNNING, outcome(kind), NOW)
    assert (job.worker_id, job.claimed_at, job.threads_granted, job.completed_at) == (None,) * 4
    assert job.claim_id == RUNNING.claim_id


@pytest.mark.parametrize("kind", ["error", "crash", "handed_back", "lost", "invalid", "cancelled"])
def test_a_pending_cancel_wins_over_every_other_end(kind: Kind) -> None:
    wanted = replace(RUNNING, cancel_requested_at=NOW - 1)
    job = after_attempt(wanted, outcome(kind), NOW)
    assert (job.status, job.completed_at, job.run_at) == ("cancelled", NOW, RUNNING.run_at)


def test_only_a_hand_back_and_a_snooze_return_the_attempt() -> None:
    attempts = {
        kind: after_attempt(RUNNING, outcome(kind), NOW).attempt for kind in KINDS if kind != "completed"
    }
    assert {kind for kind, attempt in attempts.items() if attempt == 1} == {"handed_back", "snoozed"}
    assert set(attempts.values()) == {1, 2}


def test_a_lost_job_is_due_now_and_a_retried_one_later() -> None:
    assert after_attempt(RUNNING, outcome("lost"), NOW).run_at == NOW
    assert after_attempt(RUNNING, outcome("error"), NOW).run_at == NOW + 4_000_000


def test_an_error_without_details_keeps_the_last_one() -> None:
    before = replace(RUNNING, error=b'"old"')
    assert after_attempt(before, Outcome("cancelled", "cancelled"), NOW).error == b'"old"'


@given(st.text(), st.text())
def test_a_problem_is_json_with_type_and_message(type: str, message: str) -> None:
    if any("\ud800" <= c <= "\udfff" for c in type + message):
        return
    assert msgspec.json.decode(problem(type, message, signal=9)) == {
        "type": type,
        "message": message,
        "signal": 9,
    }
