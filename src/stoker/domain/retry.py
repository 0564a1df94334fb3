"""What becomes of an attempt: a report and a claim in, an outcome out.

Charging: a failure, a crash, a timeout and a lost lease cost an attempt; a hand-back (drain, prefetch, lost assignment)
and a snooze do not. A job that keeps killing its process is counted apart (`crashes`) and
ends after `CRASH_LIMIT` of them, whatever attempts it has left.
"""

from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from stoker.domain import extras
from stoker.domain.fingerprint import fingerprint
from stoker.domain.job import Job
from stoker.domain.job_errors import problem as problem
from stoker.domain.lifecycle import FINAL, Event, Status, target
from stoker.domain.retry_rules import (
    MAX_SNOOZES,
    NO_NOTE,
    ErrorNote,
    RetryRules,
    asked_us,
    delay_sec,
    retries_error,
)
from stoker.domain.time_limits import within_deadline

CRASH_LIMIT: Final = 3

Kind = Literal[
    "completed", "error", "invalid", "timeout", "crash", "lost", "cancelled", "handed_back", "snoozed"
]
"""How an attempt ended, according to the worker, or to the coordinator that gave it up. `invalid` is an error that no
retry can mend."""

UNCHARGED: Final[frozenset[Kind]] = frozenset({"handed_back", "snoozed"})
"""Ends that give back the attempt that the claim took."""
_CHARGED_AND_RETRIED: Final = frozenset({"error", "timeout", "crash", "lost"})


class RetryPolicy(msgspec.Struct, frozen=True):
    """Backoff is base^retry seconds, at most `cap_seconds`, spread by ±`jitter`."""

    base: float = 2.0
    cap_seconds: float = 300.0
    jitter: float = 0.3


class Claim(msgspec.Struct, frozen=True, gc=False):
    """What a coordinator remembers of a job that a session runs: enough to fence, decide and count its end."""

    seq: int
    id: str
    claim_id: int
    session_id: str
    type: str
    queue: str
    lane_id: int
    attempt: int
    max_attempts: int
    crashes: int
    threads: int
    timeout_sec: float | None
    created_at: int
    run_at: int
    claimed_at: int
    cancel_requested: bool
    extras: str | None = None
    """See `stoker.domain.extras`."""


def claim_of(job: Job) -> Claim:
    """Return what to remember of a running job."""
    return Claim(
        job.seq,
        job.id,
        job.claim_id,
        job.worker_id or "",
        job.type,
        job.queue,
        job.lane_id,
        job.attempt,
        job.max_attempts,
        job.crashes,
        job.threads_granted or job.thread_demand,
        job.timeout_sec,
        job.created_at,
        job.run_at,
        job.claimed_at or job.created_at,
        job.cancel_requested_at is not None,
        job.extras,
    )


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The end of one attempt, decided and ready to be stored under its claim."""

    event: Event
    kind: Kind
    result: bytes | None = None
    error: bytes | None = None
    delay_us: int = 0
    started_at: int | None = None
    finished_at: int | None = None
    cpu_us: int | None = None
    peak_memory_kb: int | None = None

    @property
    def status(self) -> Status:
        return target(self.event)


def backoff_seconds(retry: int, policy: RetryPolicy, spread: float) -> float:
    """Seconds to wait before retry number `retry` (1, 2, …); `spread` in [-1, 1] places it inside the jitter."""
    # The exponent is bounded before the power is taken: 2.0 ** 5000 overflows a float.
    plain = min(policy.base ** min(retry, 64), policy.cap_seconds)
    return plain * (1.0 + policy.jitter * spread)


def kind_of(kind: Kind, claim: Claim, note: ErrorNote) -> Kind:
    """Return how an attempt ended, once what its task asked for is known: an error may be a snooze, up to `MAX_SNOOZES`
    times."""
    if kind != "error" or note.snooze_sec is None:
        return kind
    return "snoozed" if extras.decode(claim.extras).snoozes < MAX_SNOOZES else "invalid"


def decide(
    kind: Kind, claim: Claim, policy: RetryPolicy, spread: float, note: ErrorNote = NO_NOTE
) -> tuple[Event, int]:
    """Return the event that `kind` means for this claim, and the delay in microseconds before the job is due again. The
    job's own rules (`stoker.domain.retry_rules`, which has them in a table) go before `policy`.

    A pending cancel is judged by the store, inside the transaction, because only the store knows of it.
    """
    if kind in ("completed", "cancelled", "handed_back"):
        return kind, 0
    if kind == "snoozed":
        return "snoozed", asked_us(note.snooze_sec or 0.0)
    out_of_attempts = claim.attempt >= claim.max_attempts
    out_of_crashes = kind == "crash" and claim.crashes + 1 >= CRASH_LIMIT
    if kind not in _CHARGED_AND_RETRIED or out_of_attempts or out_of_crashes:
        return "failed", 0
    rules = extras.decode(claim.extras).retry
    if rules is not None and not _worth_a_retry(rules, kind, note):
        return "failed", 0
    if kind == "lost":
        return "lost", 0
    if kind == "error" and note.retry_after_sec is not None:
        return "retried", asked_us(note.retry_after_sec)
    if rules is None:
        return "retried", int(backoff_seconds(claim.attempt, policy, spread) * 1_000_000)
    return "retried", int(delay_sec(rules, claim.attempt, spread) * 1_000_000)


def _worth_a_retry(rules: RetryRules, kind: Kind, note: ErrorNote) -> bool:
    if kind != "error":
        return kind not in rules.never
    return note.retry_after_sec is not None or retries_error(rules, note.names)


def after_attempt(job: Job, outcome: Outcome, now: int) -> Job:
    """Return the job after an attempt that did not complete it. Pure: every store writes what this returns.

    A pending cancel wins over any other way back into the queue. A hand-back and a snooze return the attempt that the
    claim took.
    """
    finished_at = outcome.finished_at or now
    cancelled = outcome.event == "cancelled" or job.cancel_requested_at is not None
    status: Status = "cancelled" if cancelled else outcome.status
    over = status in FINAL
    error = outcome.error if outcome.error is not None else job.error
    after = replace(
        job,
        status=status,
        attempt=job.attempt - 1 if outcome.event in UNCHARGED else job.attempt,
        crashes=job.crashes + (outcome.kind == "crash"),
        run_at=job.run_at if over or outcome.event == "handed_back" else now + outcome.delay_us,
        started_at=(outcome.started_at or job.started_at) if over else None,
        completed_at=finished_at if over else None,
        worker_id=job.worker_id if over else None,
        threads_granted=job.threads_granted if over else None,
        claimed_at=job.claimed_at if over else None,
        cpu_us=outcome.cpu_us if over else None,
        peak_memory_kb=outcome.peak_memory_kb if over else None,
        error=error,
        fingerprint=fingerprint(job.type, error) if status == "failed" else None,
        extras=_snoozed_once_more(job.extras) if outcome.event == "snoozed" else job.extras,
    )
    if job.extras is None:
        return after
    return within_deadline(job, after, now, timed_out=outcome.kind == "timeout")


def _snoozed_once_more(text: str | None) -> str | None:
    used = extras.decode(text)
    return extras.encode(replace(used, snoozes=used.snoozes + 1))
