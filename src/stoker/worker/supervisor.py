"""The supervisor: receive → run → report, with a heartbeat that nothing a job does can stop.

It never runs user code. It holds the session and its lease: every heartbeat that the coordinator confirms extends the
lease to `lease_seconds` after the moment the heartbeat was *sent*. When the lease is about to end unconfirmed,
everything that runs is killed, because by then it may be running elsewhere. Reports are kept until acknowledged and
sent again on every new connection.

Leaving (SIGTERM, or told to drain): take nothing more, hand back what has not started, let what runs finish within the
grace period, hand back the rest, wait until all of that is acknowledged, say goodbye. The heartbeat goes on throughout.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Collection, Mapping
from itertools import chain, compress
from typing import Final

import structlog
from msgspec.structs import replace

from stoker.executors.pipe import OutcomeBatch, Printed, Progressed, Ready, Step
from stoker.executors.process import Callbacks, Child
from stoker.executors.runner_contract import RunnerContract
from stoker.settings import Settings
from stoker.wire import frames
from stoker.wire.frames import (
    Assignment,
    AssignmentBatch,
    ClaimRef,
    Frame,
    Heartbeat,
    Hello,
    Started,
    StartNote,
    Welcome,
)
from stoker.worker.announcement import Announcement
from stoker.worker.child_pool import ChildPool
from stoker.worker.connection import Dialer, Link, SessionLost
from stoker.worker.ends import Unreported, report_at, us_between
from stoker.worker.machine import Machine
from stoker.worker.output import OutputBuffer
from stoker.worker.routes import Executor
from stoker.worker.slot import LIFESPAN_EXIT_SECONDS

TICK_SECONDS: Final = 0.05
LEASE_MARGIN: Final = 0.1
"""The part of the lease that is kept for killing."""
FAREWELL_SECONDS: Final = 5.0
REAP_EVERY_SECONDS: Final = 1.0

log = structlog.get_logger()


class StartFailed(Exception):
    """The children cannot start: the app cannot be imported."""


class Supervisor:
    """Runs a worker: keeps its connection and lease, gives assignments to the child pool, and reports how they ended."""

    def __init__(
        self,
        settings: Settings,
        dialer: Dialer,
        machine: Machine,
        *,
        new_id: Callable[[], str],
        version: str,
        new_secret: Callable[[], str] = lambda: secrets.token_urlsafe(32),
        native_types: Collection[str] = (),
        runner: RunnerContract | None = None,
    ) -> None:
        self._settings = settings
        self._machine = machine
        self._dialer = dialer
        self._new_id, self._new_secret = new_id, new_secret
        self._loop = asyncio.get_running_loop()
        self._about = Announcement(
            settings, machine, version=version, native_types=native_types, runner=runner
        )
        self.session_id, self._secret = new_id(), new_secret()
        # The mark outlives sessions: whatever this process ever started carries the one that its guardian knows.
        self._mark = self.session_id
        machine.adopt_orphans()
        self._guardian = machine.guardian(self._mark)
        self._pool = self._new_pool()
        self._ready: asyncio.Future[Ready] = self._loop.create_future()
        self._output = OutputBuffer()
        self._reports = Unreported()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._flushed_at = self._next_reaping = 0.0
        self._draining, self._done = asyncio.Event(), asyncio.Event()
        self._lease_seconds = settings.worker_heartbeat_timeout_sec
        self._lease_ends = float("inf")
        self._hello_at = 0.0
        self._beat_number = 0
        self._begin_connection(None)

    def _begin_connection(self, link: Link | None) -> None:
        """Reset the state that belongs to one connection."""
        self._link = link
        self._heard = self._loop.time()
        """The time at which a heartbeat was last confirmed on this connection."""
        self._beats: dict[int, float] = {}
        self._assigned = 0
        self._pause: asyncio.Future[None] | None = None
        """Done when the coordinator has confirmed a heartbeat that asks for no more jobs; None while jobs are wanted."""

    # ── life ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Work until told to leave. Raises `StartFailed` or `NotAllowed` when there is no point in trying."""
        self._pool.open()
        tasks = [asyncio.create_task(self._tick_for_ever())]
        try:
            ready = await self._ready
            if self._about.known is None:
                self._about.know(ready)
            self._about.log_start()
            if "native" in self._about.routes.by_type.values():
                self._pool.warm("native")
            session = asyncio.create_task(self._stay_connected())
            leaving = asyncio.create_task(self._leave())
            tasks += [session, leaving]
            await asyncio.wait([session, leaving], return_when=asyncio.FIRST_COMPLETED)
            for task in (session, leaving):
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._close()

    def drain(self) -> None:
        """Begin to leave: the worker ends when running jobs have, or at the end of the grace period."""
        self._draining.set()

    def renew(self, ready: Ready) -> None:
        """Announce changed tasks: reconnect with a new hello of the same session. Running jobs go on."""
        self._about.know(ready)
        if self._link is not None and self._pause is None:
            self._begin_anew(self._link)

    def _begin_anew(self, link: Link) -> None:
        """Close this connection once it is safe. The next one begins with the new hello."""
        self._pause = self._loop.create_future()
        self._beat()
        self._farewell = self._loop.create_task(self._part_from(link, self._pause))

    async def _part_from(self, link: Link, pause: asyncio.Future[None]) -> None:
        """Close a connection once the coordinator has confirmed that it assigns nothing more on it: it would take seconds to
        notice that an assignment under way was lost."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._lease_seconds):
                await pause
        await link.close()

    async def _close(self) -> None:
        self._pool.retire_idle()
        await self._until(lambda: not self._pool.is_retiring, LIFESPAN_EXIT_SECONDS)
        self._pool.close()
        if self._link is not None:
            with contextlib.suppress(Exception):
                await self._link.close()
        self._guardian.close()

    # ── children ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _new_pool(self) -> ChildPool:
        return ChildPool(
            self._settings,
            self._spawn,
            executor_of=lambda type: self._about.routes.executor(type),
            ended=self._on_ended,
            now=self._loop.time,
            memory_kb=self._machine.memory_kb,
            cpus=self._machine.cpus,
        )

    def _spawn(self, executor: Executor, type: str) -> Child:
        self._renew_guardian()
        return self._child(executor, type)

    def _renew_guardian(self) -> None:
        if not self._guardian.alive:
            self._guardian = self._machine.guardian(self._mark)
            for child in self._pool.children:
                self._guardian.watch(child.pid)

    def _child(self, executor: Executor, type: str) -> Child:
        callbacks = Callbacks(
            ready=self._on_ready,
            results=self._pool.on_results,
            printed=self._on_printed,
            progressed=self._on_progressed,
            exited=self._on_exit,
            started=lambda child: self._guardian.watch(child.pid),
        )
        return self._machine.child(executor, self._mark, callbacks, self._about.routes.commands.get(type))

    def _on_ready(self, child: Child, ready: Ready) -> None:
        if ready.error is not None:
            self._say_why_it_failed(ready.error, ready.failed)
            return
        if child.knows_types and not self._ready.done():
            self._ready.set_result(ready)
        self._pool.on_ready(child, ready)

    def _say_why_it_failed(self, error: str, step: Step) -> None:
        """Log why a child could not start; before the first one was ready, that ends the worker. No job is charged: those
        that wait are handed back in time, and another child is started later."""
        app = self._settings.app
        why, _, stack = error.partition("\n")
        log.error(
            "app_import_failed" if step == "import" else "app_lifespan_failed",
            app=app,
            detail=why,
            exception=stack.rstrip() or None,
        )
        if not self._ready.done():
            what = (
                f"the app {app} cannot be imported"
                if step == "import"
                else f"the lifespan of the app {app} failed to start"
            )
            self._ready.set_exception(StartFailed(f"{what}: {why}"))

    def _on_exit(self, child: Child) -> None:
        self._guardian.forget(child.pid)
        if not child.ready and not self._ready.done():
            self._ready.set_exception(
                StartFailed(f"a child process ended with code {child.returncode} before it was ready")
            )
        self._pool.on_exit(child)

    def _on_printed(self, child: Child, printed: Printed) -> None:
        work = self._pool.work_at(child, printed.index)
        if work is not None:
            self._output.add(work.id, work.claim_id, printed.stream, printed.data)

    def _on_progressed(self, child: Child, progressed: Progressed) -> None:
        work = self._pool.work_at(child, progressed.index)
        if work is not None:
            p = progressed
            self._output.progress(work.id, work.claim_id, p.done, p.total, p.message)

    # ── the clock ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self._loop.time()
            if now > self._lease_ends and self._pool.works:
                log.error("lease_over", detail="no heartbeat was confirmed in time; what ran was killed")
                self._pool.lose_all()
            self._drop_dead_link(now)
            starts = self._pool.tick()
            if now >= self._next_reaping:
                self._next_reaping = now + REAP_EVERY_SECONDS
                self._machine.reap_orphans(self._known_pids())
            if starts:
                notes = [
                    StartNote(work.id, work.claim_id, us_between(started, now)) for work, started in starts
                ]
                self._send(Started(notes))
            self._send_output()

    def _drop_dead_link(self, now: float) -> None:
        """Give up a connection on which no heartbeat was answered for as long as a lease, and make another one. A connection
        that a router on the way forgot looks open for ever."""
        if self._link is not None and now > self._heard + self._lease_seconds:
            log.warning("coordinator_silent", url=self._link.url, seconds=round(now - self._heard, 3))
            self._heard = now
            self._link.drop()

    def _known_pids(self) -> set[int]:
        return {self._guardian.pid, *(child.pid for child in self._pool.children)}

    def _send_output(self) -> None:
        """Send the output and progress of jobs. Called a few times a second; while there is no connection, both are kept,
        within bounds."""
        if self._link is not None:
            for frame in self._output.take():
                self._send(frame)

    async def _beat_for_ever(self, every_seconds: float) -> None:
        while True:
            self._beat()
            await asyncio.sleep(every_seconds)

    def _beat(self) -> None:
        if self._link is None:
            return
        # Reports go first: a claim that is neither held nor reported is taken for one that never arrived.
        self._flush()
        self._beat_number += 1
        self._beats[self._beat_number] = self._loop.time()
        held = [ClaimRef(work.id, work.claim_id) for work in self._pool.works.values()]
        self._send(Heartbeat(self._beat_number, self._pool.used, held, self._takes_nothing, self._assigned))

    @property
    def _takes_nothing(self) -> bool:
        """Whether no job should be assigned on this connection."""
        return self._draining.is_set() or self._pause is not None

    def _renewed(self, number: int) -> None:
        self._heard = self._loop.time()
        sent = self._beats.pop(number, None)
        if sent is not None:
            self._extend_lease(sent)
            self._beats = {n: at for n, at in self._beats.items() if n > number}
        if self._pause is not None and not self._pause.done() and number == self._beat_number:
            self._pause.set_result(None)

    def _extend_lease(self, confirmed: float) -> None:
        """Count the lease from when the confirmed heartbeat was sent, which is before the store heard of it."""
        self._lease_ends = confirmed + self._lease_seconds * (1 - LEASE_MARGIN)

    # ── the connection ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _stay_connected(self) -> None:
        while True:
            try:
                link, welcome = await self._dialer.dial(self._hello)
            except SessionLost as error:
                self._start_over(str(error))
                continue
            await self._serve(link, welcome)
            if self._done.is_set():
                return

    def _hello(self) -> Hello:
        self._hello_at = self._loop.time()
        return self._about.hello(self.session_id, self._secret, draining=self._draining.is_set())

    def _start_over(self, why: str) -> None:
        """Begin a new session: what the lost one held belongs to other workers."""
        log.warning("session_lost", detail=why)
        self._pool.kill_all()
        self._reports.forget()
        self._lease_ends = float("inf")
        self.session_id, self._secret = self._new_id(), self._new_secret()

    async def _serve(self, link: Link, welcome: Welcome) -> None:
        log.info("connected", url=link.url, session=self.session_id)
        self._reports.in_batches = welcome.batches
        self._lease_seconds = welcome.lease_seconds
        self._extend_lease(self._hello_at)  # a welcome confirms the hello as a renewal confirms a heartbeat
        self._begin_connection(link)
        self._send_again()
        beating = asyncio.create_task(self._beat_for_ever(welcome.heartbeat_seconds))
        lost = False
        if not self._about.is_told:  # renewed while it dialled
            self._begin_anew(link)
        try:
            refused = await link.receive(self._handle)
            lost = refused is not None and refused.new_session
        finally:
            self._link = None
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            await link.close()
        if lost:
            self._start_over("the coordinator gave this session up")

    def _send(self, frame: Frame) -> None:
        if self._link is not None:
            self._link.send(frame)

    def _handle(self, frame: frames.ToWorker) -> None:
        match frame:
            case frames.Assign(jobs, number, batches):
                self._take(number, [*map(batch_of, jobs), *batches])
            case frames.Renewed(number):
                self._renewed(number)
            case frames.Ack(number):
                self._reports.unacknowledged.pop(number, None)
            case frames.Cancel(claims):
                for ref in claims:
                    self._pool.cancel(ref.id, ref.claim_id)
            case frames.Drop(claims):
                for ref in claims:
                    self._pool.drop(ref.id, ref.claim_id)
            case frames.Drain():
                self.drain()

    def _take(self, number: int, batches: list[AssignmentBatch]) -> None:
        if 0 < number <= self._assigned:
            log.warning("assignment_repeated", frame=number, jobs=sum(len(batch.ids) for batch in batches))
            return
        self._assigned = number
        ids = set(chain.from_iterable([batch.ids for batch in batches]))
        ended = self._reports.claims_among(ids)
        if ended or not ids.isdisjoint(self._pool.works):
            batches = self._without_known_claims(batches, ended | self._pool.claims_among(ids))
        if self._draining.is_set():
            self._pool.decline(batches, "the worker is leaving")
        elif self._loop.time() > self._lease_ends:
            # It may have waited in the socket while this process stood still, and belong to another worker by now.
            self._pool.decline(batches, "the lease of its worker was over when it came")
        else:
            self._pool.take(batches)

    def _without_known_claims(
        self, batches: list[AssignmentBatch], known: Mapping[str, int]
    ) -> list[AssignmentBatch]:
        """Return the batches without claims that this session holds, or has ended and not got acknowledged: each claim is
        started once."""
        fresh = [unknown_part(batch, known) for batch in batches]
        repeated = len(set(chain.from_iterable([batch.ids for batch in batches])))
        repeated -= sum(len(batch.ids) for batch in fresh)
        if repeated:
            log.warning("assignment_repeated", frame=self._assigned, jobs=repeated)
        return [batch for batch in fresh if batch.ids]

    # ── reports ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_ended(self, ended: OutcomeBatch) -> None:
        self._reports.unsent.append(ended)
        if self._output.written:
            self._output.end([*ended.ids, *[one.id for one in ended.others]])
        # At once when little happens; together with what ends in the next moment when much does.
        now = self._loop.time()
        due = report_at(now, self._flushed_at, more=len(self._pool.works) > self._settings.worker_threads)
        if now >= due:
            self._flush()
        elif self._flush_timer is None:
            self._flush_timer = self._loop.call_at(due, self._flush)

    def _flush(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        self._flushed_at = self._loop.time()
        if self._link is None:
            return
        self._send_output()
        for frame in self._reports.next_frames(self._flushed_at):
            self._send(frame)

    def _send_again(self) -> None:
        """Send on a new connection first the reports that the last one may have lost, then what ended meanwhile."""
        for frame in self._reports.frames_again(self._loop.time()):
            self._send(frame)
        self._flush()

    # ── leaving ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _leave(self) -> None:
        await self._draining.wait()
        log.info("draining", running=len(self._pool.works))
        self._beat()
        self._pool.hand_back_waiting("the worker is leaving")
        if not await self._until(lambda: not self._pool.works, self._settings.shutdown_grace_sec):
            self._pool.end_running("the worker's grace period was over")
            if not await self._until(lambda: not self._pool.works, self._settings.cancel_grace_sec + 2):
                self._pool.close()  # this process stood still, or SIGKILL takes its time: do not leave with work
        reported = await self._until(lambda: not (self._pool.works or self._reports), FAREWELL_SECONDS)
        self._done.set()
        if self._link is not None and reported:
            self._link.send(frames.Goodbye())

    async def _until(self, true: Callable[[], bool], seconds: float) -> bool:
        deadline = self._loop.time() + seconds
        while not true():
            if self._loop.time() >= deadline:
                return False
            await asyncio.sleep(TICK_SECONDS)
        return True


def unknown_part(batch: AssignmentBatch, known: Mapping[str, int]) -> AssignmentBatch:
    """Return the jobs of a batch that are not known under its claim or a later one."""
    claim_id = batch.template.claim_id
    fresh = [known.get(id, 0) < claim_id for id in batch.ids]
    return AssignmentBatch(
        batch.template, list(compress(batch.ids, fresh)), list(compress(batch.payloads, fresh))
    )


def batch_of(job: Assignment) -> AssignmentBatch:
    return AssignmentBatch(replace(job, id="", payload=b""), [job.id], [job.payload])
