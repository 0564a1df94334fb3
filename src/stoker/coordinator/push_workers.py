"""Workers that are web services: the coordinator sends them one request for each job.

Sessions, leases and fences are those of any other worker. A job that dispatch assigns to such a session becomes a *flight*:
a POST to the endpoint, whose answer is the report. An answer 202 means "later": the flight goes on without a connection,
until the worker reports the job itself, under the same claim.

The code that removes a flight also reports it, without an await in between: the flight's own task on an answer or a timeout,
the canceller, or the handler of the worker's later report. So each claim is reported once here, and the store's fence is a
second guard.

- Silence: the worker must send heartbeats. When its lease ends its flights are broken off, and its later reports about them
  are refused.
- A dead endpoint: a failed connection, 429 and 503 fail the attempt (`dispatch_failed`, retried with backoff). The worker
  then rests, longer each time, and gets single jobs until one gets through, so that a restart of the service does not use
  up the attempts of everything in the queue.
- Restart of the coordinator: its flights end with it. An orderly stop hands them back, uncharged. After a crash the
  worker's next heartbeat resumes the session: claims that it does not name are handed back, uncharged too, and those that
  it names (jobs answered with 202) go on.

Workers of the `/run` shapes (`stoker.wire.run`) differ: every 2xx answer means "later", the report comes as
`POST /jobs/{job_id}/complete`, and answers to their heartbeats carry no orders. So a cancel ends their jobs at once, and an
accepted job is stored as started: after a restart of the coordinator, started jobs go on and the others are handed back.

`HttpWorkers` lets only endpoints on the operator's list in. No redirect is followed, no proxy, netrc file or cookie is used,
nothing is decompressed, and an answer is read only up to the size limit of results.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
import structlog

from stoker.clock import SECOND
from stoker.coordinator.endpoint_answers import (
    BUSY,
    OWN,
    Shape,
    failure,
    rest_seconds,
)
from stoker.coordinator.endpoint_client import ANSWER_MARGIN_BYTES, Broken, EndpointClient, Unreachable
from stoker.coordinator.http_workers import Mailbox
from stoker.coordinator.reports import ReportSink
from stoker.coordinator.sessions import Send, WorkerSession
from stoker.domain.errors import StoreUnavailable
from stoker.domain.placement import WorkerView
from stoker.domain.retry import Claim
from stoker.wire import frames
from stoker.wire.frames import Assignment, ClaimRef, Frame, Report, StartNote

STARTED_SECONDS: Final = 0.1
"""The start of a flight that lasts this long is stored."""
STORE_RETRY_SECONDS: Final = 0.5
CLOSE_SECONDS: Final = 3.0

log = structlog.get_logger()
T = TypeVar("T")
Work = Callable[[], Awaitable[Report | None]]


class Flight:
    """A job at the endpoint: a request without an answer yet or, when `later`, a job that the worker will report itself.

    The timeout counts from `began`, by the loop's clock.
    """

    __slots__ = ("began", "later", "ref", "task", "timeout_sec")

    def __init__(
        self, ref: ClaimRef, began: float, timeout_sec: float | None, *, later: bool = False
    ) -> None:
        self.ref = ref
        self.began = began
        self.timeout_sec = timeout_sec
        self.later = later
        self.task: asyncio.Task[None] | None = None

    @property
    def deadline(self) -> float | None:
        return None if self.timeout_sec is None else self.began + self.timeout_sec


FLYING_BYTES: Final = 24 * 1024 * 1024
"""Bytes of payloads that one worker may hold before they count as unsent, which limits further claims."""


class PushSession(WorkerSession):
    """A session without prefetch: each job is a request of its own, and takes its threads at once."""

    def __init__(self, hello: frames.Hello, send: Send) -> None:
        super().__init__(hello, send)
        self.flights: dict[str, Flight] = {}
        self.failures = 0
        """Dispatch failures in a row. While there are any, only one request is sent at a time."""
        self.resting = False

    def view(self) -> WorkerView:
        view = self._new_view()
        view.prefetch_us = 0
        # A payload stays in memory here until its request is answered.
        view.unsent_bytes = max(0, view.held_bytes - FLYING_BYTES)
        if self.resting:
            view.free = 0
        elif self.failures:
            view.room = 0 if any(not flight.later for flight in self.flights.values()) else 1
        return view


class EndpointLine:
    """The connection to one endpoint: turns the frames for its session into requests, and keeps the flights."""

    def __init__(
        self,
        hello: frames.Hello,
        endpoint: str,
        mail: Mailbox,
        dialer: EndpointClient,
        sink: ReportSink,
        shape: Shape = OWN,
    ) -> None:
        self.session = PushSession(hello, self.put)
        self.shape = shape
        self._endpoint = endpoint.rstrip("/") + shape.path if shape.path else endpoint
        self._mail = mail
        self._dialer = dialer
        self._sink = sink
        self._flights = self.session.flights
        self._tasks: set[asyncio.Task[Any]] = set()
        self._rest_timer: asyncio.TimerHandle | None = None

    def put(self, frame: Frame) -> None:
        match frame:
            case frames.Assign(jobs):
                for job in jobs:
                    flight = Flight(ClaimRef(job.id, job.claim_id), _now(), job.timeout_sec)
                    if job.id in self._flights and self._flights[job.id].ref == flight.ref:
                        continue  # it was sent already, and would run twice under one claim
                    self._launch(flight, partial(self._attempt, job))
            case frames.Cancel(claims):
                for ref in claims:
                    self._cancel(ref)
            case frames.Drop(claims):
                self.landed(claims)
                self._mail.put(frame)
            case _:
                self._mail.put(frame)

    def flying(self) -> list[ClaimRef]:
        """Return the claims of all flights. They are held even if the worker's heartbeat does not name them."""
        return [flight.ref for flight in self._flights.values()]

    def adopt(self, claims: Iterable[Claim], now_us: int) -> None:
        """Resume jobs that the worker holds and that another coordinator sent it, or this one before a restart."""
        for claim in claims:
            if claim.id not in self._flights:
                began = _now() - (now_us - claim.claimed_at) / SECOND
                ref = ClaimRef(claim.id, claim.claim_id)
                self._launch(Flight(ref, began, claim.timeout_sec, later=True), _never)

    def landed(self, claims: Sequence[ClaimRef]) -> None:
        """End the flights of these claims without a report, because they were reported elsewhere."""
        for ref in claims:
            self._take_off(ref)

    def break_off(self) -> list[ClaimRef]:
        """End all flights without a report. Return the claims whose request was under way."""
        broken = [flight.ref for flight in self._flights.values() if not flight.later]
        self.landed(self.flying())
        self._stop_resting()
        return broken

    async def close(self) -> None:
        """Hand back the jobs of unanswered requests, uncharged, and wait until reports are stored."""
        held = self.session.held
        claims = [held[ref.id].claim(ref.id) for ref in self.break_off() if ref.id in held]
        if claims:
            self._spawn(
                self._sink.hand_back(self.session, claims, "the coordinator stopped while the job ran")
            )
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()

    # ── flights ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _launch(self, flight: Flight, work: Work) -> None:
        earlier = self._flights.get(flight.ref.id)
        if earlier is not None:
            self._take_off(earlier.ref)
        self._flights[flight.ref.id] = flight
        flight.task = self._spawn(self._fly(flight, work))

    async def _fly(self, flight: Flight, work: Work) -> None:
        loop = asyncio.get_running_loop()
        hears = self.shape.hears
        noting = loop.call_at(flight.began + STARTED_SECONDS, self._note_start, flight) if hears else None
        try:
            async with asyncio.timeout_at(flight.deadline):
                report = await work()
                if report is None:
                    flight.later = True
                    if not hears:
                        self._note_start(flight)
                    report = await _never()
        except TimeoutError:
            self._mail.revoked.append(flight.ref)
            message = f"it did not end within {flight.timeout_sec} s"
            report = failure(flight.ref, "timeout", message, "timeout")
        finally:
            if noting is not None:
                noting.cancel()
        del self._flights[flight.ref.id]
        await self._report(msgspec.structs.replace(report, started_us=_us_since(flight.began)))

    async def _attempt(self, job: Assignment) -> Report | None:
        ref = ClaimRef(job.id, job.claim_id)
        try:
            answer = await self._dialer.post(self._endpoint, job, self.shape)
        except Unreachable as error:
            self._rest(str(error))
            return failure(ref, "dispatch_failed", f"cannot reach the endpoint: {error}")
        except Broken as error:
            return failure(ref, error.type, str(error))
        if answer.status in BUSY:
            self._rest(f"it answered {answer.status}")
        else:
            self._recovered()
        return self.shape.read(ref, answer)

    def _cancel(self, ref: ClaimRef) -> None:
        """Break off the request and report the job as cancelled. A worker that will report later is told by its next
        heartbeat instead, if its shape has orders."""
        flight = self._flights.get(ref.id)
        if flight is None or flight.ref != ref or (flight.later and self.shape.hears):
            self._mail.put(frames.Cancel([ref]))
            return
        self._take_off(ref)
        self._mail.revoked.append(ref)
        report = failure(
            ref, "cancelled", "cancelled; the request to the endpoint was broken off", "cancelled"
        )
        self._spawn(self._report(report))

    def _take_off(self, ref: ClaimRef) -> None:
        flight = self._flights.get(ref.id)
        if flight is not None and flight.ref == ref:
            del self._flights[ref.id]
            if flight.task is not None:
                flight.task.cancel()

    async def take(self, report: Report) -> bool:
        """Store the worker's report of a job that it accepted. Return False when it came too late. The worker may not send
        it again, so it is stored even if the request is cancelled meanwhile."""
        flight = self._flights.get(report.id)
        if flight is not None and flight.ref.claim_id == report.claim_id:
            report = msgspec.structs.replace(report, started_us=_us_since(flight.began))
            self._recovered()
        self.landed([ClaimRef(report.id, report.claim_id)])
        return await asyncio.shield(self._spawn(self._report(report)))

    async def _report(self, report: Report) -> bool:
        """Store the end of an attempt. Return False when it came too late. The report is not sent again, so this retries
        until the store takes it."""
        released = self._sink.release(self.session, [report])
        while True:
            try:
                return not await self._sink.take(self.session, [report], list(released))
            except (StoreUnavailable, MemoryError) as error:
                log.warning("push_report_waits", job_id=report.id, detail=str(error))
                await asyncio.sleep(STORE_RETRY_SECONDS)

    def _note_start(self, flight: Flight) -> None:
        note = StartNote(flight.ref.id, flight.ref.claim_id, _us_since(flight.began))
        self._spawn(self._sink.started(self.session, [note]))

    # ── resting ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _rest(self, reason: str) -> None:
        session = self.session
        if session.resting:
            return
        session.failures += 1
        session.resting = True
        seconds = rest_seconds(session.failures)
        log.warning("worker_resting", worker_id=session.id, reason=reason, seconds=seconds)
        self._rest_timer = asyncio.get_running_loop().call_later(seconds, self._stop_resting)

    def _recovered(self) -> None:
        self.session.failures = 0
        self._stop_resting()

    def _stop_resting(self) -> None:
        if self._rest_timer is not None:
            self._rest_timer.cancel()
            self._rest_timer = None
            self.session.resting = False
            self._sink.wake()

    # ── tasks ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        """Log a failed task. Its claim is not lost: without a flight it is handed back at the worker's next heartbeat."""
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("push_failed", worker_id=self.session.id, detail=repr(task.exception()))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _us_since(began: float) -> int:
    return int((_now() - began) * SECOND)


async def _never() -> Report:
    """Wait to be cancelled."""
    waiting: asyncio.Future[Report] = asyncio.get_running_loop().create_future()
    return await waiting


class PushWorkers:
    """Sends jobs to workers that are web services: all those that this coordinator has taken over."""

    def __init__(self, sink: ReportSink, *, max_result_bytes: int) -> None:
        self._sink = sink
        self._dialer = EndpointClient(max_result_bytes + ANSWER_MARGIN_BYTES)
        self._lines: dict[str, EndpointLine] = {}

    def connect(self, hello: frames.Hello, endpoint: str, mail: Mailbox, shape: Shape = OWN) -> PushSession:
        line = self._lines[hello.session] = EndpointLine(
            hello, endpoint, mail, self._dialer, self._sink, shape
        )
        return line.session

    def lines(self) -> list[EndpointLine]:
        return list(self._lines.values())

    def line(self, session_id: str) -> EndpointLine | None:
        return self._lines.get(session_id)

    def forget(self, session_id: str) -> None:
        """Break off the flights of a session that was given up: its jobs go to other workers."""
        line = self._lines.pop(session_id, None)
        if line is not None:
            line.break_off()

    async def close(self) -> None:
        await asyncio.gather(*(line.close() for line in self._lines.values()))
        await self._dialer.close()
