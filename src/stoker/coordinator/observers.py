"""Tells what happens to jobs to every object that registered for it: metrics, series, traces, events, waiters, the log.

An observer extends `JobObserver` and implements the methods that matter to it. `Observers` is the fan-out: the parts of the
coordinator call it after a commit, and it calls the observers in the order in which they were registered. It finds out at
registration which observers implement which method, so that an event costs nothing for the others.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from stoker.coordinator.durations import Durations, Key, durations_of
from stoker.domain.job import Job
from stoker.domain.lifecycle import Status
from stoker.domain.placement import Placed
from stoker.logs.log import request_id
from stoker.store.outcomes import Completions, Finish
from stoker.store.schedules import ScheduleChanged
from stoker.store.sessions import Expired
from stoker.store.submissions import Accepted


class JobObserver:
    """The base class of objects that are told what happens to jobs. Methods are called after the commit and must not
    raise."""

    def accepted(self, accepted: Sequence[Accepted]) -> None:
        """Jobs were stored. Called at once, in the context of the request that brought them."""

    def submitted(self, accepted: Sequence[Accepted], requests: Sequence[str | None]) -> None:
        """Jobs were stored. Called in the next turn of the loop with all jobs of this turn; `requests` has the id of the
        request that brought each item."""

    def dispatched(self, grants: Sequence[Placed]) -> None:
        """Jobs were claimed and sent to their workers. Called in the next turn, after `submitted`."""

    def started(self, ids: Sequence[str]) -> None:
        """Workers said that these jobs run."""

    def progressed(self, ids: Sequence[str]) -> None:
        """Workers said how far these jobs are."""

    def completed(self, completed: Sequence[Completions], durations: Mapping[Key, Durations]) -> None:
        """Attempts completed their jobs."""

    def ended(self, ended: Sequence[tuple[Finish, Status | None]]) -> None:
        """Attempts ended without completing their jobs, each with the status of its job now; None for a report that came
        too late and was refused."""

    def ended_waiting(self, jobs: Sequence[Job], *, overdue: bool) -> None:
        """Jobs ended without an attempt: cancelled, or `overdue`, because their expiry or deadline passed."""

    def cancel_requested(self, jobs: Sequence[Job]) -> None:
        """The cancel of these running jobs was stored; their workers have to end them."""

    def expired(self, expired: Expired) -> None:
        """Sessions were given up for lost, and their claims with them."""

    def changed(self, ids: Sequence[str]) -> None:
        """These jobs were edited, replayed, replaced or released."""

    def changed_many(self, count: int) -> None:
        """This many jobs, whose ids are not known, were changed as in `changed`."""

    def changed_elsewhere(self, ids: Sequence[str]) -> None:
        """Another coordinator changed these jobs."""

    def ticked(self, changed: Sequence[ScheduleChanged]) -> None:
        """Schedules changed: by a tick, or because of a request."""


class WakeOnEnd(JobObserver):
    """Wakes the dispatcher when jobs end: the transaction that ended them may have queued deliveries of webhooks."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def completed(self, completed: Sequence[Completions], durations: Mapping[Key, Durations]) -> None:
        self._wake()

    def ended(self, ended: Sequence[tuple[Finish, Status | None]]) -> None:
        self._wake()

    def ended_waiting(self, jobs: Sequence[Job], *, overdue: bool) -> None:
        if not overdue:
            self._wake()

    def cancel_requested(self, jobs: Sequence[Job]) -> None:
        self._wake()

    def expired(self, expired: Expired) -> None:
        self._wake()


class Observers:
    """Passes each event to the observers that implement its method, in the order of their registration."""

    def __init__(self, *observers: JobObserver) -> None:
        self._waiting: list[Accepted] = []
        self._requests: list[str | None] = []
        self.register(*observers)

    def register(self, *observers: JobObserver) -> None:
        """Replace the observers."""
        self._accepted = _implementing("accepted", observers)
        self._submitted = _implementing("submitted", observers)
        self._dispatched = _implementing("dispatched", observers)
        self._started = _implementing("started", observers)
        self._progressed = _implementing("progressed", observers)
        self._completed = _implementing("completed", observers)
        self._ended = _implementing("ended", observers)
        self._ended_waiting = _implementing("ended_waiting", observers)
        self._cancel_requested = _implementing("cancel_requested", observers)
        self._expired = _implementing("expired", observers)
        self._changed = _implementing("changed", observers)
        self._changed_many = _implementing("changed_many", observers)
        self._changed_elsewhere = _implementing("changed_elsewhere", observers)
        self._ticked = _implementing("ticked", observers)

    def submitted(self, accepted: Sequence[Accepted]) -> None:
        """Tell `accepted` at once, and `submitted` in the next turn of the loop, for all jobs that were stored together."""
        for observer in self._accepted:
            observer.accepted(accepted)
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._tell_submitted)
        self._waiting += accepted
        self._requests += [request_id.get()] * len(accepted)

    def _tell_submitted(self) -> None:
        if not self._waiting:
            return
        accepted, self._waiting = self._waiting, []
        requests, self._requests = self._requests, []
        for observer in self._submitted:
            observer.submitted(accepted, requests)

    def dispatched(self, grants: Sequence[Placed]) -> None:
        # In the next turn: a job may be submitted and claimed in one transaction, and the request that submitted it may be
        # answered later in this turn. Observers and the log get `submitted` before `dispatched`.
        asyncio.get_running_loop().call_soon(self._tell_dispatched, grants)

    def _tell_dispatched(self, grants: Sequence[Placed]) -> None:
        self._tell_submitted()
        for observer in self._dispatched:
            observer.dispatched(grants)

    def started(self, ids: Sequence[str]) -> None:
        for observer in self._started:
            observer.started(ids)

    def progressed(self, ids: Sequence[str]) -> None:
        for observer in self._progressed:
            observer.progressed(ids)

    def completed(self, completed: Sequence[Completions]) -> None:
        durations = durations_of(completed)
        for observer in self._completed:
            observer.completed(completed, durations)

    def ended(self, ended: Sequence[tuple[Finish, Status | None]]) -> None:
        for observer in self._ended:
            observer.ended(ended)

    def cancelled(self, jobs: Sequence[Job], asked_at: int) -> None:
        """Report a cancel that was requested at this time. Running jobs still have to be ended by their workers; jobs
        that ended before this time were cancelled by another request, perhaps at another coordinator."""
        running = [job for job in jobs if job.status == "running"]
        new = [job for job in jobs if job.status != "running" and _ended_since(job, asked_at)]
        old = [job.id for job in jobs if job.status != "running" and not _ended_since(job, asked_at)]
        if running:
            for observer in self._cancel_requested:
                observer.cancel_requested(running)
        if new:
            for observer in self._ended_waiting:
                observer.ended_waiting(new, overdue=False)
        if old:
            self.changed_elsewhere(old)

    def overdue(self, jobs: Sequence[Job]) -> None:
        for observer in self._ended_waiting:
            observer.ended_waiting(jobs, overdue=True)

    def expired(self, expired: Expired) -> None:
        for observer in self._expired:
            observer.expired(expired)

    def changed(self, ids: Sequence[str]) -> None:
        for observer in self._changed:
            observer.changed(ids)

    def changed_many(self, count: int) -> None:
        for observer in self._changed_many:
            observer.changed_many(count)

    def changed_elsewhere(self, ids: Sequence[str]) -> None:
        for observer in self._changed_elsewhere:
            observer.changed_elsewhere(ids)

    def ticked(self, changed: Sequence[ScheduleChanged]) -> None:
        for observer in self._ticked:
            observer.ticked(changed)


def _ended_since(job: Job, at: int) -> bool:
    return job.completed_at is not None and job.completed_at >= at


def _implementing(method: str, observers: Sequence[JobObserver]) -> list[JobObserver]:
    """Return the observers whose class has its own version of this method."""
    default = getattr(JobObserver, method)
    return [observer for observer in observers if getattr(type(observer), method) is not default]
