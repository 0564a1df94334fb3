"""Dispatch: when somebody has room, claim what they can run and send it to them.

Woken by a submission, a report, a new worker; a timer of `POLL_SECONDS` stands behind the wake-ups, because they are
hints. A wake-up before a commit puts the claim into the same transaction as the submission or report that caused it.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog
from msgspec.structs import replace

from stoker.coordinator.run_times import RunTimes
from stoker.coordinator.sessions import Sessions, WorkerSession
from stoker.domain.errors import StoreUnavailable
from stoker.domain.job import Job, decode_map
from stoker.domain.placement import Policy, window_cost
from stoker.domain.retry import claim_of
from stoker.store.base import ClaimRequest, Grant, Store
from stoker.wire.frames import Assign, Assignment, AssignmentLot

POLL_SECONDS: Final = 1.0
FRAME_BYTES: Final = 1024 * 1024
"""Assignments are split into frames of about this size; a larger payload travels alone."""

log = structlog.get_logger()
Dispatched = Callable[[list[Grant]], None]


class Dispatch:
    def __init__(
        self, store: Store, sessions: Sessions, run_times: RunTimes, policy: Policy, dispatched: Dispatched
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._run_times = run_times
        self._policy = policy
        self._dispatched = dispatched
        self._cursor = 0
        self._wake = asyncio.Event()

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._woken()
            try:
                await self.once()
            except Exception as error:
                log.error(
                    "dispatch_failed", detail=str(error), exc_info=not isinstance(error, StoreUnavailable)
                )
                await asyncio.sleep(POLL_SECONDS)

    async def _woken(self) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(POLL_SECONDS, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
        self._wake.clear()

    async def once(self) -> int:
        """One claim for all free capacity; how many jobs were sent."""
        views = self._sessions.views(self._store.now_us())
        if not any(view.free or view.window_us for view in views):
            return 0
        request = ClaimRequest(views, self._policy, self._cursor, self._run_times.view())
        granted = await self._store.claim(request)
        self._cursor = granted.cursor
        if granted.grants:
            self._send(granted.grants)
            self._dispatched(granted.grants)
        return len(granted.grants)

    def _send(self, grants: list[Grant]) -> None:
        by_session: dict[str, list[Job]] = {}
        for grant in grants:
            by_session.setdefault(grant.session_id, []).append(grant.job)
        for id, jobs in by_session.items():
            session = self._sessions.get(id)
            if (
                session is not None
            ):  # else it left while we claimed: its lease, or its reconnect, brings these back
                assign(session, jobs, self._run_times, self._store.now_us())


def assign(session: WorkerSession, jobs: Iterable[Job], run_times: RunTimes, now: int) -> None:
    """Give jobs that were claimed for this session to its worker."""
    batch: list[Assignment] = []
    costs: dict[str, int] = {}
    size = 0
    session.last_assigned = now
    frame = session.frames_sent + 1
    for job in jobs:
        cost = costs.get(job.type)
        if cost is None:
            cost = costs[job.type] = window_cost(run_times.us.get(job.type))
        if batch and size + len(job.payload) > FRAME_BYTES:
            session.send(_assign(session, batch, frame))
            batch, size, frame = [], 0, frame + 1
        session.hold(claim_of(job), cost, frame)
        batch.append(assignment(job))
        size += len(job.payload) + 200
    session.send(_assign(session, batch, frame))
    session.frames_sent = frame


def _assign(session: WorkerSession, batch: list[Assignment], number: int) -> Assign:
    if not session.lots:
        return Assign(batch, number)
    lots: list[AssignmentLot] = []
    for item in batch:
        like = replace(item, id="", payload=b"")
        if not lots or lots[-1].like != like:
            lots.append(AssignmentLot(like, [], []))
        lots[-1].ids.append(item.id)
        lots[-1].payloads.append(item.payload)
    return Assign([], number, lots)


def assignment(job: Job) -> Assignment:
    return Assignment(
        job.id,
        job.claim_id,
        job.type,
        job.payload,
        job.attempt,
        job.max_attempts,
        job.threads_granted or 1,
        job.timeout_sec,
        job.name,
        job.queue,
        {} if job.metadata is None else decode_map(job.metadata),
        job.memory_mb,
    )
