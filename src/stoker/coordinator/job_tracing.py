"""Traces of jobs: tells the tracer (`stoker.tracing`) what happened to them."""

from collections.abc import Callable, Mapping, Sequence

from stoker.coordinator.durations import Durations, Key
from stoker.coordinator.observers import JobObserver
from stoker.coordinator.reports import each
from stoker.domain.job import Job
from stoker.domain.lifecycle import Status
from stoker.store.outcomes import Completions, Finish
from stoker.store.sessions import Expired
from stoker.store.submissions import Accepted
from stoker.tracing import JobTracer


class TracedJobs(JobObserver):
    """Passes on to the tracer, one by one, what happens to jobs."""

    def __init__(self, tracer: JobTracer, now_us: Callable[[], int]) -> None:
        self._tracer = tracer
        self._now_us = now_us

    def accepted(self, accepted: Sequence[Accepted]) -> None:
        new = [job for item in accepted if not item.repeated for job in item.batch]
        self._tracer.submitted(new, self._now_us())

    def completed(self, completed: Sequence[Completions], durations: Mapping[Key, Durations]) -> None:
        for claim, outcome in each(completed):
            self._tracer.ended(claim, outcome, "completed")

    def ended(self, ended: Sequence[tuple[Finish, Status | None]]) -> None:
        for finish, status in ended:
            self._tracer.ended(finish.claim, finish.outcome, status)

    def ended_waiting(self, jobs: Sequence[Job], *, overdue: bool) -> None:
        for job in jobs:
            self._tracer.cancelled(job, job.completed_at or job.created_at)

    def expired(self, expired: Expired) -> None:
        for lost in expired.losses:
            self._tracer.lost(lost.claim, lost.status, self._now_us())
