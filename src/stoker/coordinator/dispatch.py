"""Dispatch: when workers have room, claim jobs that they can run and send these to them.

Every write transaction of the store asks here how much the workers can take (`request`), claims that much, and gives back
what it claimed (`granted`). Woken by a submission, a report, a new worker; a timer of `POLL_SECONDS` stands behind the
wake-ups, because they are hints.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import structlog
from msgspec.structs import replace

from stoker.coordinator.claim_size import ClaimSize
from stoker.coordinator.observers import Observers
from stoker.coordinator.run_times import RunTimes
from stoker.coordinator.sessions import Sessions, WorkerSession
from stoker.domain import extras
from stoker.domain.byte_bounds import ByteBounds
from stoker.domain.errors import StoreUnavailable
from stoker.domain.job import Job, decode_map
from stoker.domain.job_batch import JobBatch
from stoker.domain.placement import Placed, Policy, prefetch_cost
from stoker.domain.retry import claim_of
from stoker.domain.time_limits import attempt_seconds
from stoker.store.base import Store
from stoker.store.claims import ClaimRequest, Granted
from stoker.wire.frames import Assign, Assignment, AssignmentBatch

POLL_SECONDS: Final = 1.0
FRAME_BYTES: Final = 1024 * 1024
"""Assignments are split into frames of about this size; a larger payload travels alone."""
JOB_BYTES: Final = 200
"""The estimated size of an assignment besides its payload."""

log = structlog.get_logger()


class Dispatch:
    """Says what to claim for the free capacity of the workers connected here, and sends what was claimed."""

    def __init__(
        self,
        store: Store,
        sessions: Sessions,
        run_times: RunTimes,
        policy: Policy,
        observers: Observers,
        held_back: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._run_times = run_times
        self._policy = policy
        self._observers = observers
        self._held_back = held_back
        self.bounds = ByteBounds()
        self._size = ClaimSize()
        self._unsent: dict[str, list[JobBatch]] = {}
        """Jobs that were claimed and could not be sent, by session."""
        self._cursor = 0
        self._wanted = False
        self._resting = False
        """Whether something failed since the timer's last turn; nothing is claimed until the next one."""
        self._asked_at = 0

    def wake(self) -> None:
        """Claim with the transaction that opens next: workers may have room, or jobs may wait."""
        self._wanted = True
        self._store.claim_soon()

    async def run(self) -> None:
        """Register as the source of the store's claims, and claim at least every `POLL_SECONDS`."""
        self._store.claim_for(self)
        try:
            while True:
                self.look()
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self._store.claim_for(None)

    def look(self) -> None:
        """Claim soon, also after a failure. The timer calls this."""
        self._resting = False
        self.wake()

    def request(self) -> ClaimRequest | None:
        """Return the free capacity of all workers; None if there is none, or if nothing woke the dispatcher since the
        last call."""
        if not self._wanted or self._resting:
            return None
        self._wanted = False
        try:
            return self._request()
        except Exception as error:  # noqa: BLE001 - no memory, say: the transaction must go on without a claim
            self.refused(error)
            return None

    def _request(self) -> ClaimRequest | None:
        if self._unsent:
            self._send([])
        if self._held_back():
            return None
        self._asked_at = self._store.now_us()
        views = self._sessions.views(self._asked_at)
        if not any(view.free or view.prefetch_us for view in views):
            return None
        return ClaimRequest(
            views, self._policy, self._cursor, self._run_times.view(), self.bounds, self._size.most
        )

    def granted(self, granted: Granted) -> None:
        """Send the jobs that were claimed to their workers. Never raises."""
        try:
            self._granted(granted)
        except Exception as error:  # noqa: BLE001 - others wait for an answer of the same transaction
            self.refused(error)

    def _granted(self, granted: Granted) -> None:
        self._cursor = granted.cursor
        count = sum(len(grant.batch) for grant in granted.grants)
        if self._size.note(count, self._store.now_us() - self._asked_at) or granted.more:
            self.wake()
        if granted.ended:
            self._observers.overdue(granted.ended)
        if granted.grants:
            self._send(granted.grants)
            self._observers.dispatched(granted.grants)

    def refused(self, error: Exception) -> None:
        """Log what failed, and ask for nothing until the timer's next turn."""
        self._resting = True
        log.error("dispatch_failed", detail=str(error), exc_info=_unexpected(error))

    def _send(self, grants: list[Placed]) -> None:
        """Send claimed jobs to their workers. Jobs that cannot be sent (no memory, say) are kept and sent with the next
        request: they are claimed, so no other claim would bring them to a worker."""
        waiting, self._unsent = self._unsent, {}
        for grant in grants:
            waiting.setdefault(grant.session_id, []).append(grant.batch)
        failed: Exception | None = None
        for id, batches in waiting.items():
            session = self._sessions.get(id)
            if session is None:  # it left while we claimed: its lease, or its reconnect, brings these back
                continue
            try:
                assign(session, batches, self._run_times, self._store.now_us())
            except Exception as error:  # noqa: BLE001 - the other sessions get theirs first
                failed = error
                self._unsent[id] = _not_held(session, batches)
        if failed is not None:
            raise failed


def _unexpected(error: Exception) -> Exception | None:
    """Return an error that is worth a traceback."""
    return None if isinstance(error, StoreUnavailable) else error


def _not_held(session: WorkerSession, batches: Iterable[JobBatch]) -> list[JobBatch]:
    """Return the jobs of these batches that were not sent. Frames are sent in order, so these are the last ones."""
    rest: list[JobBatch] = []
    for batch in batches:
        first = next((place for place, id in enumerate(batch.ids) if id not in session.held), len(batch))
        if first < len(batch):
            rest.append(batch.part(slice(first, len(batch), 1)))
    return rest


def assign(session: WorkerSession, batches: Iterable[JobBatch], run_times: RunTimes, now: int) -> None:
    """Send jobs that were claimed for this session to its worker, in frames of about `FRAME_BYTES`."""
    session.last_assigned = now
    frame = _Frame(session)
    for whole in batches:
        for batch, size in pieces(whole):
            if frame.size and frame.size + size > FRAME_BYTES:
                frame.send(run_times)
                frame = _Frame(session)
            frame.add(batch, size)
    frame.send(run_times)


class _Frame:
    """Builds one Assign frame; merges neighbouring batches that share a template if the worker supports it."""

    def __init__(self, session: WorkerSession) -> None:
        self._session = session
        self._parts: list[tuple[JobBatch, int]] = []
        self._singles: list[Assignment] = []
        self._batches: list[AssignmentBatch] = []
        self.number = session.frames_sent + 1
        self.size = 0

    def add(self, batch: JobBatch, size: int) -> None:
        self.size += size
        self._parts.append((batch, size))
        template = assignment(batch.template, self._session.last_assigned)
        if not self._session.batches:
            self._singles += [
                replace(template, id=id, payload=payload)
                for id, payload in zip(batch.ids, batch.payloads, strict=True)
            ]
        elif self._batches and self._batches[-1].template == template:
            self._batches[-1].ids.extend(batch.ids)
            self._batches[-1].payloads.extend(batch.payloads)
        else:
            self._batches.append(AssignmentBatch(template, batch.ids[:], batch.payloads[:]))

    def send(self, run_times: RunTimes) -> None:
        """Record the claims as held by the session and send the frame. If either fails, neither is done."""
        session = self._session
        try:
            for batch, size in self._parts:
                template = claim_of(batch.template)
                cost = prefetch_cost(run_times.us.get(template.type))
                session.hold_batch(
                    template,
                    batch.ids,
                    batch.seqs,
                    batch.created,
                    cost,
                    self.number,
                    session.last_assigned,
                    size,
                )
            session.send_assign(Assign(self._singles, self.number, self._batches), self.size)
        except BaseException:
            for batch, _ in self._parts:
                for id in batch.ids:
                    session.release(id)
            raise
        session.frames_sent = self.number


def batch_bytes(batch: JobBatch) -> int:
    """Estimate the size of a batch in a frame."""
    return sum(map(len, batch.payloads)) + JOB_BYTES * len(batch.ids)


def pieces(batch: JobBatch) -> Iterator[tuple[JobBatch, int]]:
    """Yield the batch, or parts of it that fit into a frame, each with its size. A payload that is too large goes alone."""
    whole = batch_bytes(batch)
    if whole <= FRAME_BYTES:
        yield batch, whole
        return
    first = size = 0
    for place, payload in enumerate(batch.payloads):
        if place > first and size + len(payload) + JOB_BYTES > FRAME_BYTES:
            yield batch.part(slice(first, place)), size
            first, size = place, 0
        size += len(payload) + JOB_BYTES
    yield batch.part(slice(first, len(batch))), size


def assignment(job: Job, now: int) -> Assignment:
    """Return what the assignments of a batch share: everything but id and payload."""
    used = extras.decode(job.extras)
    return Assignment(
        "",
        job.claim_id,
        job.type,
        b"",
        job.attempt,
        job.max_attempts,
        job.threads_granted or 1,
        attempt_seconds(job, now),
        job.name,
        job.queue,
        {} if job.metadata is None else decode_map(job.metadata),
        job.memory_mb,
        soft_timeout_sec=used.soft_timeout_sec,
        schedule=used.schedule,
        scheduled_for=used.scheduled_for,
    )
