"""Many jobs at once: their results, in order or as they end, and the number of jobs in each status.

Waiting for any number of jobs takes one or two connections (`stoker.client.waits`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import msgspec

from stoker.client.errors import ProblemError, StokerError
from stoker.client.job import JobHandle
from stoker.client.outcomes import (
    MAX_IDS,
    Outcome,
    WaitAnswer,
    can_share,
    failure,
    lacks_endpoint,
    last_look,
    wait_request,
)
from stoker.client.requests import Conversation, JobInfo, check_timeout, wait_for_end
from stoker.client.waits import Receiver, StreamReceiver, ThreadReceiver, deadline_of

if TYPE_CHECKING:
    from stoker.client.transport import Transport

R = TypeVar("R")

Handles = dict[str, list[JobHandle[R]]]


class BatchCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of jobs of a batch in each status."""

    total: int = 0
    blocked: int = 0
    scheduled: int = 0
    queued: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    missing: int = 0
    """Jobs that the server does not have, or no longer has."""

    @property
    def ended(self) -> int:
        """Return the number of completed, failed and cancelled jobs."""
        return self.completed + self.failed + self.cancelled

    @property
    def pending(self) -> int:
        """Return the number of jobs that have not ended."""
        return self.total - self.ended - self.missing


class Batch(list[JobHandle[R]], Generic[R]):
    """A list of job handles with methods for all of them at once. Made by `Task.submit_many`."""

    @overload
    def results(
        self, timeout: float | None = None, *, return_exceptions: Literal[False] = False
    ) -> list[R]: ...

    @overload
    def results(self, timeout: float | None = None, *, return_exceptions: bool) -> list[R | StokerError]: ...

    def results(self, timeout: float | None = None, *, return_exceptions: bool = False) -> list[Any]:
        """Wait for all jobs and return their results in order, like `gather`."""
        return gather(self, timeout=timeout, return_exceptions=return_exceptions)

    @overload
    async def results_async(
        self, timeout: float | None = None, *, return_exceptions: Literal[False] = False
    ) -> list[R]: ...

    @overload
    async def results_async(
        self, timeout: float | None = None, *, return_exceptions: bool
    ) -> list[R | StokerError]: ...

    async def results_async(
        self, timeout: float | None = None, *, return_exceptions: bool = False
    ) -> list[Any]:
        """Wait for all jobs and return their results in order, like `gather_async`."""
        return await gather_async(self, timeout=timeout, return_exceptions=return_exceptions)

    def as_completed(self, timeout: float | None = None) -> Completed[R]:
        """Return the jobs in the order in which they end, like the function `as_completed`."""
        return as_completed(self, timeout=timeout)

    def counts(self) -> BatchCounts:
        """Return the number of jobs in each status now, with one request for each 10,000 jobs."""
        try:
            return _total([of.run(_count(ids)) for of, ids in _by_server(self).items()])
        except ProblemError as error:
            raise _explained(error) from None

    async def counts_async(self) -> BatchCounts:
        """Return the number of jobs in each status, like `counts`, without blocking the event loop."""
        try:
            return _total([await of.run_async(_count(ids)) for of, ids in _by_server(self).items()])
        except ProblemError as error:
            raise _explained(error) from None


@overload
def gather(
    jobs: Iterable[JobHandle[R]], *, timeout: float | None = None, return_exceptions: Literal[False] = False
) -> list[R]: ...


@overload
def gather(
    jobs: Iterable[JobHandle[R]], *, timeout: float | None = None, return_exceptions: bool
) -> list[R | StokerError]: ...


def gather(
    jobs: Iterable[JobHandle[Any]], *, timeout: float | None = None, return_exceptions: bool = False
) -> list[Any]:
    """Wait for jobs and return their results, in the order of the jobs.

    The first failure raises what `JobHandle.result` would, and the other jobs go on; with `return_exceptions` the errors are
    returned in the places of the results. Raises `ResultTimeout` after `timeout` seconds for all of them (None: never).
    """
    wanted = list(jobs)
    found: dict[str, Any] = {}
    for job in as_completed(wanted, timeout=timeout):
        found[job.id] = _result(job, return_exceptions=return_exceptions)
    return [found[job.id] for job in wanted]


@overload
async def gather_async(
    jobs: Iterable[JobHandle[R]], *, timeout: float | None = None, return_exceptions: Literal[False] = False
) -> list[R]: ...


@overload
async def gather_async(
    jobs: Iterable[JobHandle[R]], *, timeout: float | None = None, return_exceptions: bool
) -> list[R | StokerError]: ...


async def gather_async(
    jobs: Iterable[JobHandle[Any]], *, timeout: float | None = None, return_exceptions: bool = False
) -> list[Any]:
    """Wait for jobs and return their results, like `gather`, without blocking the event loop."""
    wanted = list(jobs)
    found: dict[str, Any] = {}
    async for job in as_completed(wanted, timeout=timeout):
        found[job.id] = _result(job, return_exceptions=return_exceptions)
    return [found[job.id] for job in wanted]


def as_completed(jobs: Iterable[JobHandle[R]], *, timeout: float | None = None) -> Completed[R]:
    """Return the jobs in the order in which they end: `for job in as_completed(jobs)`, or `async for`.

    A `result()` in the loop needs no request. Raises `ResultTimeout` when not all have ended after `timeout` seconds (None:
    never).
    """
    check_timeout(timeout)
    return Completed(jobs, timeout)


class Completed(Generic[R]):
    """The jobs of `as_completed`, for `for` and for `async for`. Waiting begins with the first step."""

    def __init__(self, jobs: Iterable[JobHandle[R]], timeout: float | None) -> None:
        self._handles: Handles[R] = {}
        for job in jobs:
            self._handles.setdefault(job.id.lower(), []).append(job)
        self._timeout = timeout

    def __iter__(self) -> Iterator[JobHandle[R]]:
        deadline = deadline_of(self._timeout)
        left = {**self._handles}
        for job_id in [job_id for job_id in left if not can_share(job_id)]:
            yield from _ended(left, {job_id: _alone(left[job_id][0], self._timeout)})
        receiver = ThreadReceiver()
        _add(left, receiver, self._timeout)
        try:
            while left:
                outcomes = receiver.next(deadline)
                if not outcomes:
                    first = next(iter(left.values()))[0]
                    look = first._transport.run(last_look(first.id, self._timeout or 0))
                    outcomes = {first.id.lower(): look}
                yield from _ended(left, outcomes)
        finally:
            _remove(left, receiver)

    async def __aiter__(self) -> AsyncIterator[JobHandle[R]]:
        deadline = deadline_of(self._timeout)
        left = {**self._handles}
        for job_id in [job_id for job_id in left if not can_share(job_id)]:
            for job in _ended(left, {job_id: await _alone_async(left[job_id][0], self._timeout)}):
                yield job
        receiver = StreamReceiver()
        _add(left, receiver, self._timeout)
        try:
            while left:
                outcomes = await receiver.next(deadline)
                if not outcomes:
                    first = next(iter(left.values()))[0]
                    look = first._transport.run_async(last_look(first.id, self._timeout or 0))
                    outcomes = {first.id.lower(): await look}
                for job in _ended(left, outcomes):
                    yield job
        finally:
            _remove(left, receiver)


def _ended(left: Handles[R], outcomes: Mapping[str, Outcome]) -> Iterator[JobHandle[R]]:
    for job_id, outcome in outcomes.items():
        for job in left.pop(job_id, ()):
            job._note(outcome)
            yield job


def _alone(job: JobHandle[Any], timeout: float | None) -> Outcome:
    """Wait for a job whose id is no UUID, with a request of its own."""
    try:
        return job._transport.run(wait_for_end(job.id, timeout))
    except ProblemError as error:
        return failure(error)


async def _alone_async(job: JobHandle[Any], timeout: float | None) -> Outcome:
    try:
        return await job._transport.run_async(wait_for_end(job.id, timeout))
    except ProblemError as error:
        return failure(error)


def _by_server(jobs: Iterable[JobHandle[Any]]) -> dict[Transport, list[str]]:
    servers: defaultdict[Transport, dict[str, None]] = defaultdict(dict)
    for job in jobs:
        servers[job._transport][job.id.lower()] = None
    return {transport: list(ids) for transport, ids in servers.items()}


def _add(left: Handles[Any], receiver: Receiver, timeout: float | None) -> None:
    for transport, ids in _by_server(jobs[0] for jobs in left.values()).items():
        transport.waits.add(ids, receiver, timeout)


def _remove(left: Handles[Any], receiver: Receiver) -> None:
    for transport, ids in _by_server(jobs[0] for jobs in left.values()).items():
        transport.waits.remove(ids, receiver)


def _result(job: JobHandle[Any], *, return_exceptions: bool) -> Any:
    try:
        return job._result(job._take())
    except StokerError as error:
        if not return_exceptions:
            raise
        return error


def _count(ids: Sequence[str]) -> Conversation[dict[str, int]]:
    known = [job_id for job_id in ids if can_share(job_id)]
    counts: defaultdict[str, int] = defaultdict(int, total=len(ids), missing=len(ids) - len(known))
    for first in range(0, len(known), MAX_IDS):
        answer: WaitAnswer = yield wait_request(known[first : first + MAX_IDS], 0, limit=0)
        for status, number in answer.counts.items():
            counts[status] += number
        counts["missing"] += len(answer.missing)
    return counts


def _total(parts: Sequence[Mapping[str, int]]) -> BatchCounts:
    names = BatchCounts.__struct_fields__
    return BatchCounts(**{name: sum(part.get(name, 0) for part in parts) for name in names})


def _explained(error: ProblemError) -> StokerError:
    if lacks_endpoint(error):
        return StokerError(
            "this server is of an earlier release, which cannot count jobs by their ids; upgrade it"
        )
    return error


__all__ = ["Batch", "BatchCounts", "Completed", "JobInfo", "as_completed", "gather", "gather_async"]
