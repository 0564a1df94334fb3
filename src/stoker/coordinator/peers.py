"""The other coordinators on the same store: what they are told, and what is done with what they tell.

Notifications are hints (`stoker.bus.base`): they save waiting and decide nothing. Behind each stands a look at the
store: queued work and cancels within `LOOK_SECONDS`, an order to drain with the next heartbeat, the end of a job when
the waiting request looks again. So with the bus cut off everything still happens, later.

Notifications about jobs would be as many as the jobs themselves, and hardly any job is waited for. So a coordinator
publishes which jobs its clients wait for (`Watch`), and only changes of those are published (`Changed`). In the same
way a coordinator whose clients follow all events says so (`Listen`), and is told what happens (`Happened`), a few
times a second: see
`stoker.coordinator.events`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

import structlog

from stoker.bus.base import (
    WATCH_SECONDS,
    Bus,
    CancelClaim,
    Changed,
    DrainSession,
    Happened,
    JobsWaiting,
    Listen,
    Notification,
    ProgressOf,
    TypesNoted,
    Watch,
)
from stoker.coordinator.announced import Announced
from stoker.coordinator.durations import Durations, Key
from stoker.coordinator.events import Events
from stoker.coordinator.job_output.output import JobOutput
from stoker.coordinator.observers import JobObserver, Observers
from stoker.coordinator.sessions import Sessions
from stoker.domain.errors import StoreUnavailable
from stoker.domain.job import Job
from stoker.domain.lifecycle import Status
from stoker.domain.placement import Placed
from stoker.store.base import Store
from stoker.store.outcomes import Completions, Finish
from stoker.store.sessions import Expired, Session
from stoker.wire import frames
from stoker.wire.frames import ClaimRef

LOOK_SECONDS: Final = 1.0
WORKERS_SECONDS: Final = 0.2
WATCHED_MAX: Final = 100_000

log = structlog.get_logger()


class Peers(JobObserver):
    """Tells the other coordinators what happens here, and passes on what they tell."""

    def __init__(
        self,
        bus: Bus,
        store: Store,
        sessions: Sessions,
        output: JobOutput,
        announced: Announced,
        *,
        wake: Callable[[], None],
        observers: Observers,
        events: Events,
        looked: Callable[[Sequence[Session]], Awaitable[None]] | None = None,
    ) -> None:
        self._bus = bus
        self._store = store
        self._sessions = sessions
        self._output = output
        self._announced = announced
        self._reading: set[asyncio.Task[None]] = set()
        self._wake = wake
        self._observers = observers
        self._events = events
        self._looked = looked
        """Told of all sessions of the store, every second."""
        self._watched: dict[str, float] = {}
        self._watch_told: dict[str, float] = {}
        """Jobs that others were told of by `watch_many`, and until when they need not be told again."""
        self._told: set[tuple[str, int]] = set()
        self._workers_seen_at = 0.0

    def start(self) -> None:
        self._bus.start(self._receive)
        self._store.on_left_over(lambda: self._bus.publish(JobsWaiting()))

    # ── what is told ───────────────────────────────────────────────────────────────────────────────────────────────

    def watch(self, id: str) -> None:
        """Tell the other coordinators that a client here waits for this job."""
        self._bus.publish(Watch([id]))

    def watch_many(self, ids: Iterable[str]) -> None:
        """Tell the other coordinators that a client here waits for these jobs. Each id is published at most every half of
        `WATCH_SECONDS`, however often this is called."""
        now = asyncio.get_running_loop().time()
        if len(self._watch_told) > WATCHED_MAX:
            self._watch_told.clear()
        new = [id for id in ids if self._watch_told.get(id, now) <= now]
        if new:
            self._watch_told |= dict.fromkeys(new, now + WATCH_SECONDS / 2)
            self._bus.publish(Watch(new))

    @property
    def connected(self) -> bool:
        """Whether others are heard at this moment."""
        return self._bus.connected

    def changed(self, ids: Iterable[str]) -> None:
        """Publish that these jobs changed, as far as clients of other coordinators wait for them."""
        if self._watched:
            wanted = [id for id in ids if id in self._watched]
            if wanted:
                self._bus.publish(Changed(wanted))

    def dispatched(self, grants: Sequence[Placed]) -> None:
        if self._watched:
            self.changed([id for grant in grants for id in grant.batch.ids])

    def started(self, ids: Sequence[str]) -> None:
        self.changed(ids)

    def completed(self, completed: Sequence[Completions], durations: Mapping[Key, Durations]) -> None:
        if self._watched:
            self.changed([id for batch in completed for id in batch.ids])

    def ended(self, ended: Sequence[tuple[Finish, Status | None]]) -> None:
        self.changed(finish.claim.id for finish, status in ended if status is not None)

    def ended_waiting(self, jobs: Sequence[Job], *, overdue: bool) -> None:
        self.changed(job.id for job in jobs)

    def expired(self, expired: Expired) -> None:
        self.changed(lost.claim.id for lost in expired.losses)

    def cancel_requested(self, jobs: Sequence[Job]) -> None:
        """Tell the workers that run these jobs, wherever they are connected."""
        for job in jobs:
            session_id = job.worker_id or ""
            if not self._tell_to_cancel(session_id, ClaimRef(job.id, job.claim_id)):
                self._bus.publish(CancelClaim(session_id, job.id, job.claim_id))

    def drain(self, session_id: str) -> None:
        if not self._tell_to_drain(session_id):
            self._bus.publish(DrainSession(session_id))

    def take_over(self, session_id: str) -> None:
        """The jobs of this session are sent from here: the other coordinators give it no more."""
        if self._store.shared:
            self._bus.publish(DrainSession(session_id))

    def resumed(self) -> None:
        """Have dispatch look for work, here and at the other coordinators, because a queue was resumed."""
        self._look_for_work()
        self._bus.publish(JobsWaiting())

    def _tell_to_cancel(self, session_id: str, claim: ClaimRef) -> bool:
        session = self._sessions.get(session_id)
        if session is not None:
            session.send(frames.Cancel([claim]))
        return session is not None

    def _tell_to_drain(self, session_id: str) -> bool:
        session = self._sessions.get(session_id)
        if session is not None:
            session.draining = True
            session.send(frames.Drain())
        return session is not None

    # ── what is heard ──────────────────────────────────────────────────────────────────────────────────────────────

    def _receive(self, notifications: Sequence[Notification]) -> None:
        for item in notifications:
            self._hear(item)

    def _hear(self, item: Notification) -> None:
        match item:
            case JobsWaiting():
                self._look_for_work()
            case Watch(ids):
                self._note_watched(ids)
            case Changed(ids):
                self._observers.changed_elsewhere(ids)
            case CancelClaim(session_id, id, claim_id):
                self._tell_to_cancel(session_id, ClaimRef(id, claim_id))
            case DrainSession(session_id):
                self._tell_to_drain(session_id)
            case ProgressOf():
                self._output.note_elsewhere(item)
            case Listen():
                self._events.heard_interest()
            case Happened():
                self._events.heard(item)
            case TypesNoted():
                self._read_announced()

    def _look_for_work(self) -> None:
        self._store.look_again()
        self._wake()

    def _read_announced(self) -> None:
        """Two at a time are enough: the one that waits for its turn reads what was stored meanwhile."""
        if len(self._reading) < 2:
            task = asyncio.create_task(self._announced.read_if_told(), name="stoker-types-noted")
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)

    def _note_watched(self, ids: Sequence[str]) -> None:
        now = asyncio.get_running_loop().time()
        if len(self._watched) + len(ids) > WATCHED_MAX:
            self._watched = {id: until for id, until in self._watched.items() if until > now}
        if len(self._watched) + len(ids) <= WATCHED_MAX:
            self._watched |= dict.fromkeys(ids, now + WATCH_SECONDS)

    # ── the look behind the notifications ──────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        try:
            await self._look_for_ever()
        finally:
            for task in self._reading:
                task.cancel()

    async def _look_for_ever(self) -> None:
        while True:
            try:
                await self.look()
            except (StoreUnavailable, MemoryError) as error:
                log.warning("look_failed", detail=str(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Look in the store for workers connected elsewhere, for what they announced, and for cancels of jobs that run on
        our workers."""
        rows = await self._look_for_workers()
        await self._announced.look(row.id for row in rows if row.status == "live")
        if self._looked is not None:
            await self._looked(rows)
        claims = await self._store.cancels([session.id for session in self._sessions])
        wanted = {(claim.id, claim.claim_id) for claim in claims}
        for claim in claims:
            if (claim.id, claim.claim_id) not in self._told:
                self._tell_to_cancel(claim.session_id, ClaimRef(claim.id, claim.claim_id))
        self._told = wanted
        now = asyncio.get_running_loop().time()
        for times in (self._watched, self._watch_told):
            for id in [id for id, until in times.items() if until <= now]:
                del times[id]

    async def serves(self, types: Iterable[str]) -> set[str]:
        """Return which of these types some worker of any coordinator can run, as of a moment ago."""
        try:
            if asyncio.get_running_loop().time() > self._workers_seen_at + WORKERS_SECONDS:
                await self._look_for_workers()
        except StoreUnavailable:
            pass  # what is known will do: the answer only makes a warning
        return {type for type in types if self._sessions.serves(type)}

    async def _look_for_workers(self) -> list[Session]:
        rows = await self._store.sessions()
        self._sessions.note_elsewhere(rows)
        if self._sessions.any_type:
            self._sessions.note_named(rows, self._store.now_us())
        self._workers_seen_at = asyncio.get_running_loop().time()
        return rows
