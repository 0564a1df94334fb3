"""A simulated worker machine: child processes that run pretended jobs in virtual time and write a side-effect log.

The supervisor's side of a child is real (`stoker.worker.child_pool`), and so is the shared state between them. What a
job does is told by its payload: how long it takes, how it ends, whether it listens to signals. It notes its start and
its end in the side-effect log itself, as a job of a user would write to a file; a kill is noted by the machine.
"""

import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterator
from random import Random
from typing import Any, Final

import msgspec

from stoker.context import JobContext
from stoker.domain.retry import Kind, problem
from stoker.domain.retry_rules import ErrorNote
from stoker.executors.pipe import Ready, WorkOutcome
from stoker.executors.process import Callbacks
from stoker.testing.loop import Process, SimLoop
from stoker.testing.stand_in import PIPE_SECONDS, StandInChild
from stoker.worker.machine import NoGuardian
from stoker.worker.routes import Executor
from tests.checkers.history import Effect

TYPES: Final = ["blink", "nap", "quick", "work"]
UNNAMED_TYPE: Final = "odd"
"""A type that no worker names: it is for workers that take any."""
ASYNC_TYPES: Final = ["nap"]
ERROR: Final = "sim.Error"
"""The class of the errors that pretended jobs raise."""
SNOOZE_SECONDS: Final = 0.7


class Deed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a pretended job does; the payload of every simulated job."""

    marker: str
    seconds: float = 0.01
    then: str = "ok"
    """`ok`, `error`, `invalid`, `crash` or `hang`."""
    until: int = 0
    """It does `then` while its attempt is at most this, later it ends well; 0 is for ever."""
    stubborn: bool = False
    """It ignores SIGTERM."""
    listens: bool = False
    """It ends by itself when it is cancelled."""
    weight: str = ""
    """Makes the payload large, and does nothing."""
    holds: bool = False
    """It forked a process that left its group and keeps the child's pipe open: no end of the pipe tells of a death."""
    snoozes: int = 0
    """It snoozes while its claim is at most this."""

    def ending(self, attempt: int, claim: int) -> str:
        if claim <= self.snoozes:
            return "snooze"
        return "ok" if self.until and attempt > self.until else self.then


class SimMachine:
    """One host, for one life of its supervisor."""

    def __init__(
        self,
        loop: SimLoop,
        supervisor: Process,
        random: Random,
        *,
        concurrency: int,
        note: Callable[[Effect], None],
    ) -> None:
        self.loop = loop
        self.supervisor = supervisor
        self.random = random
        self.concurrency = concurrency
        self.note = note
        self.host = supervisor.name.partition("#")[0]
        self.pid = 1
        self.cpus = [0]
        self.pids: Iterator[int] = itertools.count(2)
        self.children: list[SimChild] = []

    def adopt_orphans(self) -> None: ...
    def reap_orphans(self, known: Collection[int]) -> None: ...

    def guardian(self, mark: str) -> NoGuardian:
        return NoGuardian()

    def memory_kb(self, pid: int) -> int:
        return 1024

    def child(
        self, executor: Executor, mark: str, callbacks: Callbacks, command: tuple[str, ...] | None
    ) -> Any:
        self.children = [child for child in self.children if not child.ended]
        child = (
            SimOneShot(self, callbacks, 0)
            if executor == "runner"
            else SimChild(self, callbacks, self.concurrency if executor == "async" else 0)
        )
        self.children.append(child)
        return child

    def kill_children(self) -> None:
        """The supervisor was killed, and the kernel and the guardian end what it started."""
        for child in self.children:
            child.die(-9)

    def processes(self) -> list[Process]:
        return [child.process for child in self.children if child.process.alive]


class SimChild(StandInChild):
    """A child process as `stoker.executors.process.Child` shows one."""

    def __init__(self, machine: SimMachine, callbacks: Callbacks, concurrency: int) -> None:
        super().__init__(machine, callbacks, machine.random.uniform(0.05, 0.4))
        self._machine: SimMachine = machine
        self._concurrency = concurrency
        self._inbox: deque[JobContext] = deque()
        self._running: dict[int, JobContext] = {}

    def cancel(self, index: int) -> None:
        super().cancel(index)
        self.process.call_later(PIPE_SECONDS, self._hear_cancel, index)

    def terminate(self) -> None:
        self.process.call_later(PIPE_SECONDS, self._hear_term)

    def died(self) -> None:
        for job in self._running.values():
            self._note("killed", job)

    # ── what it does itself ────────────────────────────────────────────────────────────────────────────────────────

    def says(self) -> Ready | None:
        return Ready(TYPES, ASYNC_TYPES)

    def take(self, jobs: list[JobContext]) -> None:
        self._inbox.extend(jobs)
        self._next()

    def _next(self) -> None:
        while self._inbox and (self._concurrency or not self._running):
            job = self._inbox.popleft()
            now = self._machine.loop.time()
            if self._concurrency or self.shared_state.start(job.index, now):
                self._start(job, now)
            else:
                self.tell(WorkOutcome(job.index, "handed_back", None, None, now, now))

    def _start(self, job: JobContext, now: float) -> None:
        self._running[job.index] = job
        deed = msgspec.json.decode(job.payload, type=Deed)
        self._note("start", job)
        self.held = self.held or deed.holds
        ending = deed.ending(job.attempt, job.claim_id)
        if ending != "hang":
            self.process.call_later(deed.seconds, self._end, job, deed, ending, now)

    def _end(self, job: JobContext, deed: Deed, ending: str, started: float) -> None:
        if job.index not in self._running:
            return
        if ending == "crash":
            self._note("killed", job, "crash")
            del self._running[job.index]
            self.die(-11)
            return
        kinds = {"ok": "completed", "error": "error", "invalid": "invalid", "snooze": "snoozed"}
        self._finish(job, kinds[ending], started)

    def _finish(self, job: JobContext, kind: Any, started: float) -> None:
        del self._running[job.index]
        now = self._machine.loop.time()
        value = (
            f'"{job.id}/{job.claim_id} by {self.process.name} at {now:.6f}"' if kind == "completed" else None
        )
        result = None if value is None else value.encode()
        error = None if kind == "completed" else problem(kind, "as the payload asked")
        self._note("end", job, kind, value)
        if not self._concurrency:
            self.shared_state.stop()
        note = None
        if kind in ("error", "snoozed"):
            note = ErrorNote([ERROR, "Exception"], snooze_sec=SNOOZE_SECONDS if kind == "snoozed" else None)
            kind = "error"
        self.tell(WorkOutcome(job.index, kind, result, error, started, now, 1000, 1024, note))
        self._next()

    def _hear_cancel(self, index: int) -> None:
        job = self._running.get(index)
        if job is None:
            return
        deed = msgspec.json.decode(job.payload, type=Deed)
        if deed.listens or (self._concurrency and not deed.stubborn):
            self._finish(job, "cancelled", self._machine.loop.time())

    def _hear_term(self) -> None:
        jobs = self._running.values()
        if not any(msgspec.json.decode(job.payload, type=Deed).stubborn for job in jobs):
            self.die(-15)

    def _note(self, what: Any, job: JobContext, kind: Kind | None = None, value: str | None = None) -> None:
        self._machine.note(
            Effect(
                self._machine.loop.time(),
                what,
                job.id,
                job.claim_id,
                job.attempt,
                self._machine.host,
                self.process.name,
                kind,
                value,
            )
        )


class SimOneShot(SimChild):
    """A process that runs one job and ends, as a foreign runner does."""

    warm = False

    def __init__(self, machine: SimMachine, callbacks: Callbacks, concurrency: int) -> None:
        super().__init__(machine, callbacks, concurrency)
        self.ready = True

    def says(self) -> None:
        """It says nothing of itself."""

    def _finish(self, job: JobContext, kind: Any, started: float) -> None:
        super()._finish(job, kind, started)
        self.die(0)
