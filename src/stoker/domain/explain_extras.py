"""What `stoker why` says of a job's expiry, deadline and unique key."""

from collections.abc import Callable

import msgspec

from stoker.domain import extras
from stoker.domain.job import Job
from stoker.domain.lifecycle import FINAL, WAITING
from stoker.domain.time_limits import is_timed
from stoker.domain.unique import has_started, holds_key

Span = Callable[[int], str]
"""Writes a duration in microseconds for people."""


def ended_because(job: Job) -> str | None:
    """Return a sentence for a job that ended because its time was up."""
    if job.error is None or job.extras is None:
        return None
    try:
        kind = msgspec.json.decode(job.error)["type"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return None
    if kind == "expired":
        return "The job expired: it had not started by its expires_at, and so was cancelled."
    if kind == "deadline":
        return "The job missed its deadline: it had not ended by its deadline_at, retries included."
    return None


def details_of(job: Job, now: int, span: Span) -> list[str]:
    """Return what else there is to know of a job that is not over."""
    if job.extras is None or job.status in FINAL:
        return []
    used = extras.decode(job.extras)
    details: list[str] = []
    if used.expires_at is not None and job.status in WAITING and not has_started(job):
        details.append(
            f"If it has not started in {span(used.expires_at - now)}, it is cancelled (expires_at)."
        )
    if used.deadline_at is not None:
        details.append(f"If it has not ended in {span(used.deadline_at - now)}, it fails (deadline_at).")
    if is_timed(job.extras) and job.status == "queued":
        details.append(
            "With an expiry or a deadline it is not sent to a worker ahead of time: it starts when a thread is free."
        )
    if used.unique_key is not None and holds_key(job):
        until = "finished" if used.unique_until == "finished" else "started"
        details.append(f"It holds the unique key {used.unique_key!r} until it has {until}.")
    return details
