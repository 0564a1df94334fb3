"""Expiry and deadline: moments after which a job does not start, or is over.

A job with an expiry that has not started by then never starts and ends as `cancelled`, with an error of type `expired`. A
job with a deadline has to end by then, retries included, or it ends as `failed`, with an error of type `deadline`. A running
attempt is killed by its worker, which is told how much time is left; a job that waits is ended by the claim that would have
taken it or by upkeep, whichever comes first. The store's clock judges.
"""

from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from stoker.domain import extras
from stoker.domain.fingerprint import fingerprint
from stoker.domain.job import Job
from stoker.domain.job_errors import problem
from stoker.domain.lifecycle import FINAL, WAITING, target
from stoker.domain.unique import has_started

Passed = Literal["expired", "overdue"]

SECOND: Final = 1_000_000
SLACK_US: Final = 500_000
"""An attempt that is killed this short before the deadline, by the worker's own clock, was killed because of it."""


def is_timed(text: str | None) -> bool:
    """Return whether a job has an expiry or a deadline. Such a job is sent to a free thread, never ahead of time."""
    if text is None:
        return False
    used = extras.decode(text)
    return used.expires_at is not None or used.deadline_at is not None


def next_limit(job: Job) -> int | None:
    """Return the moment at which a waiting job is over, if it still waits then."""
    if job.extras is None or job.status not in WAITING:
        return None
    used = extras.decode(job.extras)
    expires_at = None if has_started(job) else used.expires_at
    return min((at for at in (expires_at, used.deadline_at) if at is not None), default=None)


def passed(job: Job, now: int) -> Passed | None:
    """Return what ends a waiting job now, because its time is up; None while it may wait or start."""
    limit = next_limit(job)
    if limit is None or limit > now:
        return None
    used = extras.decode(job.extras)
    return "expired" if limit == used.expires_at and not has_started(job) else "overdue"


def ended(job: Job, event: Passed, now: int) -> Job:
    """Return a waiting job as it is once its time is up."""
    used = extras.decode(job.extras)
    if event == "expired":
        error = problem("expired", "the job had not started when it expired", at=used.expires_at)
    else:
        error = problem("deadline", "the job had not ended at its deadline", at=used.deadline_at)
    failed = target(event) == "failed"
    return replace(
        job,
        status=target(event),
        completed_at=now,
        error=error,
        fingerprint=fingerprint(job.type, error) if failed else None,
    )


def within_deadline(before: Job, after: Job, now: int, *, timed_out: bool) -> Job:
    """Return a job after an attempt, given its deadline: what could start again only after it has failed, and so has an
    attempt that was killed because of it."""
    deadline = extras.decode(before.extras).deadline_at
    if deadline is None or after.status in ("completed", "cancelled"):
        return after
    over = after.status in FINAL
    if over and not (timed_out and now >= deadline - SLACK_US):
        return after
    if not over and max(after.run_at, now) < deadline:
        return after
    cause = {} if after.error is None else {"cause": msgspec.Raw(after.error)}
    error = problem("deadline", "the job had not ended at its deadline", at=deadline, **cause)
    return replace(
        after,
        status="failed",
        run_at=before.run_at,
        started_at=after.started_at or before.started_at,
        completed_at=after.completed_at or now,
        worker_id=before.worker_id,
        threads_granted=before.threads_granted,
        claimed_at=before.claimed_at,
        error=error,
        fingerprint=fingerprint(before.type, error),
    )


def kept_by_replay(text: str | None, now: int) -> str | None:
    """Return the extras of a job that is replayed: an expiry or a deadline that has passed is dropped."""
    if text is None:
        return None
    used = extras.decode(text)
    return extras.encode(
        replace(used, expires_at=_ahead(used.expires_at, now), deadline_at=_ahead(used.deadline_at, now))
    )


def attempt_seconds(job: Job, now: int) -> float | None:
    """Return how long an attempt that starts now may take: its timeout, or less where the deadline is nearer."""
    deadline = None if job.extras is None else extras.decode(job.extras).deadline_at
    if deadline is None:
        return job.timeout_sec
    left = max(0.001, (deadline - now) / SECOND)
    return left if job.timeout_sec is None else min(job.timeout_sec, left)


def _ahead(at: int | None, now: int) -> int | None:
    return at if at is not None and at > now else None
