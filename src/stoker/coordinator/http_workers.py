"""Workers that speak plain HTTP: the same session, lease and fence, asked for in four kinds of request.

Such a worker pulls: it says how many jobs it wants and waits. Behind it stands a `WorkerSession` like any other, whose
frames are collected here until the worker asks. One that registers an endpoint does not ask: its jobs are sent to it
(`push_workers.py`), and the rest is the same.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from stoker import worker_endpoints
from stoker.clock import SECOND
from stoker.coordinator.connection import LEASE_INTERVALS
from stoker.coordinator.reports import ReportSink
from stoker.coordinator.sessions import Sessions, WorkerSession, compare
from stoker.domain.errors import Conflict, EndpointNotListed, NotFound
from stoker.domain.retry import Kind, problem
from stoker.ids import NewId
from stoker.store.base import Renewal, Session, Store
from stoker.wire import frames
from stoker.wire.frames import Assignment, ClaimRef, Frame, Report
from stoker.wire.http import (
    HttpAssignment,
    HttpClaim,
    HttpError,
    HttpHello,
    HttpOrders,
    HttpReceipt,
    HttpReport,
    HttpWelcome,
)

LONGEST_RUN_SEC = 1e9

if TYPE_CHECKING:
    from stoker.coordinator.push_workers import Line, PushWorkers


class Mailbox:
    """The frames for one HTTP worker, until it asks for them."""

    def __init__(self) -> None:
        self.jobs: list[Assignment] = []
        self.cancel: list[ClaimRef] = []
        self.revoked: list[ClaimRef] = []
        self.drain = False
        self.arrived = asyncio.Event()

    def put(self, frame: Frame) -> None:
        match frame:
            case frames.Assign(jobs):
                self.jobs += jobs
                self.arrived.set()
            case frames.Cancel(claims):
                self.cancel += [claim for claim in claims if claim not in self.cancel]
            case frames.Drop(claims):
                self.revoked += claims
            case frames.Drain():
                self.drain = True

    def take_jobs(self) -> list[Assignment]:
        jobs, self.jobs = self.jobs, []
        return jobs

    def take_orders(self) -> HttpOrders:
        orders = HttpOrders(_claims(self.cancel), _claims(self.revoked), self.drain)
        self.cancel, self.revoked = [], []
        return orders


class HttpWorkers:
    def __init__(
        self,
        store: Store,
        sessions: Sessions,
        sink: ReportSink,
        *,
        heartbeat_timeout_sec: float,
        new_id: NewId,
        endpoints: Sequence[str] = (),
        max_result_bytes: int = 1024 * 1024,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._sink = sink
        self._timeout_sec = heartbeat_timeout_sec
        self._new_id = new_id
        self._endpoints = endpoints
        self._max_result_bytes = max_result_bytes
        self._mail: dict[str, Mailbox] = {}
        self._push: PushWorkers | None = None

    async def register(self, hello: HttpHello) -> HttpWelcome:
        now = self._store.now_us()
        id = self._new_id()
        row = Session(
            id,
            hello.name,
            hello.threads,
            hello.types,
            hello.queues,
            dict(hello.labels),
            "live",
            now,
            now,
            0,
            None if hello.endpoint is None else self._listed(hello.endpoint),
        )
        await self._store.open_session(row)
        self._connect(row)
        self._sink.wake()
        return HttpWelcome(id, self._timeout_sec / LEASE_INTERVALS, self._timeout_sec)

    async def lease(self, worker_id: str, max_jobs: int, wait: float) -> list[HttpAssignment]:
        session, mail = await self._session(worker_id)
        if self._line(worker_id) is not None:
            raise Conflict(
                f"worker {worker_id} has an endpoint: its jobs are sent there and cannot be leased"
            )
        await self._renew(session)
        session.wanted = min(max_jobs, session.threads)
        if not mail.jobs:
            mail.arrived.clear()
            self._sink.wake()
            await self._wait_for_jobs(session, mail, wait)
        session.wanted = 0
        return [assignment_of(job) for job in mail.take_jobs()]

    async def _wait_for_jobs(self, session: WorkerSession, mail: Mailbox, seconds: float) -> None:
        """A worker that waits is alive, and one that does one thing at a time has no other way to say so."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not mail.arrived.is_set() and (left := deadline - loop.time()) > 0:
            try:
                async with asyncio.timeout(min(left, self._timeout_sec / LEASE_INTERVALS)):
                    await mail.arrived.wait()
            except TimeoutError:
                await self._renew(session)

    async def heartbeat(self, worker_id: str, held: Sequence[HttpClaim]) -> HttpOrders:
        session, mail = await self._session(worker_id)
        refs = [ClaimRef(claim.id, claim.claim_id) for claim in held]
        waiting = {job.id for job in mail.jobs}
        missing, foreign = compare(session, self._known(session, refs), self._store.now_us())
        await self._renew(session)
        mail.revoked += foreign
        lost = [claim for claim in missing if claim.id not in waiting]
        if lost:
            await self._sink.hand_back(session, lost, "the assignment never reached its worker")
        return mail.take_orders()

    async def report(self, worker_id: str, reports: Sequence[HttpReport]) -> HttpReceipt:
        session, _ = await self._session(worker_id)
        frames_ = [report_of(report) for report in reports]
        line = self._line(worker_id)
        if line is not None:
            line.landed([ClaimRef(report.id, report.claim_id) for report in reports])
        stale = {
            (ref.id, ref.claim_id)
            for ref in await self._sink.take(session, frames_, self._sink.release(session, frames_))
        }
        accepted = [HttpClaim(r.id, r.claim_id) for r in reports if (r.id, r.claim_id) not in stale]
        return HttpReceipt(accepted, [HttpClaim(*key) for key in sorted(stale)])

    def forget(self, session_id: str) -> None:
        self._mail.pop(session_id, None)
        if self._push is not None:
            self._push.forget(session_id)

    async def close(self) -> None:
        """Hand back what is being sent to endpoints."""
        if self._push is not None:
            await self._push.close()

    def _listed(self, endpoint: str) -> str:
        """The endpoint as it will be dialled. Raises `EndpointNotListed`."""
        found = worker_endpoints.find_listed(endpoint, self._endpoints)
        if found is None:
            raise EndpointNotListed(endpoint)
        return str(found)

    def _line(self, worker_id: str) -> "Line | None":
        return None if self._push is None else self._push.line(worker_id)

    def _known(self, session: WorkerSession, refs: list[ClaimRef]) -> list[ClaimRef]:
        """The claims that are where they should be: those that the worker names, and those sent to its endpoint."""
        line = self._line(session.id)
        if line is None:
            return refs
        held = ((ref, session.held.get(ref.id)) for ref in refs)
        named = [h.claim for ref, h in held if h is not None and h.claim.claim_id == ref.claim_id]
        line.adopt(named, self._store.now_us())
        return [*refs, *line.flying()]

    async def _session(self, worker_id: str) -> tuple[WorkerSession, Mailbox]:
        connected = self._connected(worker_id)
        if connected is not None:
            return await self._caught_up(*connected)
        rows = [row for row in await self._store.sessions() if row.id == worker_id]
        if not rows or rows[0].status not in ("live", "draining"):
            raise NotFound(f"there is no live worker {worker_id}; register again with POST /workers")
        return await self._resume(rows[0])

    async def _resume(self, row: Session) -> tuple[WorkerSession, Mailbox]:
        """A worker that registered with an earlier life of this coordinator, or with another one."""
        held = await self._store.held(row.id)
        connected = self._connected(row.id)
        if connected is not None:  # another request of this worker was quicker
            return connected
        session, mail = self._connect(row)
        for claim in held:
            session.hold(claim)
            if claim.cancel_requested:
                mail.cancel.append(ClaimRef(claim.id, claim.claim_id))
        return session, mail

    async def _caught_up(self, session: WorkerSession, mail: Mailbox) -> tuple[WorkerSession, Mailbox]:
        """Each request of such a worker may reach another coordinator, so what it holds is asked of the store they share."""
        if self._store.shared and session.pull:
            held = await self._store.held(session.id)
            session.release_all()
            for claim in held:
                session.hold(claim)
            mail.cancel = [ClaimRef(claim.id, claim.claim_id) for claim in held if claim.cancel_requested]
        return session, mail

    def _connected(self, worker_id: str) -> tuple[WorkerSession, Mailbox] | None:
        session, mail = self._sessions.get(worker_id), self._mail.get(worker_id)
        return None if session is None or mail is None else (session, mail)

    def _connect(self, row: Session) -> tuple[WorkerSession, Mailbox]:
        endpoint = None if row.endpoint is None else self._listed(row.endpoint)
        mail = self._mail[row.id] = Mailbox()
        mail.drain = row.status == "draining"
        hello = frames.Hello(
            frames.PROTOCOL,
            row.id,
            row.name,
            row.threads,
            list(row.types),
            None if row.queues is None else list(row.queues),
            row.labels,
            draining=mail.drain,
        )
        session = (
            WorkerSession(hello, mail.put, pull=True)
            if endpoint is None
            else self._pushing().connect(hello, endpoint, mail)
        )
        self._sessions.add(session)
        return session, mail

    def _pushing(self) -> "PushWorkers":
        """Made when the first endpoint registers: most coordinators never dial anybody."""
        if self._push is None:
            from stoker.coordinator.push_workers import PushWorkers

            self._push = PushWorkers(self._sink, max_result_bytes=self._max_result_bytes)
        return self._push

    async def _renew(self, session: WorkerSession) -> None:
        (status,) = await self._store.renew([Renewal(session.id, session.threads_used)])
        if status is None:
            self._sessions.remove(session, self._store.now_us())
            self.forget(session.id)
            raise NotFound(
                f"worker {session.id} was silent for too long and was given up; register again with POST /workers"
            )


def assignment_of(job: Assignment) -> HttpAssignment:
    return HttpAssignment(
        job.id,
        job.claim_id,
        job.type,
        msgspec.Raw(job.payload),
        job.attempt,
        job.max_attempts,
        job.threads,
        job.timeout_sec,
        job.name,
        job.queue,
        job.metadata,
    )


def report_of(report: HttpReport) -> Report:
    kind: Kind = "error" if report.outcome == "failed" else report.outcome
    if kind == "error" and report.error is not None and not report.error.retryable:
        kind = "invalid"
    result = None if isinstance(report.result, msgspec.UnsetType) else bytes(report.result)
    # Longer than the claim is old counts as that long; but it must be a number of microseconds at all.
    run = report.run_seconds
    started_us = None if run is None else int(min(run, LONGEST_RUN_SEC) * SECOND)
    return Report(report.id, report.claim_id, kind, result, _error(report.error), started_us)


def _error(error: HttpError | None) -> bytes | None:
    if error is None:
        return None
    more = {} if error.traceback is None else {"traceback": error.traceback}
    return problem(error.type, error.message, **more)


def _claims(refs: list[ClaimRef]) -> list[HttpClaim]:
    return [HttpClaim(ref.id, ref.claim_id) for ref in refs]
