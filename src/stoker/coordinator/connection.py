"""One worker's WebSocket, from hello to goodbye."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final, Protocol

import structlog

from stoker.coordinator.announced import Announced
from stoker.coordinator.job_output.output import JobOutput
from stoker.coordinator.reports import ReportSink
from stoker.coordinator.schedules import Schedules
from stoker.coordinator.sessions import (
    HeldClaims,
    Sessions,
    Unsent,
    WorkerSession,
    compare,
    forgotten,
    still_forgotten,
)
from stoker.domain.errors import StoreUnavailable, WrongSecret
from stoker.domain.retry import Claim
from stoker.domain.session_secret import secret_hash
from stoker.store.base import Store
from stoker.store.sessions import Renewal, Session
from stoker.wire import codec, frames
from stoker.wire.frames import ClaimRef, Frame

HELLO_SECONDS: Final = 10.0
LEASE_INTERVALS: Final = 5
"""Heartbeats per timeout: a few may be lost before the session is given up."""

# WebSocket close codes: 1002 protocol error, 1011 internal error, 1012 service restart, 4000 and up are ours.
CLOSE_PROTOCOL: Final = 1002
CLOSE_UNSTORED: Final = 1011
CLOSE_REFUSED: Final = 4000

STORING_BYTES: Final = 4 * 1024 * 1024
"""Beyond this much of reports that are being stored, no more is read from a worker."""
SLOW_BYTES: Final = 1024 * 1024
"""Beyond this much in its outbox a connection may have been given less than it could run."""

NOTHING_DONE: Final = frames.Done([], [], [], [], [], [], [])

log = structlog.get_logger()


class Socket(Protocol):
    """A worker's connection, as a protocol."""

    async def receive(self) -> bytes | str | None: ...

    async def send(self, data: bytes | str) -> None: ...

    def send_now(self, data: bytes | str) -> bool:
        """Send if that needs no waiting; return whether it was sent."""
        ...

    async def close(self, code: int, reason: str) -> None: ...


class Connection:
    """Runs the protocol of `stoker.wire.frames` over one socket."""

    def __init__(
        self,
        socket: Socket,
        *,
        store: Store,
        sessions: Sessions,
        sink: ReportSink,
        output: JobOutput,
        announced: Announced,
        schedules: Schedules,
        heartbeat_timeout_sec: float,
        max_result_bytes: int,
    ) -> None:
        self._socket = socket
        self._store = store
        self._sessions = sessions
        self._sink = sink
        self._output = output
        self._announced = announced
        self._schedules = schedules
        self._timeout_sec = heartbeat_timeout_sec
        self._max_result_bytes = max_result_bytes
        self._text = False
        self._outbox: deque[Frame | None] = deque()
        self._flush_due = False
        self._left_over = asyncio.Event()
        """Set when the sender has to wait for the connection to take what the outbox holds."""
        self._sending = False
        """Whether the sender does that now."""
        self._unsent = Unsent()
        self._storing_bytes = 0
        self._stored = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], None] = {}
        """In the order in which they began, which is the order in which they are cancelled."""

    async def run(self) -> None:
        """Serve the worker until it leaves, breaks the protocol, or its reports cannot be stored."""
        sender = asyncio.create_task(self._send_all())
        session: WorkerSession | None = None
        try:
            session = await self._welcome()
            if session is not None:
                await self._serve(session)
        except codec.BadFrame as error:
            log.warning("worker_bad_frame", worker=session.name if session else None, detail=str(error))
            await self._socket.close(CLOSE_PROTOCOL, str(error)[:120])
        except StoreUnavailable as error:
            log.error("worker_connection_dropped", detail=str(error))
            await self._socket.close(CLOSE_UNSTORED, "the store is unavailable; reconnect and send again")
        finally:
            if session is not None:
                self._sessions.remove(session, self._store.now_us())
                await self._output.settled(
                    session.held
                )  # it may go on elsewhere, and be over there before ours is stored
            await self._finish(sender)

    async def _finish(self, sender: asyncio.Task[None]) -> None:
        for task in self._tasks:
            task.cancel()
        self._put(None)
        await asyncio.gather(sender, *self._tasks, return_exceptions=True)

    # ── coming in ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _welcome(self) -> WorkerSession | None:
        hello = await self._hello()
        if hello is None:
            return None
        if hello.protocol != frames.PROTOCOL:
            self._refuse(
                f"protocol {hello.protocol} is not spoken here, {frames.PROTOCOL} is; upgrade the older side"
            )
            return None
        # Before the worker becomes visible: clients that see it may rely on what it announces.
        await self._announced.keep(hello.types, hello.schemas)
        await self._schedules.declare(hello.app, hello.app_version, hello.schedules)
        try:
            status = await self._store.open_session(_row(hello, self._store.now_us()))
        except WrongSecret as error:
            log.warning("worker_secret_wrong", worker_id=hello.session, worker=hello.name)
            self._refuse(str(error), new_session=True)
            return None
        if status is None:
            self._refuse("this session was given up for lost", new_session=True)
            return None
        if hello.any_type:
            self._sessions.note_named(await self._store.sessions(), self._store.now_us())
        session = WorkerSession(hello, self._put)
        session.unsent = self._unsent
        session.batches = hello.batches and not self._text
        session.heard_at = self._store.now_us()
        held = await self._store.held(session.id)
        for claim in held:
            session.hold(claim)
        replaced = self._sessions.add(session)
        if replaced is not None:
            replaced.send(frames.Refused("another connection of this session took over"))
        self._put(
            frames.Welcome(
                frames.PROTOCOL,
                session.id,
                self._timeout_sec / LEASE_INTERVALS,
                self._timeout_sec,
                self._max_result_bytes,
                session.batches,
            )
        )
        if status == "draining" and not hello.draining:
            session.draining = True
            session.send(frames.Drain())
        self._cancel_again(session, held)
        log.info(
            "worker_registered",
            worker_id=session.id,
            worker=session.name,
            threads=session.threads,
            types=len(session.types),
            held=len(held),
        )
        return session

    async def _hello(self) -> frames.Hello | None:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                data = await self._socket.receive()
        except TimeoutError:
            await self._socket.close(CLOSE_PROTOCOL, "no hello")
            return None
        if data is None:
            return None
        self._text = isinstance(data, str)
        frame = codec.decode_from_worker(data)
        if not isinstance(frame, frames.Hello):
            raise codec.BadFrame(f"the first frame must be hello, not {type(frame).__name__.lower()}")
        return frame

    def _refuse(self, reason: str, *, new_session: bool = False) -> None:
        """Send the reason and close; the sender closes the connection after this frame."""
        self._put(frames.Refused(reason, new_session))

    def _cancel_again(self, session: WorkerSession, held: list[Claim]) -> None:
        """Cancels that were asked for while this worker was away."""
        refs = [ClaimRef(claim.id, claim.claim_id) for claim in held if claim.cancel_requested]
        if refs:
            session.send(frames.Cancel(refs))

    # ── serving ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _serve(self, session: WorkerSession) -> None:
        self._sink.wake()
        while (data := await self._socket.receive()) is not None:
            session.heard_at = self._store.now_us()
            frame = codec.decode_from_worker(data)
            if isinstance(frame, frames.Reports):
                self._spawn(self._take(session, frame, len(data)))
                while self._storing_bytes > STORING_BYTES:
                    self._stored.clear()
                    await self._stored.wait()
            elif isinstance(frame, frames.Heartbeat):
                self._spawn(self._heartbeat(session, frame))
            elif isinstance(frame, frames.Started):
                self._spawn(self._sink.started(session, frame.starts))
            elif isinstance(frame, frames.Output):
                self._output.take(session, frame.chunks)
            elif isinstance(frame, frames.Progress):
                self._output.note(session, frame.notes)
            elif isinstance(frame, frames.Goodbye):
                await self._goodbye(session)
                return
            else:
                raise codec.BadFrame("a second hello on one connection")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Store what a frame brought without holding up the next one: both may share a transaction."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._forget(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("worker_frame_failed", detail=repr(task.exception()))
            # What could not be stored is still with the worker: it sends it again on its next connection.
            closing = asyncio.get_running_loop().create_task(
                self._socket.close(CLOSE_UNSTORED, "not stored; reconnect and send again")
            )
            self._tasks[closing] = None
            closing.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)

    def _take(
        self, session: WorkerSession, frame: frames.Reports, size: int = 0
    ) -> Coroutine[Any, Any, None]:
        """Stop holding what these reports, `size` bytes of them, end, at once; they are stored when what this returns is
        awaited."""
        done = frame.done or NOTHING_DONE
        self._storing_bytes += size
        return self._store_reports(
            session,
            frame,
            done,
            self._sink.release(session, frame.reports),
            self._sink.release_done(session, done),
            size,
        )

    async def _store_reports(
        self,
        session: WorkerSession,
        frame: frames.Reports,
        done: frames.Done,
        claims: list[Claim | None],
        held: list[HeldClaims | None],
        size: int = 0,
    ) -> None:
        ids = [*done.ids, *(report.id for report in frame.reports)]
        claim_ids = [*done.claim_ids, *(report.claim_id for report in frame.reports)]
        session.ending[frame.number] = list(zip(ids, claim_ids, strict=True))
        try:
            await self._output.settled(ids)
            stale = await self._sink.take_done(session, done, held) if done.ids else []
            if frame.reports:
                stale += await self._sink.take(session, frame.reports, claims)
        finally:
            session.ending.pop(frame.number, None)
            self._storing_bytes -= size
            self._stored.set()
        session.send(frames.Ack(frame.number, stale))

    async def _heartbeat(self, session: WorkerSession, frame: frames.Heartbeat) -> None:
        session.draining = session.draining or frame.draining
        missing, foreign = compare(session, frame.held, self._store.now_us(), frame.assigned)
        (status,) = await self._store.renew([Renewal(session.id, frame.threads_used)])
        log.debug("worker_heartbeat", worker_id=session.id, held=len(frame.held))
        if status is None:
            self._sessions.remove(session, self._store.now_us())
            self._refuse("this session was given up for lost", new_session=True)
            return
        session.send(frames.Renewed(frame.number))
        if (
            status == "draining" and not session.draining
        ):  # told to another coordinator, and the notification was lost
            session.draining = True
            session.send(frames.Drain())
        if foreign:
            session.send(frames.Drop(foreign))
        stored = await self._store.held(session.id)
        suspects = forgotten(session, stored, frame.held, self._store.now_us())
        missing += still_forgotten(session, suspects, asyncio.get_running_loop().time())
        if missing:
            await self._sink.hand_back(session, missing, "the assignment never reached its worker")

    async def _goodbye(self, session: WorkerSession) -> None:
        self._sessions.remove(session, self._store.now_us())
        await asyncio.gather(*self._tasks, return_exceptions=True)
        left = session.claims
        if left:
            await self._sink.hand_back(session, left, "the worker left without it")
        await self._store.set_session_status(session.id, "gone")
        # A claim that was under way when the worker left was committed by now, and never sent.
        unsent = await self._store.held(session.id)
        if unsent:
            await self._sink.hand_back(session, unsent, "the worker left before it was sent")
        log.info("worker_gone", worker_id=session.id, worker=session.name)

    # ── going out ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _put(self, frame: Frame | None) -> None:
        """Send a frame at the end of this turn of the loop, after the answers that other clients wait for; None ends it."""
        self._outbox.append(frame)
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Send what the outbox holds, as far as the connection takes it at once; the sender does the rest."""
        self._flush_due = False
        if self._sending:
            return
        with contextlib.suppress(Exception):  # the sender meets it again, and gives the connection up
            while self._outbox:
                frame = self._outbox[0]
                if frame is None or isinstance(frame, frames.Refused):
                    break
                if not self._socket.send_now(self._encoded(frame)):
                    break
                self._outbox.popleft()
                self._sent(frame)
            else:
                return
        self._left_over.set()

    def _encoded(self, frame: Frame) -> bytes | str:
        return codec.encode_text(frame) if self._text else codec.encode(frame)

    def _sent(self, frame: Frame) -> None:
        if isinstance(frame, frames.Assign) and self._unsent.written() > SLOW_BYTES:
            self._sink.wake()  # something may have been kept back from a connection that had so much to carry

    async def _send_all(self) -> None:
        try:
            await self._send_for_ever()
        except Exception as error:  # noqa: BLE001 - no memory for a frame, say: what it carried comes back after a reconnect
            log.error("worker_connection_dropped", detail=repr(error))
            await self._socket.close(CLOSE_UNSTORED, "could not send; reconnect")

    async def _send_for_ever(self) -> None:
        while True:
            await self._left_over.wait()
            self._left_over.clear()
            self._sending = True
            while self._outbox:
                frame = self._outbox.popleft()
                if frame is None:
                    return
                await self._socket.send(self._encoded(frame))
                self._sent(frame)
                if isinstance(frame, frames.Refused):
                    await self._socket.close(CLOSE_REFUSED, frame.reason[:120])
            self._sending = False


def _row(hello: frames.Hello, now: int) -> Session:
    return Session(
        hello.session,
        hello.name,
        hello.threads,
        tuple(hello.types),
        None if hello.queues is None else tuple(hello.queues),
        dict(hello.labels),
        "draining" if hello.draining else "live",
        now,
        now,
        0,
        None,
        hello.host,
        hello.pid,
        secret_hash(hello.secret),
        hello.any_type,
    )
