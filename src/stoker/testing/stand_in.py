"""A simulated child process: it stands in for `stoker.executors.process.Child` under a real supervisor.

The simulation runs simulated jobs in such children, the test kit runs the tasks of an app. They share what is here: starting
and dying in virtual time, a shared state in ordinary memory, and a pipe with a delay.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, Protocol

from stoker.context import JobContext
from stoker.executors.pipe import ChildBatch, OutcomeBatch, Ready, WorkOutcome
from stoker.executors.process import Callbacks
from stoker.executors.shared_state import _LAYOUT, NOTHING, SIZE, SharedState
from stoker.testing.loop import Process, SimLoop

PIPE_SECONDS: Final = 0.0001


class MemorySharedState(SharedState):
    """The real shared state, in ordinary memory."""

    def __init__(self) -> None:
        self._memory = bytearray(SIZE)  # type: ignore[assignment]
        _LAYOUT.pack_into(self._memory, 0, NOTHING, 0, 0.0, 0, 0, NOTHING)

    def close(self) -> None:
        pass


class Host(Protocol):
    """The machine of a simulated child."""

    loop: SimLoop
    supervisor: Process
    pids: Iterator[int]


class StandInChild:
    """A child process as its supervisor sees it. A subclass says what it can run (`says`) and runs it (`take`)."""

    has_lifespan = False
    warm = True
    knows_types = True

    def __init__(self, machine: Host, callbacks: Callbacks, boot_seconds: float) -> None:
        self.host = machine
        self._callbacks = callbacks
        self.pid = next(machine.pids)
        self.process = Process(machine.loop, f"{machine.supervisor.name}.{self.pid}")
        self.shared_state: MemorySharedState = MemorySharedState()
        self.ready = False
        self.ended = False
        self.jobs_taken = 0
        self.returncode: int | None = None
        self.held = False
        """Whether another process keeps the pipe open: then the supervisor is not told of the child's death by its end."""
        self._died_at: float | None = None
        callbacks.started(self)  # type: ignore[arg-type]
        self.process.call_later(boot_seconds, self._boot)

    # ── for subclasses ─────────────────────────────────────────────────────────────────────────────────────────────

    def says(self) -> Ready | None:
        """Return what the child can run; None for a child that announces nothing."""
        raise NotImplementedError

    def take(self, jobs: list[JobContext]) -> None:
        """Take jobs that have arrived. Runs in the child's process."""
        raise NotImplementedError

    def died(self) -> None:
        """Called when the child was killed or ended itself."""

    def tell(self, result: WorkOutcome) -> None:
        """Send a result to the supervisor."""
        self.send_up(self._callbacks.results, OutcomeBatch.of(result))

    def send_up(self, callback: Any, message: Any) -> None:
        self.host.supervisor.call_later(PIPE_SECONDS, self._heard, callback, message)

    def _heard(self, callback: Any, message: Any) -> None:
        if not self.ended:
            callback(self, message)

    # ── what the supervisor does to it ─────────────────────────────────────────────────────────────────────────────

    def send(self, batches: list[ChildBatch]) -> None:
        jobs = [job for batch in batches for job in batch.jobs()]
        self.jobs_taken += len(jobs)
        self.process.call_later(PIPE_SECONDS, self.take, jobs)

    def cancel(self, index: int) -> None:
        self.shared_state.cancel(index)

    def terminate(self) -> None:
        self.process.call_later(PIPE_SECONDS, self.die, -15)

    def kill(self) -> None:
        self.die(-9)

    def end(self) -> None:
        self.die(-9)
        self._gone()

    def poll(self) -> None:
        """Notice a death that the pipe did not tell, after everything that the child sent before has been read."""
        if self._died_at is not None and self.host.loop.time() > self._died_at + PIPE_SECONDS:
            self._gone()

    def die(self, code: int) -> None:
        if not self.process.alive:
            return
        self.process.kill()
        self.returncode = code
        self.died()
        self._died_at = self.host.loop.time()
        if not self.held:
            self.host.supervisor.call_later(PIPE_SECONDS, self._gone)

    def _gone(self) -> None:
        """Tell the supervisor that the child is gone, after everything in the pipe has been read."""
        if self.ended:
            return
        self.ended = True
        self._callbacks.exited(self)  # type: ignore[arg-type]

    # ── how it begins ──────────────────────────────────────────────────────────────────────────────────────────────

    def _boot(self) -> None:
        ready = self.says()
        if ready is not None:
            self.host.supervisor.call_later(PIPE_SECONDS, self._say_ready, ready)

    def _say_ready(self, ready: Ready) -> None:
        if not self.ended:
            self.ready = True
            self._callbacks.ready(self, ready)  # type: ignore[arg-type]


Waiting = deque[tuple[StandInChild, JobContext]]
