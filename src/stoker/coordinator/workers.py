"""Workers, as the API uses them: list, drain, and serve the connection of one."""

from collections.abc import Callable, Sequence

import structlog
from msgspec.structs import replace

from stoker.coordinator.connection import Connection, Socket
from stoker.coordinator.http_workers import HttpWorkers
from stoker.coordinator.observers import JobObserver
from stoker.coordinator.peers import Peers
from stoker.coordinator.sessions import Sessions
from stoker.domain.errors import MissingError
from stoker.domain.webhooks import only_delivers
from stoker.store.base import Store
from stoker.store.sessions import Expired, Session
from stoker.wire import frames

log = structlog.get_logger()


class WorkerList:
    """Reads which workers there are, at any coordinator."""

    def __init__(self, store: Store, sessions: Sessions) -> None:
        self._store = store
        self._sessions = sessions

    async def all(self) -> list[Session]:
        """Return all workers but those that left."""
        rows = await self._store.sessions()
        return [self.with_use(row) for row in rows if row.status != "gone" and not only_delivers(row.queues)]

    async def live(self) -> list[Session]:
        """Return the workers that run jobs."""
        return [row for row in await self.all() if row.status in ("live", "draining")]

    def with_use(self, row: Session) -> Session:
        """Return the row with the number of threads in use, which only the coordinator that has the connection knows."""
        session = self._sessions.get(row.id)
        return row if session is None else replace(row, threads_used=session.threads_used)


class WorkerService(JobObserver):
    """Connects, lists and drains workers for the API. As an observer it forgets sessions that were given up for lost."""

    def __init__(
        self,
        store: Store,
        sessions: Sessions,
        workers: WorkerList,
        *,
        peers: Peers,
        http: HttpWorkers,
        connection: Callable[[Socket], Connection],
    ) -> None:
        """`connection` makes the object that runs the protocol over a socket."""
        self._store = store
        self._sessions = sessions
        self._peers = peers
        self._http = http
        self._connection = connection
        self.all = workers.all

    async def drain(self, worker_id: str) -> Session:
        """Tell a worker, given by id or name, to finish and leave. Raises MissingError."""
        row = _named(worker_id, await self._store.sessions())
        if row is None or not await self._store.set_session_status(row.id, "draining"):
            raise MissingError(f"there is no live worker {worker_id}; GET /workers lists them")
        self._peers.drain(row.id)
        log.info("worker_draining", worker_id=row.id, worker=row.name)
        return replace(row, status="draining")

    async def serve(self, socket: Socket) -> None:
        """Run one worker's connection until it ends."""
        await self._connection(socket).run()

    def expired(self, expired: Expired) -> None:
        for id in expired.sessions:
            session = self._sessions.get(id)
            if session is not None:
                self._sessions.remove(session, self._store.now_us())
                session.send(frames.Refused("this session was given up for lost", True))
            self._http.forget(id)
            log.warning("worker_stale", worker_id=id)


def _named(worker_id: str, rows: Sequence[Session]) -> Session | None:
    live = [row for row in rows if row.status in ("live", "draining")]
    named = [row for row in live if row.id == worker_id] or [row for row in live if row.name == worker_id]
    return named[0] if len(named) == 1 else None
