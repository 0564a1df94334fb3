"""For scripts that operate a system: queues, workers and dead letters.

    for queue in app.queues.list():
        print(queue.name, queue.queued)
    app.queues.pause("mail")
    app.dead_letters.replay(fingerprint="...", limit=1)

Every method has a twin ending in `_async`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

import msgspec

from stoker.client.errors import ArgumentError
from stoker.client.requests import ApiRequest, JobInfo, get, post, queue_path, worker_path
from stoker.client.walks import Jobs, Moment, job_filters

if TYPE_CHECKING:
    from stoker.client.job import JobHandle
    from stoker.client.transport import Transport


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, and the number of its jobs in each status."""

    name: str
    queued: int = 0
    scheduled: int = 0
    running: int = 0
    blocked: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    paused: bool = False
    """Whether no more of its jobs are started."""
    paused_at: datetime | None = None
    oldest_queued_age_sec: float | None = None
    """For how long the oldest queued job has been waiting."""


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process, from its start to its end."""

    id: str
    name: str
    status: str
    threads: int = 0
    threads_used: int = 0
    types: list[str] = []
    queues: list[str] | None = None
    labels: dict[str, str] = {}
    registered_at: datetime | None = None
    last_heartbeat_at: datetime | None = None
    host: str | None = None
    pid: int | None = None


class GroupInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters that failed in the same way."""

    fingerprint: str
    """The hash of type, error and place that these jobs share."""
    type: str
    error_type: str = ""
    message: str = ""
    frame: str | None = None
    count: int = 0
    first_seen_at: datetime | None = None
    last_seen_at: datetime | None = None
    sample_job_id: str | None = None


class _Queues(msgspec.Struct, frozen=True):
    queues: list[QueueInfo]


class _Workers(msgspec.Struct, frozen=True):
    workers: list[WorkerInfo]


class _Groups(msgspec.Struct, frozen=True):
    groups: list[GroupInfo]


class _Count(msgspec.Struct, frozen=True):
    count: int


class Queues:
    """The client for queues: `app.queues`."""

    def __init__(self, transport: Callable[[], Transport]) -> None:
        self._transport = transport

    def list(self) -> Sequence[QueueInfo]:
        """Return the queues that have jobs, and those that are paused."""
        return cast(_Queues, self._transport().send(_LIST_QUEUES)).queues

    async def list_async(self) -> Sequence[QueueInfo]:
        """Return the queues, like `list`, without blocking the event loop."""
        return cast(_Queues, await self._transport().send_async(_LIST_QUEUES)).queues

    def pause(self, queue: str) -> QueueInfo:
        """Pause a queue and return it: no coordinator starts its jobs until it is resumed. Running jobs go on."""
        return cast(QueueInfo, self._transport().send(_of_queue(queue, "pause")))

    async def pause_async(self, queue: str) -> QueueInfo:
        """Pause a queue, like `pause`, without blocking the event loop."""
        return cast(QueueInfo, await self._transport().send_async(_of_queue(queue, "pause")))

    def resume(self, queue: str) -> QueueInfo:
        """Resume a paused queue and return it. A queue that is not paused stays as it is."""
        return cast(QueueInfo, self._transport().send(_of_queue(queue, "resume")))

    async def resume_async(self, queue: str) -> QueueInfo:
        """Resume a paused queue, like `resume`, without blocking the event loop."""
        return cast(QueueInfo, await self._transport().send_async(_of_queue(queue, "resume")))


class Workers:
    """The client for workers: `app.workers`."""

    def __init__(self, transport: Callable[[], Transport]) -> None:
        self._transport = transport

    def list(self) -> Sequence[WorkerInfo]:
        """Return the live and draining workers, and those that ended a short while ago."""
        return cast(_Workers, self._transport().send(_LIST_WORKERS)).workers

    async def list_async(self) -> Sequence[WorkerInfo]:
        """Return the workers, like `list`, without blocking the event loop."""
        return cast(_Workers, await self._transport().send_async(_LIST_WORKERS)).workers

    def drain(self, worker: str) -> WorkerInfo:
        """Drain a worker, by its id or name, and return it: it gets no more jobs, finishes those it runs, and exits."""
        return cast(WorkerInfo, self._transport().send(_drain(worker)))

    async def drain_async(self, worker: str) -> WorkerInfo:
        """Drain a worker, like `drain`, without blocking the event loop."""
        return cast(WorkerInfo, await self._transport().send_async(_drain(worker)))


class DeadLetterFilters(TypedDict, total=False):
    """Filters that choose dead letters to replay or discard. All given ones must match."""

    type: str
    queue: str
    priority: int
    name: str
    fingerprint: str


class DeadLetterSearch(DeadLetterFilters, total=False):
    """Filters that choose dead letters to list: `DeadLetterFilters` and a few more."""

    worker: str
    created_after: Moment
    created_before: Moment
    text: str


class DeadLetters(Jobs):
    """The client for dead letters: `app.dead_letters`. Iterate over it for all jobs that failed for good."""

    def __init__(
        self, transport: Callable[[], Transport], handle: Callable[[JobInfo], JobHandle[Any]]
    ) -> None:
        super().__init__(transport, "/dlq", {}, handle)

    def where(self, **filters: Unpack[DeadLetterSearch]) -> Jobs:
        """Return the dead letters that match: `for job in app.dead_letters.where(type="resize")`."""
        return Jobs(self._transport, "/dlq", job_filters(**filters), self._handle)

    def groups(self, limit: int = 100) -> Sequence[GroupInfo]:
        """Return the dead letters grouped by how they failed, the most recent failure first."""
        return cast(_Groups, self._transport().send(_groups(limit))).groups

    async def groups_async(self, limit: int = 100) -> Sequence[GroupInfo]:
        """Return the dead letters grouped by how they failed, like `groups`, without blocking the event loop."""
        return cast(_Groups, await self._transport().send_async(_groups(limit))).groups

    def replay(
        self,
        *ids: str,
        all: bool = False,
        limit: int | None = None,
        **filters: Unpack[DeadLetterFilters],
    ) -> int:
        """Run dead letters again and return their number: those with these ids, those that match, or `all=True`.

        `limit=1` replays a single one, as a trial.
        """
        return self._change("replay", ids, all, limit, filters)

    async def replay_async(
        self,
        *ids: str,
        all: bool = False,
        limit: int | None = None,
        **filters: Unpack[DeadLetterFilters],
    ) -> int:
        """Run dead letters again, like `replay`, without blocking the event loop."""
        return await self._change_async("replay", ids, all, limit, filters)

    def discard(
        self,
        *ids: str,
        all: bool = False,
        limit: int | None = None,
        **filters: Unpack[DeadLetterFilters],
    ) -> int:
        """Take dead letters off the list and return their number. The jobs stay failed."""
        return self._change("discard", ids, all, limit, filters)

    async def discard_async(
        self,
        *ids: str,
        all: bool = False,
        limit: int | None = None,
        **filters: Unpack[DeadLetterFilters],
    ) -> int:
        """Take dead letters off the list, like `discard`, without blocking the event loop."""
        return await self._change_async("discard", ids, all, limit, filters)

    def _change(
        self, action: str, ids: Iterable[str], all: bool, limit: int | None, filters: DeadLetterFilters
    ) -> int:
        request = _change(action, list(ids), all, limit, filters)
        return cast(_Count, self._transport().send(request)).count

    async def _change_async(
        self, action: str, ids: Iterable[str], all: bool, limit: int | None, filters: DeadLetterFilters
    ) -> int:
        request = _change(action, list(ids), all, limit, filters)
        return cast(_Count, await self._transport().send_async(request)).count


# --- requests --------------------------------------------------------------------------------------------

_LIST_QUEUES = get("/queues", _Queues)
_LIST_WORKERS = get("/workers", _Workers)


def _of_queue(queue: str, action: str) -> ApiRequest:
    return post(queue_path(queue, action), answer=QueueInfo, repeatable=True)


def _drain(worker: str) -> ApiRequest:
    return post(worker_path(worker, "drain"), answer=WorkerInfo, repeatable=True)


def _groups(limit: int) -> ApiRequest:
    return get("/dlq/groups", _Groups, limit=limit)


def _change(
    action: str, ids: list[str], all: bool, limit: int | None, filters: DeadLetterFilters
) -> ApiRequest:
    chosen = [name for name, given in (("ids", ids), ("all", all), ("filters", filters)) if given]
    if len(chosen) != 1:
        raise ArgumentError(
            f"app.dead_letters.{action} takes one of ids, filters and all=True; "
            + (f"these exclude each other: {', '.join(chosen)}" if chosen else "none was given"),
            chosen[-1] if chosen else "all",
        )
    body: dict[str, Any] = {"ids": ids} if ids else {"all": True}
    if filters:
        body = {"filter": filters}
    if limit is not None:
        body["limit"] = limit
    return post(f"/dlq/{action}", body, _Count)
