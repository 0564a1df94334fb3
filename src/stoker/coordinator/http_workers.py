"""Workers that use plain HTTP, with four requests: register, lease, heartbeat and report.

They have the same sessions, leases and fences as other workers. Such a worker pulls: it asks for a number of jobs and waits.
Frames for its `WorkerSession` are kept in a `Mailbox` until its next request. A worker that registers an endpoint does not
pull: its jobs are sent there (`push_workers.py`), and the rest is the same.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from stoker import worker_endpoints
from stoker.clock import SECOND
from stoker.coordinator.connection import LEASE_INTERVALS
from stoker.coordinator.job_types import notes_to_store
from stoker.coordinator.reports import ReportSink
from stoker.coordinator.sessions import Sessions, WorkerSession, compare
from stoker.domain.errors import EndpointNotListed, MissingError, StateConflict, StoreUnavailable, WrongSecret
from stoker.domain.retry import Claim, Kind, problem
from stoker.domain.retry_rules import ErrorNote, bounded_names
from stoker.domain.session_secret import may_go_on, secret_hash
from stoker.ids import NewId
from stoker.store.base import Store
from stoker.store.sessions import Renewal, Session
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

if TYPE_CHECKING:
    from stoker.coordinator.push_workers import EndpointLine, PushWorkers

_LONGEST_RUN_SEC: Final = 1e9
_NEVER_ARRIVED: Final = "the assignment never reached its worker"
_RETRY_SECONDS: Final = 1.0


class Ask:
    """One lease request that waits, and the jobs assigned to it so far."""

    def __init__(self, max_jobs: int) -> None:
        self.max_jobs = max_jobs
        self.jobs: list[Assignment] = []
        self.arrived = asyncio.Event()

    @property
    def room(self) -> int:
        return self.max_jobs - len(self.jobs)

    def give(self, job: Assignment) -> None:
        self.jobs.append(job)
        self.arrived.set()


class Mailbox:
    """The orders for one HTTP worker until its next heartbeat, and its lease requests that wait for jobs."""

    def __init__(self, unwanted: Callable[[Sequence[Assignment]], None]) -> None:
        self.asks: list[Ask] = []
        self.cancel: list[ClaimRef] = []
        self.revoked: list[ClaimRef] = []
        self.drain = False
        self._unwanted = unwanted
        """Called with assigned jobs that no lease request waits for any more."""

    def put(self, frame: Frame) -> None:
        match frame:
            case frames.Assign(jobs):
                self._hand_out(jobs)
            case frames.Cancel(claims):
                self.cancel += [claim for claim in claims if claim not in self.cancel]
            case frames.Drop(claims):
                self.revoked += claims
            case frames.Drain():
                self.drain = True

    def _hand_out(self, jobs: Sequence[Assignment]) -> None:
        """Give jobs to lease requests, the latest first: the connection of an earlier one may be dead unnoticed."""
        unwanted = []
        for job in jobs:
            ask = next((ask for ask in reversed(self.asks) if ask.room), None)
            if ask is None:
                unwanted.append(job)
            else:
                ask.give(job)
        if unwanted:
            self._unwanted(unwanted)

    def wanted(self) -> int:
        return sum(ask.room for ask in self.asks)

    def take_orders(self) -> HttpOrders:
        orders = HttpOrders(_claims(self.cancel), _claims(self.revoked), self.drain)
        self.cancel, self.revoked = [], []
        return orders


class HttpWorkers:
    """The sessions of workers that use plain HTTP, and of those that are web services."""

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
        self._secrets: dict[str, bytes | None] = {}
        self._push: PushWorkers | None = None
        self._returning: set[asyncio.Task[None]] = set()

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
            None if hello.endpoint is None else self.listed(hello.endpoint),
            secret_hash=secret_hash(hello.secret),
        )
        return await self.open(row)

    async def open(self, row: Session) -> HttpWelcome:
        """Begin a session and return its welcome."""
        await self._store.open_session(row)
        notes = notes_to_store(row.types, {})
        if notes:
            await self._store.note_types(notes)
        self._connect(row)
        self._sink.wake()
        return HttpWelcome(row.id, self._timeout_sec / LEASE_INTERVALS, self._timeout_sec)

    async def admit(self, worker_id: str, secret: str | None) -> None:
        """Raise unless a request may act for this worker: it needs the secret of the session, if that has one."""
        if worker_id not in self._mail and self._sessions.get(worker_id) is not None:
            raise StateConflict(
                f"worker {worker_id} is connected by a WebSocket and cannot be spoken for over HTTP"
            )
        if worker_id not in self._secrets:
            rows = [row for row in await self._store.sessions() if row.id == worker_id]
            kept = rows[0].secret_hash if rows else None
        else:
            kept = self._secrets[worker_id]
        if not may_go_on(kept, secret_hash(secret)):
            raise WrongSecret

    async def lease(self, worker_id: str, max_jobs: int, wait: float) -> list[HttpAssignment]:
        session, mail = await self._session(worker_id)
        if self.line(worker_id) is not None:
            raise StateConflict(
                f"worker {worker_id} has an endpoint: its jobs are sent there and cannot be leased"
            )
        await self._renew(session)
        ask = Ask(max_jobs)
        mail.asks.append(ask)
        _count_wanted(session, mail)
        self._sink.wake()
        try:
            await self._wait_for_jobs(session, ask, wait)
        except BaseException:
            self._give_back(worker_id, ask.jobs)
            raise
        finally:
            mail.asks.remove(ask)
            _count_wanted(session, mail)
        return [assignment_of(job) for job in ask.jobs]

    def undelivered(self, worker_id: str, jobs: Sequence[HttpAssignment]) -> None:
        """Give these jobs back, uncharged, because the answer that held them did not reach the worker."""
        self._give_back(worker_id, jobs)

    def _give_back(self, worker_id: str, jobs: Sequence[Assignment | HttpAssignment]) -> None:
        session = self._sessions.get(worker_id)
        if jobs and session is not None:  # else it was given up, and its claims with it
            keys = [(job.id, job.claim_id) for job in jobs]
            task = asyncio.create_task(self._hand_back(session, keys))
            self._returning.add(task)
            task.add_done_callback(self._returning.discard)

    async def _hand_back(self, session: WorkerSession, keys: Sequence[tuple[str, int]]) -> None:
        """Hand back claims that never reached the worker. Retries until that is stored, because nothing else knows that they
        were not delivered."""
        while True:
            try:
                claims = [claim for claim in await self._store.claims(keys) if claim is not None]
                own = [claim for claim in claims if claim.session_id == session.id]
                await self._sink.hand_back(session, own, _NEVER_ARRIVED)
            except (StoreUnavailable, MemoryError):
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    async def _wait_for_jobs(self, session: WorkerSession, ask: Ask, seconds: float) -> None:
        """Wait for jobs, and renew the lease meanwhile: a single-threaded worker cannot send heartbeats while it waits."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not ask.jobs and (left := deadline - loop.time()) > 0:
            try:
                async with asyncio.timeout(min(left, self._timeout_sec / LEASE_INTERVALS)):
                    await ask.arrived.wait()
            except TimeoutError:
                await self._renew(session)

    async def heartbeat(self, worker_id: str, held: Sequence[HttpClaim]) -> HttpOrders:
        session, mail = await self._session(worker_id)
        refs = [ClaimRef(claim.id, claim.claim_id) for claim in held]
        await self._beat(session, mail, refs)
        return mail.take_orders()

    async def beat(self, worker_id: str) -> str:
        """Take a heartbeat that names no claims and is answered without orders. Return the status of the session."""
        session, mail = await self._session(worker_id)
        status = await self._beat(session, mail, [])
        mail.take_orders()
        return status

    async def _beat(self, session: WorkerSession, mail: Mailbox, refs: list[ClaimRef]) -> str:
        lost, foreign = compare(session, self._known(session, refs), self._store.now_us())
        status = await self._renew(session)
        mail.revoked += foreign
        if lost:
            await self._sink.hand_back(session, lost, _NEVER_ARRIVED)
        return status

    async def report(self, worker_id: str, reports: Sequence[HttpReport]) -> HttpReceipt:
        session, _ = await self._session(worker_id)
        frames_ = [report_of(report) for report in reports]
        line = self.line(worker_id)
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
        self._secrets.pop(session_id, None)
        if self._push is not None:
            self._push.forget(session_id)

    async def close(self) -> None:
        """Hand back jobs that are being sent to endpoints, and those whose answer did not reach the worker."""
        if self._returning:
            _, late = await asyncio.wait(self._returning, timeout=_RETRY_SECONDS)
            for task in late:
                task.cancel()
        if self._push is not None:
            await self._push.close()

    def listed(self, endpoint: str) -> str:
        """Return the endpoint in the form in which it is requested. Raises `EndpointNotListed`."""
        found = worker_endpoints.find_listed(endpoint, self._endpoints)
        if found is None:
            raise EndpointNotListed(endpoint)
        return str(found)

    def line(self, worker_id: str) -> "EndpointLine | None":
        """Return the connection to the endpoint of a worker; None if it has none, or none from here."""
        return None if self._push is None else self._push.line(worker_id)

    def run_lines(self) -> "list[EndpointLine]":
        """Return the connections to workers of the `/run` shapes."""
        if self._push is None:
            return []
        return [line for line in self._push.lines() if not line.shape.hears]

    def _known(self, session: WorkerSession, refs: list[ClaimRef]) -> list[ClaimRef]:
        """Return the claims that are not lost: those that the worker names, and those of its flights."""
        line = self.line(session.id)
        if line is None:
            return refs
        named = [session.claim(ref.id, ref.claim_id) for ref in refs]
        line.adopt([claim for claim in named if claim is not None], self._store.now_us())
        return [*refs, *line.flying()]

    async def _session(self, worker_id: str) -> tuple[WorkerSession, Mailbox]:
        connected = self._connected(worker_id)
        if connected is not None:
            return await self._caught_up(*connected)
        rows = [row for row in await self._store.sessions() if row.id == worker_id]
        if not rows or rows[0].status not in ("live", "draining"):
            raise MissingError(f"there is no live worker {worker_id}; register again with POST /workers")
        return await self._resume(rows[0])

    async def _resume(self, row: Session) -> tuple[WorkerSession, Mailbox]:
        """Take over a worker that registered with another coordinator, or with this one before a restart."""
        held = await self._store.held(row.id)
        accepted = await self.accepted(held) if row.speaks_run else []
        connected = self._connected(row.id)
        if connected is not None:  # another request of this worker was quicker
            return connected
        session, mail = self._connect(row)
        for claim in held:
            session.hold(claim)
        line = self.line(row.id)
        if line is not None:
            line.adopt(accepted, self._store.now_us())
        for claim in held:
            if claim.cancel_requested:
                session.send(frames.Cancel([ClaimRef(claim.id, claim.claim_id)]))
        return session, mail

    async def accepted(self, held: Sequence[Claim]) -> list[Claim]:
        """Return the claims whose jobs a worker of the `/run` shapes accepted, by their stored start: such a worker does not
        name what it holds."""
        jobs = await self._store.get([claim.id for claim in held])
        started = {job.id for job in jobs if job is not None and job.started_at is not None}
        return [claim for claim in held if claim.id in started]

    async def _caught_up(self, session: WorkerSession, mail: Mailbox) -> tuple[WorkerSession, Mailbox]:
        """Read what a pulling worker holds from a shared store: its other requests may have reached other coordinators."""
        if self._store.shared and session.pull:
            held = await self._store.held(session.id)
            session.release_all()
            for claim in held:
                session.hold(claim)
            _count_wanted(session, mail)
            mail.cancel = [ClaimRef(claim.id, claim.claim_id) for claim in held if claim.cancel_requested]
        return session, mail

    def _connected(self, worker_id: str) -> tuple[WorkerSession, Mailbox] | None:
        session, mail = self._sessions.get(worker_id), self._mail.get(worker_id)
        return None if session is None or mail is None else (session, mail)

    def _connect(self, row: Session) -> tuple[WorkerSession, Mailbox]:
        endpoint = None if row.endpoint is None else self.listed(row.endpoint)
        mail = self._mail[row.id] = Mailbox(lambda jobs: self._give_back(row.id, jobs))
        mail.drain = row.status == "draining"
        self._secrets[row.id] = row.secret_hash
        hello = hello_of(row)
        session = (
            WorkerSession(hello, mail.put, pull=True)
            if endpoint is None
            else self._dialled(hello, endpoint, mail, run=row.speaks_run)
        )
        self._sessions.add(session)
        return session, mail

    def _dialled(self, hello: frames.Hello, endpoint: str, mail: Mailbox, *, run: bool) -> WorkerSession:
        from stoker.coordinator.endpoint_answers import OWN, RUN

        return self._pushing().connect(hello, endpoint, mail, RUN if run else OWN)

    def _pushing(self) -> "PushWorkers":
        """Return the endpoints' client, made when the first endpoint registers: most coordinators have none."""
        if self._push is None:
            from stoker.coordinator.push_workers import PushWorkers

            self._push = PushWorkers(self._sink, max_result_bytes=self._max_result_bytes)
        return self._push

    async def _renew(self, session: WorkerSession) -> str:
        """Extend the lease and return the status of the session, or raise `MissingError`."""
        (status,) = await self._store.renew([Renewal(session.id, session.threads_used)])
        if status is None:
            self._sessions.remove(session, self._store.now_us())
            self.forget(session.id)
            raise MissingError(
                f"worker {session.id} was silent for too long and was given up; register again with POST /workers"
            )
        return status


def hello_of(row: Session) -> frames.Hello:
    """Return the hello frame that describes this session."""
    return frames.Hello(
        frames.PROTOCOL,
        row.id,
        row.name,
        row.threads,
        list(row.types),
        None if row.queues is None else list(row.queues),
        row.labels,
        draining=row.status == "draining",
        any_type=row.any_type,
    )


def _count_wanted(session: WorkerSession, mail: Mailbox) -> None:
    session.wanted = min(mail.wanted(), session.threads)


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
    # A run longer than the age of the claim is clamped later; here it must only fit into microseconds.
    run = report.run_seconds
    started_us = None if run is None else int(min(run, _LONGEST_RUN_SEC) * SECOND)
    note = None if kind != "error" else _note(report)
    return Report(report.id, report.claim_id, kind, result, _error(report.error), started_us, note=note)


def _note(report: HttpReport) -> ErrorNote:
    bases = () if report.error is None else report.error.bases
    return ErrorNote(bounded_names(bases), report.retry_after_sec, report.snooze_sec)


def _error(error: HttpError | None) -> bytes | None:
    if error is None:
        return None
    more = {} if error.traceback is None else {"traceback": error.traceback}
    return problem(error.type, error.message, **more)


def _claims(refs: list[ClaimRef]) -> list[HttpClaim]:
    return [HttpClaim(ref.id, ref.claim_id) for ref in refs]
