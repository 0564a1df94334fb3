"""Children that are threads: they stand in for `stoker.executors.process.Child` under a real supervisor.

A `ThreadChild` runs sync tasks one after the other, a `LoopChild` runs async tasks side by side on the event loop of a
`LoopThread`, each with the code that real child processes use. Results are passed to the supervisor's loop.

A thread cannot be killed. Where a process would get SIGTERM, a `ThreadChild` raises `Terminated` in the task, which happens
when the task next runs Python code. Where a process would be killed, the thread is abandoned: the supervisor is told that
the child is gone and starts another, and what the old thread returns later is ignored.
"""

import asyncio
import contextlib
import itertools
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, cast

from msgspec.structs import replace

from stoker import context
from stoker.context import JobContext, running_job
from stoker.executors.async_child import AsyncChild
from stoker.executors.builtin import BUILTINS
from stoker.executors.child import Run, SyncChild
from stoker.executors.leaving import Terminated
from stoker.executors.life import ChildLife, PythonTask
from stoker.executors.pipe import ChildBatch, OutcomeBatch, Progressed, Ready, WorkOutcome
from stoker.executors.process import Callbacks
from stoker.executors.shared_state import SharedState
from stoker.executors.supervisor_line import SupervisorLine
from stoker.system import ThreadMeter
from stoker.system.interrupt import raise_in_thread

TERMINATED: Final = -15
KILLED: Final = -9

_numbers = itertools.count(1)


class LocalRouter:
    """Routes calls of `progress` and `cancelled` to the child that runs the calling job. A call from outside such a job goes
    to `outer`, which was connected before."""

    def __init__(self, outer: context.TaskLine | None) -> None:
        self.outer = outer
        self._lines: dict[tuple[str, int], context.TaskLine] = {}

    def add(self, job: JobContext, line: context.TaskLine) -> None:
        self._lines[job.id, job.claim_id] = line

    def remove(self, job: JobContext) -> None:
        self._lines.pop((job.id, job.claim_id), None)

    def _line(self) -> context.TaskLine | None:
        job = running_job()
        return self.outer if job is None else self._lines.get((job.id, job.claim_id), self.outer)

    def progress(self, index: int, done: float, total: float | None, message: str | None) -> None:
        if (line := self._line()) is not None:
            line.progress(index, done, total, message)

    def cancelled(self, index: int) -> bool:
        return (line := self._line()) is not None and line.cancelled(index)


class LocalLine:
    """Passes results and progress to the supervisor's loop, as `executors.supervisor_line.SupervisorLine` does in a child
    process. Output is not captured: it goes to the script's own stdout and stderr."""

    has_results = False

    def __init__(self, child: "LocalChild", shared_state: SharedState) -> None:
        self._child = child
        self._pid = os.getpid()
        self._progress: dict[int, Progressed] = {}
        self.shared_state = shared_state
        self.saw_cancel = False

    @property
    def forked(self) -> bool:
        """Return whether this process is a forked copy, which must not send results."""
        return os.getpid() != self._pid

    def ended(self, *told: Any) -> None:
        self._child.tell(self._child.on_result, WorkOutcome(*told))

    def progress(self, index: int, done: float, total: float | None, message: str | None) -> None:
        """Keep the latest progress of each job; one call on the loop passes on all of it."""
        waits = bool(self._progress)
        self._progress[index] = Progressed(index, done, total, message)
        if not waits:
            self._child.tell(self._send_progress)

    def _send_progress(self) -> None:
        while self._progress:
            with contextlib.suppress(KeyError):
                self._child.on_progress(self._progress.popitem()[1])

    def cancelled(self, index: int) -> bool:
        if self.shared_state.cancelled(index):
            self.saw_cancel = True
            return True
        return False

    def flush(self) -> None:
        """Do nothing: everything was sent at once."""

    flush_late = flush


class LocalChild:
    """A child as the supervisor sees it. Everything here but `tell` runs on the supervisor's loop."""

    warm = True
    has_lifespan = False
    knows_types = True

    def __init__(self, callbacks: Callbacks, router: LocalRouter, ready: Callable[[], Ready]) -> None:
        self._loop = asyncio.get_running_loop()
        self._callbacks = callbacks
        self._router = router
        self._says = ready
        self.number = next(_numbers)
        self.pid = self.number
        self.shared_state = SharedState.private()
        self.line = LocalLine(self, self.shared_state)
        self._jobs: dict[int, JobContext] = {}
        self.ready = False
        self.ended = False
        self.jobs_taken = 0
        self.returncode: int | None = None

    # ── for subclasses ─────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, job: JobContext) -> None:
        """Run a job: a `ThreadChild` after the jobs before it, a `LoopChild` beside them."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Run nothing more."""
        raise NotImplementedError

    def of_job(self) -> context.TaskLine:
        """Return the object that takes the `progress` and `cancelled` calls of this child's jobs."""
        return self.line

    def tell(self, call: Callable[..., object], *arguments: object) -> None:
        """Make a call on the supervisor's loop, from any thread. After the end of the block it does nothing."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *arguments)

    # ── what it tells the supervisor ───────────────────────────────────────────────────────────────────────────────

    def on_ready(self) -> None:
        if not self.ended:
            self.ready = True
            self._callbacks.ready(cast(Any, self), self._says())

    def on_result(self, result: WorkOutcome) -> None:
        job = self._jobs.pop(result.index, None)
        if job is not None:
            self._router.remove(job)
        if not self.ended:
            self._callbacks.results(cast(Any, self), OutcomeBatch.of(result))

    def on_progress(self, progressed: Progressed) -> None:
        if not self.ended:
            self._callbacks.progressed(cast(Any, self), progressed)

    def gone(self, returncode: int) -> None:
        if self.ended:
            return
        self.ended = True
        self.returncode = returncode
        for job in self._jobs.values():
            self._router.remove(job)
        self.abandon()
        self._callbacks.exited(cast(Any, self))

    # ── what the supervisor does to it ─────────────────────────────────────────────────────────────────────────────

    def send(self, batches: list[ChildBatch]) -> None:
        for batch in batches:
            for job in batch.jobs():
                self.jobs_taken += 1
                self._jobs[job.index] = job
                self._router.add(job, self.of_job())
                self.take(job)

    def cancel(self, index: int) -> None:
        self.shared_state.cancel(index)

    def terminate(self) -> None:
        """Do nothing: `cancel` has cancelled async tasks. A `ThreadChild` overrides this."""

    def kill(self) -> None:
        self._loop.call_soon(self.gone, KILLED)

    def end(self) -> None:
        self.gone(KILLED)

    def poll(self) -> None:
        """Do nothing: a thread of this process does not die unnoticed."""


# ── sync tasks ───────────────────────────────────────────────────────────────────────────────────────────────────────


class LiveRunners:
    """Finds the function that runs a type in the app as it is now: tasks may be added or redefined later."""

    def __init__(self, app: Any, life: ChildLife, cancelled: Callable[[], bool]) -> None:
        self._app = app
        self._life = life
        self._cancelled = cancelled
        self._made: dict[str, tuple[PythonTask, Run]] = {}

    def get(self, type: str, /) -> Run | None:
        task: PythonTask | None = self._app.tasks.get(type)
        if task is None or task.is_async:
            return BUILTINS.get(type)
        known, run = self._made.get(type, (None, None))
        if known is not task or run is None:
            run = self._life.runner(task, self._cancelled)
            self._made[type] = task, run
        return run


class _Jobs(SyncChild):
    """Runs jobs with the code of a child process, but leaves the environment, memory limit and CPUs of the script's process
    alone."""

    alone = False

    def run_one(self, job: JobContext) -> None:
        self._one(replace(job, memory_mb=None))

    def _grant(self, job: JobContext) -> None:
        """Do nothing."""


class ThreadChild(LocalChild):
    """A thread that runs sync tasks, one after the other."""

    def __init__(
        self, callbacks: Callbacks, router: LocalRouter, ready: Callable[[], Ready], app: Any, max_result: int
    ) -> None:
        super().__init__(callbacks, router, ready)
        self._app = app
        self._max_result = max_result
        self._orders: queue.SimpleQueue[JobContext | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"stoker-job-{self.number}", daemon=True)
        self._thread.start()
        self._loop.call_soon(self.on_ready)

    def take(self, job: JobContext) -> None:
        self._orders.put(job)

    def abandon(self) -> None:
        self._orders.put(None)

    def terminate(self) -> None:
        if self._thread.ident is not None and self._thread.is_alive():
            raise_in_thread(self._thread.ident, Terminated)

    def _work(self) -> None:
        line = cast(SupervisorLine, self.line)
        runners = LiveRunners(self._app, ChildLife(self._app, self._max_result), lambda: self.line.saw_cancel)
        jobs = _Jobs(line, runners, self._max_result, ThreadMeter())
        try:
            while (job := self._orders.get()) is not None and not self.ended:
                jobs.run_one(job)
        except Terminated:
            self.tell(self.gone, TERMINATED)


# ── async tasks ──────────────────────────────────────────────────────────────────────────────────────────────────────


class LoopThread:
    """The thread whose event loop runs async tasks, and in which the lifespans of the app are entered and left."""

    def __init__(self, app: Any, max_result: int) -> None:
        self.life = ChildLife(app, max_result)
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="stoker-async", daemon=True)

    def start(self) -> None:
        """Start the thread and wait until the lifespans are entered. Raises what one of them raised."""
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            raise self._error

    def call(self, call: Callable[..., object], *arguments: object) -> None:
        """Call this on the loop of the async tasks, from any thread."""
        with contextlib.suppress(RuntimeError):  # it is closed
            self.life.loop.call_soon_threadsafe(call, *arguments)

    def stop(self, seconds: float) -> None:
        """Cancel the tasks, leave the lifespans and end the thread. Waits at most `seconds`, since a task may block."""
        self.call(self.life.loop.stop)
        self._thread.join(seconds)

    def _run(self) -> None:
        loop = self.life.loop
        try:
            self.life.enter()
        except BaseException as error:  # noqa: BLE001 - raised by `start`
            self._error = error
            loop.close()
            return
        finally:
            self._started.set()
        try:
            loop.run_forever()
            tasks = asyncio.all_tasks(loop) - self.life.own_tasks
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.life.leave()
        finally:
            loop.close()


class _AsyncJobs(AsyncChild):
    """Runs async jobs with the code of a child process, on the loop of a `LoopThread`."""

    def begin(self, job: JobContext) -> None:
        self._start(job)

    def cancel(self, index: int) -> None:
        self._cancel(index)

    def leave(self) -> None:
        self._leaving = True
        for task in list(self._running.values()):
            task.cancel()


class LoopChild(LocalChild):
    """Runs async tasks side by side. A task that blocks the loop keeps the next child from becoming ready."""

    def __init__(
        self,
        callbacks: Callbacks,
        router: LocalRouter,
        ready: Callable[[], Ready],
        app: Any,
        max_result: int,
        thread: LoopThread,
    ) -> None:
        super().__init__(callbacks, router, ready)
        self._thread = thread
        self._real = _AsyncJobs(cast(SupervisorLine, self.line), app.tasks, max_result, thread.life)
        thread.call(self.tell, self.on_ready)

    def of_job(self) -> context.TaskLine:
        return self._real

    def take(self, job: JobContext) -> None:
        self._thread.call(self._real.begin, job)

    def cancel(self, index: int) -> None:
        self._thread.call(self._real.cancel, index)

    def abandon(self) -> None:
        self._thread.call(self._real.leave)
