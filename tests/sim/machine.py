"""A simulated worker machine: child processes that run pretended jobs in virtual time and write a side-effect log.

The supervisor's side of a child is real (`stoker.worker.threads`), and so is the board between them. What a job does is
told by its payload: how long it takes, how it ends, whether it listens to signals. It notes its start and its end in
the side-effect log itself, as a job of a user would write to a file; a kill is noted by the machine.
"""

import itertools
from collections import deque
from collections.abc import Callable, Collection
from random import Random
from typing import Any, Final

import msgspec

from stoker.domain.retry import Kind, problem
from stoker.executors.board import _LAYOUT, NOTHING, SIZE, Board
from stoker.executors.pipe import ChildJob, ChildLot, ChildResult, Ready, Results
from stoker.executors.process import Callbacks
from stoker.worker.routes import Executor
from tests.checkers.history import Effect
from tests.sim.loop import Process, SimLoop

TYPES: Final = ["blink", "nap", "quick", "work"]
UNNAMED_TYPE: Final = "odd"
"""A type that no worker names: it is for workers that take any."""
ASYNC_TYPES: Final = ["nap"]
PIPE_SECONDS: Final = 0.0001


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

    def ending(self, attempt: int) -> str:
        return "ok" if self.until and attempt > self.until else self.then


class SimBoard(Board):
    """The real board, in ordinary memory."""

    def __init__(self) -> None:
        self._memory = bytearray(SIZE)  # type: ignore[assignment]
        _LAYOUT.pack_into(self._memory, 0, NOTHING, 0, 0.0, 0, 0, NOTHING)

    def close(self) -> None:
        pass


class Guard:
    """The guardian needs no process here: the world kills children with their supervisor."""

    pid = 1
    alive = True

    def watch(self, group: int) -> None: ...
    def forget(self, group: int) -> None: ...
    def close(self) -> None: ...


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
        self.pids = itertools.count(2)
        self.children: list[SimChild] = []

    def adopt_orphans(self) -> None: ...
    def reap_orphans(self, known: Collection[int]) -> None: ...

    def guardian(self, mark: str) -> Guard:
        return Guard()

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


class SimChild:
    """A child process as `stoker.executors.process.Child` shows one."""

    warm = True
    knows_types = True

    def __init__(self, machine: SimMachine, callbacks: Callbacks, concurrency: int) -> None:
        self._machine = machine
        self._callbacks = callbacks
        self._concurrency = concurrency
        self.pid = next(machine.pids)
        self.process = Process(machine.loop, f"{machine.supervisor.name}.{self.pid}")
        self.board = SimBoard()
        self.ready = False
        self.ended = False
        self.jobs_taken = 0
        self.returncode: int | None = None
        self._inbox: deque[ChildJob] = deque()
        self._running: dict[int, ChildJob] = {}
        self._listening = True
        self._pipe: deque[list[ChildResult]] = deque()
        self._held = False
        self._died_at: float | None = None
        callbacks.started(self)  # type: ignore[arg-type]
        self.process.call_later(machine.random.uniform(0.05, 0.4), self._boot)

    # ── what the supervisor does to it ─────────────────────────────────────────────────────────────────────────────

    def send(self, lots: list[ChildLot]) -> None:
        jobs = [job for lot in lots for job in lot.jobs()]
        self.jobs_taken += len(jobs)
        self.process.call_later(PIPE_SECONDS, self._take, jobs)

    def cancel(self, index: int) -> None:
        self.board.cancel(index)
        self.process.call_later(PIPE_SECONDS, self._hear_cancel, index)

    def terminate(self) -> None:
        self.process.call_later(PIPE_SECONDS, self._hear_term)

    def kill(self) -> None:
        self.die(-9)

    def end(self) -> None:
        self.die(-9)
        self._gone()

    def poll(self) -> None:
        """Ask the kernel whether it died; what it said before has been read by then."""
        if self._died_at is not None and self._machine.loop.time() > self._died_at + PIPE_SECONDS:
            self._gone()

    def die(self, code: int) -> None:
        if not self.process.alive:
            return
        self.process.kill()
        self.returncode = code
        for job in self._running.values():
            self._note("killed", job)
        self._died_at = self._machine.loop.time()
        if not self._held:
            self._machine.supervisor.call_later(PIPE_SECONDS, self._gone)

    def _gone(self) -> None:
        """The supervisor finds the pipe closed; what was in it has been read by then."""
        if self.ended:
            return
        self.ended = True
        self._callbacks.exited(self)  # type: ignore[arg-type]

    # ── what it does itself ────────────────────────────────────────────────────────────────────────────────────────

    def _boot(self) -> None:
        self._machine.supervisor.call_later(PIPE_SECONDS, self._say_ready)

    def _say_ready(self) -> None:
        if not self.ended:
            self.ready = True
            self._callbacks.ready(self, Ready(TYPES, ASYNC_TYPES))  # type: ignore[arg-type]

    def _take(self, jobs: list[ChildJob]) -> None:
        self._inbox.extend(jobs)
        self._next()

    def _next(self) -> None:
        while self._inbox and (self._concurrency or not self._running):
            job = self._inbox.popleft()
            now = self._machine.loop.time()
            if self._concurrency or self.board.start(job.index, now):
                self._start(job, now)
            else:
                self._tell(ChildResult(job.index, "handed_back", None, None, now, now))

    def _start(self, job: ChildJob, now: float) -> None:
        self._running[job.index] = job
        deed = msgspec.json.decode(job.payload, type=Deed)
        self._note("start", job)
        self._held = self._held or deed.holds
        ending = deed.ending(job.attempt)
        if ending != "hang":
            self.process.call_later(deed.seconds, self._end, job, deed, ending, now)

    def _end(self, job: ChildJob, deed: Deed, ending: str, started: float) -> None:
        if job.index not in self._running:
            return
        if ending == "crash":
            self._note("killed", job, "crash")
            del self._running[job.index]
            self.die(-11)
            return
        self._finish(job, {"ok": "completed", "error": "error", "invalid": "invalid"}[ending], started)

    def _finish(self, job: ChildJob, kind: Any, started: float) -> None:
        del self._running[job.index]
        now = self._machine.loop.time()
        value = (
            f'"{job.id}/{job.claim_id} by {self.process.name} at {now:.6f}"' if kind == "completed" else None
        )
        result = None if value is None else value.encode()
        error = None if kind == "completed" else problem(kind, "as the payload asked")
        self._note("end", job, kind, value)
        if not self._concurrency:
            self.board.stop()
        self._tell(ChildResult(job.index, kind, result, error, started, now, 1000, 1024))
        self._next()

    def _tell(self, result: ChildResult) -> None:
        self._machine.supervisor.call_later(PIPE_SECONDS, self._heard, result)

    def _heard(self, result: ChildResult) -> None:
        if not self.ended:
            self._callbacks.results(self, Results.of(result))  # type: ignore[arg-type]

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

    def _note(self, what: Any, job: ChildJob, kind: Kind | None = None, value: str | None = None) -> None:
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

    def _boot(self) -> None:
        """It says nothing of itself."""

    def _finish(self, job: ChildJob, kind: Any, started: float) -> None:
        super()._finish(job, kind, started)
        self.die(0)
