"""The children of the test kit: they run the tasks of an app in this process, with the code of a real child.

A sync task must not run inside the event loop: it may submit jobs, wait for them, or start a loop of its own. So a child
queues its sync jobs (`KitJobs.waiting`), and the kit runs them on the test's own thread, between callbacks of the loop.
Async tasks run on the loop, in virtual time.
"""

import asyncio
import contextlib
import contextvars
import io
import itertools
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Any, cast

from msgspec.structs import replace

from stoker import context
from stoker.context import JobContext
from stoker.executors import capture
from stoker.executors.async_child import AsyncChild
from stoker.executors.child import Run, SyncChild, Tasks
from stoker.executors.life import ChildLife
from stoker.executors.pipe import Printed, Progressed, Ready, WorkOutcome
from stoker.executors.process import Callbacks
from stoker.executors.supervisor_line import SupervisorLine
from stoker.testing.loop import Process, SimLoop
from stoker.testing.stand_in import MemorySharedState, StandInChild
from stoker.wire.frames import Stream
from stoker.worker.machine import NoGuardian
from stoker.worker.routes import Executor

BOOT_SECONDS = 0.0


class KitLoop(SimLoop):
    """The loop of the kit. `run_until_complete` may be called while it runs: lifespans and middleware do so."""

    def run_until_complete(self, future: Any) -> Any:
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            task = asyncio.ensure_future(future, loop=self)
        finally:
            asyncio._set_running_loop(outer)
        self.turn_until(task.done)
        return task.result()


class KitLife(ChildLife):
    """The lifespans of the app, entered once for all children, and the middleware and hooks around each task."""

    def __init__(self, app: Any, max_result: int, loop: KitLoop) -> None:
        super().__init__(app, max_result)
        self.max_result = max_result
        self.__dict__["loop"] = loop

    def leave(self) -> None:
        """Leave the lifespans, and restore the handler of SIGTERM: a real child ignores it from then on."""
        try:
            before = signal.getsignal(signal.SIGTERM)
            super().leave()
        finally:
            with contextlib.suppress(ValueError):  # not the main thread
                signal.signal(signal.SIGTERM, before)


class KitSharedState(MemorySharedState):
    """A shared state in the virtual time of the loop."""

    def __init__(self, time: Callable[[], float]) -> None:
        super().__init__()
        self._time = time

    def start(self, index: int, now: float) -> bool:
        return super().start(index, self._time())


class KitLine:
    """Stands in for the `stoker.executors.supervisor_line.SupervisorLine` of a real child."""

    forked = False
    has_results = False
    fd = -1

    def __init__(self, child: "TaskChild") -> None:
        self._child = child
        self.saw_cancel = False
        self._written: dict[int, int] = {}

    @property
    def shared_state(self) -> MemorySharedState:
        return self._child.shared_state

    def ended(self, *told: Any) -> None:
        outcome = WorkOutcome(*told)
        self._written.pop(outcome.index, None)
        self._child.finished(outcome)

    def printed(self, index: int, stream: Stream, data: bytes) -> None:
        written = self._written.get(index, 0)
        data = data[: max(0, capture.LIMIT - written)]
        if data:
            self._written[index] = written + len(data)
            self._child.send_up(self._child._callbacks.printed, Printed(index, stream, data))

    def progress(self, index: int, done: float, total: float | None, message: str | None) -> None:
        self._child.send_up(self._child._callbacks.progressed, Progressed(index, done, total, message))

    def cancelled(self, index: int) -> bool:
        if self.shared_state.cancelled(index):
            self.saw_cancel = True
            return True
        return False

    def flush(self) -> None:
        """Do nothing: everything was sent at once."""

    flush_late = flush


class TaskChild(StandInChild):
    """A simulated child that runs the app's tasks."""

    def __init__(self, machine: "KitMachine", callbacks: Callbacks) -> None:
        self.machine = machine
        self.jobs: dict[int, JobContext] = {}
        super().__init__(machine, callbacks, BOOT_SECONDS)
        self.shared_state = KitSharedState(machine.loop.time)
        self.line = KitLine(self)

    def says(self) -> Ready:
        return self.machine.tasks.ready()

    def finished(self, result: WorkOutcome) -> None:
        """Tell the supervisor that an attempt ended, unless the test makes its worker die before that."""
        job = self.jobs.pop(result.index, None)
        now = self.host.loop.time()
        if job is not None and self.machine.sent_jobs.ended(job):
            started = now if result.started is None else min(result.started, now)
            self.tell(replace(result, started=started, finished=now))


class SyncTaskChild(TaskChild):
    """Queues its jobs for the kit (`KitJobs.waiting`)."""

    def __init__(self, machine: "KitMachine", callbacks: Callbacks) -> None:
        super().__init__(machine, callbacks)
        runners = {name: self._noticing(run) for name, run in machine.sync_runners(self.line).items()}
        self._real = SyncChild(cast(SupervisorLine, self.line), runners, machine.life.max_result)

    def take(self, jobs: list[JobContext]) -> None:
        self.machine.sent_jobs.waiting.extend((self, job) for job in jobs)

    def run(self, job: JobContext) -> None:
        """Run a job on this thread."""
        self.jobs[job.index] = job
        # A memory limit would apply to the test's own process.
        self._real._one(replace(job, memory_mb=None))

    def _noticing(self, run: Run) -> Run:
        """Return a runner that remembers Ctrl-C, so that it can be raised in the test and not only end the attempt."""

        def noticing(payload: bytes) -> bytes:
            try:
                return run(payload)
            except KeyboardInterrupt as error:
                self.machine.sent_jobs.interrupted = error
                raise

        return noticing

    def pretend(self, job: JobContext) -> None:
        """Mark a job as started without running it: its worker will die."""
        self.shared_state.start(job.index, 0.0)


class AsyncTaskChild(TaskChild):
    """Runs its jobs on the loop."""

    def __init__(self, machine: "KitMachine", callbacks: Callbacks) -> None:
        super().__init__(machine, callbacks)
        line = cast(SupervisorLine, self.line)
        self._real = AsyncChild(line, machine.tasks.python, machine.life.max_result, machine.life)

    def take(self, jobs: list[JobContext]) -> None:
        for job in jobs:
            if self.machine.sent_jobs.begins(job):
                self.jobs[job.index] = job
                self._real._start(job)

    def cancel(self, index: int) -> None:
        super().cancel(index)
        self.process.call_later(0.0, self._real._cancel, index)

    def finished(self, result: WorkOutcome) -> None:
        now = self.host.loop.time()
        super().finished(replace(result, started=now, finished=now))


class KitJobs:
    """Tracks the jobs that were sent to children until they end, and which of them must seem to crash (`Kit.crash`)."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[SyncTaskChild, JobContext]] = deque()
        self.running: dict[str, JobContext] = {}
        self.to_crash: dict[str, bool] = {}
        """For ids of jobs in whose next attempt the worker dies: whether the task runs before that."""
        self.silenced: set[str] = set()
        """Ids of jobs whose running attempt will never be reported."""
        self.interrupted: KeyboardInterrupt | None = None
        self.moves = 0
        """Grows whenever a job begins or ends here."""

    def begins(self, job: JobContext) -> bool:
        """Note that a job is about to run. Return False when its worker dies before that."""
        self.moves += 1
        after = self.to_crash.pop(job.id, None)
        if after is not None:
            self.silenced.add(job.id)
        if after is False:
            return False
        self.running[job.id] = job
        return True

    def ended(self, job: JobContext) -> bool:
        """Note that a job has run. Return False when its end is not reported."""
        self.moves += 1
        self.running.pop(job.id, None)
        return job.id not in self.silenced

    @property
    def busy(self) -> bool:
        return bool(self.running or self.waiting)


class KitMachine:
    """The machine of the kit's worker, for one session (`stoker.worker.machine.Machine`)."""

    host = "test"
    pid = 1

    def __init__(
        self, loop: SimLoop, supervisor: Process, tasks: Tasks, sent_jobs: KitJobs, life: "KitLife"
    ) -> None:
        self.loop = loop
        self.supervisor = supervisor
        self.tasks = tasks
        self.sent_jobs = sent_jobs
        self.life = life
        self.cpus: list[int] = []
        self.pids: Iterator[int] = itertools.count(2)
        self.children: list[TaskChild] = []

    def sync_runners(self, line: "KitLine") -> dict[str, Run]:
        return self.tasks.sync_runners(self.life, lambda: line.saw_cancel)

    def adopt_orphans(self) -> None: ...
    def reap_orphans(self, known: Collection[int]) -> None: ...

    def guardian(self, mark: str) -> NoGuardian:
        return NoGuardian()

    def memory_kb(self, pid: int) -> int:
        return 1024

    def child(
        self, executor: Executor, mark: str, callbacks: Callbacks, command: tuple[str, ...] | None
    ) -> Any:
        kind = AsyncTaskChild if executor == "async" else SyncTaskChild
        child = kind(self, callbacks)
        self.children.append(child)
        return child

    def kill_children(self) -> None:
        for child in self.children:
            child.die(-9)

    def of_running(self) -> "KitLine | None":
        """Return the connection to the supervisor of the child whose job is running; None outside of jobs."""
        job = context.running_job()
        for child in self.children if job is not None else ():
            found = child.jobs.get(job.index)  # type: ignore[union-attr]
            if found is not None and (found.id, found.claim_id) == (job.id, job.claim_id):  # type: ignore[union-attr]
                return child.line
        return None


class KitRouter:
    """Routes calls of `progress` and `cancelled`, and output, to the child that runs the job: all share this process."""

    def __init__(self, machine: Callable[[], KitMachine | None]) -> None:
        self._machine = machine

    def _line(self) -> KitLine | None:
        machine = self._machine()
        return None if machine is None else machine.of_running()

    def progress(self, index: int, done: float, total: float | None, message: str | None) -> None:
        if (line := self._line()) is not None:
            line.progress(index, done, total, message)

    def cancelled(self, index: int) -> bool:
        return (line := self._line()) is not None and line.cancelled(index)

    def printed(self, index: int, stream: Stream, data: bytes) -> None:
        if (line := self._line()) is not None:
            line.printed(index, stream, data)


class TeeStream(capture.JobStream):
    """Writes the output of a job also to the test's own output."""

    def write(self, text: str) -> int:
        if context.running_job() is not None:
            self._outside.write(text)
        return super().write(text)


@contextlib.contextmanager
def as_in_a_child(router: KitRouter) -> Iterator[None]:
    """Send output, progress and log records of tasks to the kit inside the block, as a worker's child would."""
    line, only = context._line, context._only
    out, err, root = sys.stdout, sys.stderr, logging.getLogger()
    handler, level = capture.JobLogHandler(router.printed), root.level
    threads = {name: os.environ.get(name) for name in ("STOKER_THREADS", "OMP_NUM_THREADS")}
    context.connect(router)
    sys.stdout = TeeStream("stdout", router.printed, cast(io.TextIOBase, out))
    sys.stderr = TeeStream("stderr", router.printed, cast(io.TextIOBase, err))
    root.addHandler(handler)
    if level == logging.WARNING:
        root.setLevel(logging.INFO)
    try:
        yield
    finally:
        context._line, context._only = line, only
        sys.stdout, sys.stderr = out, err
        root.removeHandler(handler)
        root.setLevel(level)
        for name, value in threads.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def run_apart(work: Callable[[], None]) -> None:
    """Run a job in a copy of the context, so that the context variables that it sets end with it."""
    only = context._only
    try:
        contextvars.copy_context().run(work)
    finally:
        context._only = only
