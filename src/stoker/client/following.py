"""What happened to a job, as events: `for event in job.events(): print(event)`.

The server keeps every attempt, so its answer for a job contains all that happened to it so far (`events_of`). To follow a
job is to ask again, with a request that the server holds until the job has ended or `LOOK_SECONDS` are over, and to yield
the new events.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, cast

import msgspec

from stoker.client.requests import JobError, JobInfo, ProgressInfo, get_job
from stoker.client.walks import Steps

LOOK_SECONDS: Final = 0.5
"""The delay of events other than the end of the job, at most."""

EventKind = Literal[
    "submitted", "started", "progress", "retrying", "handed_back", "completed", "failed", "cancelled"
]


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event in the life of a job, from `JobHandle.events`."""

    kind: EventKind
    """What happened."""
    job: JobInfo
    """The job as it was when the event was seen."""
    at: datetime | None = None
    """When it happened; None for `progress`."""
    attempt: int | None = None
    """The number of the attempt, for `started`, `progress`, `retrying` and `handed_back`."""
    worker_id: str | None = None
    """The worker of the attempt."""
    outcome: str | None = None
    """How the attempt ended: error, timeout, crash, lost, ..."""
    error: JobError | None = None
    """Why the attempt or the job failed."""
    retry_delay_sec: float | None = None
    """The seconds until the next attempt."""
    progress: ProgressInfo | None = None
    """For `progress`, how far the job is."""

    def __str__(self) -> str:
        which = f" attempt {self.attempt}" if self.attempt is not None else ""
        why = f": {self.error}" if self.error is not None else ""
        return f"{self.kind}{which}{why}"


def event_walk(job_id: str, *, follow: bool) -> Steps[JobEvent]:
    """Walk over the events of a job; with `follow`, until it has ended."""
    told = 0
    progress: ProgressInfo | None = None
    wait = 0.0
    while True:
        job: JobInfo = yield get_job(job_id, wait)
        events = events_of(job)
        new = events[told:]
        told = max(told, len(events))
        if job.progress is not None and job.progress != progress and not job.is_final:
            progress = job.progress
            new.append(JobEvent(kind="progress", job=job, attempt=job.attempt, progress=progress))
        yield new
        if job.is_final or not follow:
            return
        wait = LOOK_SECONDS


def events_of(job: JobInfo) -> list[JobEvent]:
    """Return the events of a job so far, oldest first. Later results begin with the same events."""
    events = [JobEvent(kind="submitted", job=job, at=job.created_at)]
    for attempt in job.attempts:
        if attempt.started_at is not None:
            events.append(
                JobEvent(
                    kind="started",
                    job=job,
                    at=attempt.started_at,
                    attempt=attempt.attempt,
                    worker_id=attempt.worker_id,
                )
            )
        last = attempt is job.attempts[-1]
        if attempt.outcome in (None, "running") or attempt.finished_at is None or (last and job.is_final):
            continue
        events.append(
            JobEvent(
                kind="handed_back" if attempt.charged is False else "retrying",
                job=job,
                at=attempt.finished_at,
                attempt=attempt.attempt,
                worker_id=attempt.worker_id,
                outcome=attempt.outcome,
                error=attempt.error,
                retry_delay_sec=attempt.retry_delay_sec,
            )
        )
    if job.is_final:
        end = cast(EventKind, job.status)
        events.append(JobEvent(kind=end, job=job, at=job.completed_at, error=job.error))
    return events
