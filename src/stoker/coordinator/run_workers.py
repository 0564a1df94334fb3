"""Workers of the `/run` shapes (`stoker.wire.run`): an adapter on the workers that are web services.

The worker's own id is the name of its session. Each registration begins a new session and ends the earlier one, whose jobs
are treated as if its lease had ended. Everything else is done by `http_workers.py` and `push_workers.py`: the list of
endpoints, leases, flights and fences.

Where several coordinators share a store, each request may reach another one. The coordinator that got the latest request
sends the jobs: it reads from the store what the session holds, and tells the others to send it nothing more. Notifications
may be lost, so a poll every second finds out what was reported to, or registered with, another coordinator.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from stoker.coordinator.http_workers import HttpWorkers, hello_of
from stoker.coordinator.observers import Observers
from stoker.coordinator.reports import ReportSink
from stoker.coordinator.sessions import Sessions, WorkerSession
from stoker.domain.errors import MissingError, StaleClaim, StateConflict
from stoker.domain.retry import Claim, RetryPolicy
from stoker.ids import NewId
from stoker.store.base import Store
from stoker.store.sessions import Expired, Session
from stoker.wire.frames import ClaimRef, Report
from stoker.wire.http import HttpWelcome
from stoker.wire.run import RunHello, RunOutcome

if TYPE_CHECKING:
    from stoker.coordinator.push_workers import EndpointLine

THREADS: Final = 1
_LIVE: Final = ("live", "draining")


class RunWorkers:
    """The sessions of workers of the `/run` shapes. `take_over` is called with the id of each session to which this
    coordinator sends jobs from then on."""

    def __init__(
        self,
        http: HttpWorkers,
        store: Store,
        sessions: Sessions,
        sink: ReportSink,
        policy: RetryPolicy,
        *,
        new_id: NewId,
        observers: Observers,
        take_over: Callable[[str], None],
    ) -> None:
        self._http = http
        self._store = store
        self._sessions = sessions
        self._sink = sink
        self._policy = policy
        self._new_id = new_id
        self._observers = observers
        self._take_over = take_over
        self._ids: dict[str, str] = {}
        """The session of each worker that sent a request here, by the worker's id."""

    async def register(self, hello: RunHello) -> HttpWelcome:
        endpoint = self._http.listed(hello.endpoint)
        rows = await self._store.sessions()
        for row in _named(rows, hello.id):
            await self._replace(row)
        now = self._store.now_us()
        row = Session(
            self._new_id(),
            hello.id,
            THREADS,
            (),
            None,
            {},
            "live",
            now,
            now,
            endpoint=endpoint,
            any_type=True,
        )
        self._sessions.note_named(rows, now)
        welcome = await self._http.open(row)
        self._ids[hello.id] = row.id
        return HttpWelcome(hello.id, welcome.heartbeat_interval_sec, welcome.heartbeat_timeout_sec)

    async def _replace(self, row: Session) -> None:
        """End a session whose worker registered again. Its jobs are queued again and their attempts are charged, since one
        of them may have crashed the worker."""
        self._forget(row.id)  # first, so that nothing more is claimed for it
        await self._store.set_session_status(row.id, "lost")
        orphans = await self._store.expire(0, self._policy)
        self._observers.expired(Expired([row.id, *orphans.sessions], orphans.losses))

    async def heartbeat(self, worker_id: str) -> None:
        """Extend the lease of a worker. Raises `MissingError` if it is not registered or its lease has ended."""
        known = self._ids.get(worker_id)
        if known is not None:
            try:
                await self._renew(known)
            except MissingError:
                del self._ids[worker_id]
            else:
                return
        rows = _named(await self._store.sessions(), worker_id)
        if not rows:
            raise MissingError(f"there is no live worker {worker_id}; register again with POST /workers")
        await self._renew(rows[-1].id)
        self._ids[worker_id] = rows[-1].id

    async def _renew(self, session_id: str) -> None:
        """Extend the lease, and send the worker its jobs from this coordinator from now on."""
        before = self._sessions.get(session_id)
        status = await self._http.beat(session_id)
        line = self._http.line(session_id)
        if line is None or status == "draining":
            return
        if before is not None and line.session.draining:
            await self._catch_up(line)
            line.session.draining = False
        elif before is not None:
            return
        self._take_over(session_id)
        self._sink.wake()

    async def _catch_up(self, line: "EndpointLine") -> None:
        """Update the held claims of a session from the store: other coordinators sent it jobs and took its reports."""
        await self._let_go(line)
        new = [
            claim for claim in await self._store.held(line.session.id) if claim.id not in line.session.held
        ]
        for claim in new:
            line.session.hold(claim)
        line.adopt(await self._http.accepted(new), self._store.now_us())

    async def complete(self, ref: ClaimRef, outcome: RunOutcome) -> None:
        """Store how a job ended. Raises `StaleClaim`, `MissingError`, or `StateConflict` for a job of another kind
        of worker."""
        from stoker.coordinator.endpoint_answers import run_report

        report = run_report(ref, outcome)
        (claim,) = await self._store.claims([(ref.id, ref.claim_id)])
        if claim is None or not await self._take(claim, report):
            await self._refuse_unless_repeated(ref, report)
        if claim is not None and not self._sends_to(claim.session_id):
            with contextlib.suppress(MissingError):
                await self._renew(claim.session_id)

    def _sends_to(self, session_id: str) -> bool:
        session = self._sessions.get(session_id)
        return session is not None and not session.draining

    async def _take(self, claim: Claim, report: Report) -> bool:
        line = self._run_line(claim.session_id)
        if line is not None:
            return await line.take(report)
        rows = [row for row in await self._store.sessions() if row.id == claim.session_id]
        if not rows or not rows[0].speaks_run:
            raise StateConflict(f"job {claim.id} runs on a worker that reports in another way")
        elsewhere = WorkerSession(hello_of(rows[0]), lambda frame: None)
        return not await self._sink.take(elsewhere, [report], [claim])

    async def _refuse_unless_repeated(self, ref: ClaimRef, report: Report) -> None:
        (job,) = await self._store.get([ref.id])
        if job is None:
            raise MissingError(f"there is no job {ref.id}")
        if not await self._sink.stored_before(report):
            now = f"is now claim {job.claim_id}" if job.claim_id != ref.claim_id else f"is {job.status}"
            raise StaleClaim(f"job {ref.id} {now}; discard this result")

    async def look(self, rows: Sequence[Session]) -> None:
        """Update the sessions that this coordinator sends jobs to, given all sessions of the store."""
        lines = self._http.run_lines()
        if not lines:
            return
        live = {row.id for row in rows if row.status in _LIVE}
        for line in lines:
            session = line.session
            if session.id not in live:
                self._forget(session.id)
            elif session.held:
                await self._let_go(line)

    async def _let_go(self, line: "EndpointLine") -> None:
        """Release claims that were reported to another coordinator. A claim is stored before it is held, so one that the
        store does not have is over."""
        held = line.session.claims
        kept = {(claim.id, claim.claim_id) for claim in await self._store.held(line.session.id)}
        for claim in held:
            if (claim.id, claim.claim_id) not in kept:
                line.landed([ClaimRef(claim.id, claim.claim_id)])
                line.session.release(claim.id, claim.claim_id)
                self._sink.wake()

    def _forget(self, session_id: str) -> None:
        session = self._sessions.get(session_id)
        if session is not None:
            self._sessions.remove(session, self._store.now_us())
        self._http.forget(session_id)

    def _run_line(self, session_id: str) -> "EndpointLine | None":
        line = self._http.line(session_id)
        return None if line is None or line.shape.hears else line


def _named(rows: Iterable[Session], worker_id: str) -> list[Session]:
    """Return the live sessions of a worker, the latest last."""
    found = [row for row in rows if row.speaks_run and row.name == worker_id and row.status in _LIVE]
    return sorted(found, key=lambda row: row.registered_at)
