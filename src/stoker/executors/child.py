"""The child process in which Python jobs run: receive, run, report, in a loop, until the supervisor says otherwise.

It runs sync tasks one after the other (`SyncChild`), or async tasks side by side (`stoker.executors.async_child`).
Results are gathered and sent together, but never held back: they are sent when nothing more waits to run, before a
job whose type is not known to be short, and by a small thread when a job turns out longer than its type used to be.

Nothing here watches the clock for the job's timeout and nothing here retries: that is the supervisor's work, which
can also kill this process at any time.
"""

import argparse
import contextlib
import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final, NoReturn, Protocol, TypeVar

import msgspec

from stoker import access
from stoker.context import JobContext, connect, enter_job
from stoker.domain.retry import Kind
from stoker.domain.retry_rules import ErrorNote, bounded_names, class_names
from stoker.executors import capture
from stoker.executors.builtin import BUILTINS
from stoker.executors.leaving import Terminated, exit_code, leave, leave_copy, terminate
from stoker.executors.life import ChildLife, PythonTask
from stoker.executors.memory_limit import MemoryLimit
from stoker.executors.pipe import TO_CHILD, ChildBatch, Ready, Step, Unpacker, pack
from stoker.executors.results import too_large
from stoker.executors.shared_state import SharedState
from stoker.executors.soft_limit import soft_limit
from stoker.executors.supervisor_line import SHORT_SECONDS, SupervisorLine
from stoker.system import SYSTEM, Meter
from stoker.task_errors import RetryAfter, Snooze

READ_BYTES: Final = 1 << 16
"""Small enough that the C library has memory for it at hand, and need not ask the kernel for each job."""
MESSAGE_MAX: Final = 4_000
TRACEBACK_MAX: Final = 16_000

Run = Callable[[bytes], bytes]
T = TypeVar("T")


class Tasks:
    """The types that this process can run. A task of the user's app goes before a built-in type of the same name."""

    def __init__(self, app: str | None) -> None:
        self.python: dict[str, PythonTask] = {}
        self.app: Any = None
        self.app_name: str | None = None
        self.version: int | None = None
        self.schedules: list[dict[str, Any]] = []
        if app is not None:
            self._take(_import(app), app)

    @classmethod
    def of(cls, app: Any, name: str) -> "Tasks":
        """Return the types of an app object in this process; `name` is for an app that has no name."""
        tasks = cls(None)
        tasks._take(app, name)
        return tasks

    def _take(self, app: Any, name: str) -> None:
        self.app = app
        self.python = {task.name: task for task in list(app.tasks.values())}
        self.app_name = getattr(app, "name", None) or name
        self.version = getattr(app, "version", None)
        self.schedules = list(getattr(app, "declared", {}).values())

    def ready(self, *, lifespan: bool = False) -> Ready:
        tasks = self.python.values()
        return Ready(
            sorted({*BUILTINS, *self.python}),
            sorted(task.name for task in tasks if task.is_async),
            about={task.name: task.about() for task in tasks},
            app=self.app_name,
            app_version=self.version,
            schedules=self.schedules,
            lifespan=lifespan,
        )

    def sync_runners(self, life: ChildLife, cancelled: Callable[[], bool]) -> dict[str, Run]:
        runners: dict[str, Run] = dict(BUILTINS)
        for name, task in self.python.items():
            if not task.is_async:
                runners[name] = life.runner(task, cancelled)
        return runners


def main() -> NoReturn:
    options = _options()
    SYSTEM.end_with_parent(options.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, terminate)
    os.set_inheritable(options.fd, False)
    os.set_inheritable(options.shared_state, False)
    shared_state = SharedState(options.shared_state)
    shared_state.seal()
    line = SupervisorLine(options.fd, shared_state)
    connect(line)
    capture.install(line.printed)
    ended: BaseException | None = None
    try:
        serve(options, line)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the supervisor is gone
    except BaseException as error:  # noqa: BLE001 - whatever it is, this process ends with it
        ended = error
    if line.forked:
        leave_copy(ended)
    with contextlib.suppress(OSError):
        line.flush()
    leave(exit_code(ended))


def serve(options: argparse.Namespace, line: SupervisorLine) -> None:
    """Import the user's app, say what it has, run jobs until the pipe closes."""
    _receive_access(line)
    with _told_if_it_fails(line, "import"):
        tasks = Tasks(options.app)
    life = ChildLife(tasks.app, options.max_result)
    with _told_if_it_fails(line, "lifespan"):
        life.enter()
    try:
        line.send(pack(tasks.ready(lifespan=life.needs_leaving)))
        if options.concurrency > 0:
            from stoker.executors.async_child import AsyncChild

            AsyncChild(line, tasks.python, options.max_result, life).run()
        else:
            SyncChild(line, tasks.sync_runners(life, lambda: line.saw_cancel), options.max_result).run()
    finally:
        if not line.forked:
            life.leave()


@contextlib.contextmanager
def _told_if_it_fails(line: SupervisorLine, step: Step) -> Iterator[None]:
    """Surround a step of the start, and tell the supervisor if it fails."""
    try:
        yield
    except Terminated:
        raise
    except BaseException as error:
        if line.forked:
            raise
        detail = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        line.send(pack(Ready([], error=detail, failed=step)))
        sys.exit(1)


def _receive_access(line: SupervisorLine) -> None:
    """Wait for the first message. Nothing follows it before this child has said that it is ready."""
    unpacker = Unpacker()
    messages: list[bytes] = []
    while not messages:
        chunk = os.read(line.fd, READ_BYTES)
        if not chunk:
            raise BrokenPipeError
        messages += unpacker.feed(chunk)
    order = TO_CHILD.decode(messages[0])
    if isinstance(order, access.Access):
        access.give(order)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--shared-state", type=int, required=True)
    parser.add_argument("--parent", required=True)
    parser.add_argument("--max-result", type=int, required=True)
    parser.add_argument("--concurrency", type=int, default=0)
    parser.add_argument("--app")
    return parser.parse_args()


def _import(app: str) -> Any:
    """Return the `Stoker` object that `module:name` refers to."""
    sys.path.insert(0, os.getcwd())
    module, _, name = app.partition(":")
    return getattr(importlib.import_module(module), name)


class UnknownType(LookupError):
    error_type = "unknown_type"


class Runners(Protocol):
    """Finds the function that runs jobs of a type; a dict is one."""

    def get(self, type: str, /) -> Run | None: ...


class SyncChild:
    """Runs jobs one after the other on the main thread."""

    alone = True
    """Whether no other job runs in this process meanwhile."""

    def __init__(
        self, line: SupervisorLine, tasks: Runners, max_result: int, meter: Meter | None = None
    ) -> None:
        self._line = line
        self._tasks = tasks
        self._max_result = max_result
        self._unpacker = Unpacker()
        self._slow: dict[str, bool] = {}
        self._meter = meter or SYSTEM.meter()
        self._threads = 0
        self._cpus: list[int] | None = None

    def run(self) -> None:
        line = self._line
        while chunk := os.read(line.fd, READ_BYTES):
            for message in self._unpacker.feed(chunk):
                order = TO_CHILD.decode(message)
                if isinstance(order, ChildBatch):
                    for job in order.jobs():
                        self._one(job)
            line.flush()

    def _one(self, job: JobContext) -> None:
        """Run one job, unless the supervisor took it back, and add its outcome to the results."""
        line = self._line
        if line.has_results:
            if self._slow.get(job.type, True):
                line.flush()
            else:
                line.flush_late()
        started = finished = time.monotonic()
        kind: Kind = "handed_back"
        result = error = cpu_us = peak = note = None
        if line.shared_state.start(job.index, started):
            line.saw_cancel = False
            if job.threads != self._threads or job.cpus != self._cpus:
                self._grant(job)
            kind, result, error, note = self._run(job)
            finished = time.monotonic()
            cpu_us, peak = self._meter.stop(finished - started)
        self._slow[job.type] = finished - started > SHORT_SECONDS
        line.ended(job.index, kind, result, error, started, finished, cpu_us, peak, note)
        line.shared_state.stop()

    def _grant(self, job: JobContext) -> None:
        """Give this process the threads and CPUs of a job that has others than the one before."""
        self._threads = job.threads
        os.environ["STOKER_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(job.threads)
        if job.cpus != self._cpus:
            self._cpus = job.cpus
            SYSTEM.pin(job.cpus)

    def _run(self, job: JobContext) -> tuple[Kind, bytes | None, bytes | None, ErrorNote | None]:
        enter_job(job, alone=self.alone)
        try:
            run = self._tasks.get(job.type)
            if run is None:
                raise UnknownType(f"this worker has no task of type {job.type!r}")
            if job.memory_mb is None and job.soft_timeout_sec is None:
                result = run(job.payload)
            else:
                with MemoryLimit(job.memory_mb), soft_limit(job.soft_timeout_sec):
                    result = run(job.payload)
            if len(result) > self._max_result:
                raise too_large(result, self._max_result)
        except Terminated:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a job raises is the job's failure, not ours
            if self._line.forked:
                leave_copy(error)
            kind: Kind = "cancelled" if self._line.saw_cancel else failure(error)
            return kind, None, describe(error, job.memory_mb), note_of(error)
        if self._line.forked:
            leave_copy()
        if self._line.saw_cancel:
            return "cancelled", None, None, None
        return "completed", result, None, None


def failure(error: BaseException) -> Kind:
    return "error" if _asked(lambda: bool(getattr(error, "retryable", True)), True) else "invalid"


def note_of(error: BaseException) -> ErrorNote:
    """Return what the coordinator needs to know of an error to apply the job's retry policy."""
    names = class_names(error)
    told = _asked(lambda: getattr(error, "error_type", None), None)
    if isinstance(told, str):
        names = bounded_names([told, *names])
    return ErrorNote(
        names,
        error.seconds if isinstance(error, RetryAfter) else None,
        error.seconds if isinstance(error, Snooze) else None,
    )


def _asked(look: Callable[[], T], otherwise: T) -> T:
    """Look at an exception of a task. Its own code may raise anything there (a `__getattr__` that reads a dict, a `__str__`
    of its own), which must neither end this process nor keep the job from being reported."""
    try:
        return look()
    except Terminated:
        raise
    except BaseException:  # noqa: BLE001 - as above
        return otherwise


_OF_BUILTINS: Final = f"{__package__}.builtins."
"""Errors of built-in types say all in their message, in both runners, so they are stored without a traceback of our code."""


def describe(error: BaseException, memory_mb: int | None = None) -> bytes:
    """Return an error as it is stored on the job: valid JSON of bounded size, whatever the exception says."""
    name = _asked(lambda: str(getattr(error, "error_type", type(error).__name__)), type(error).__name__)
    message = _asked(lambda: str(error), "(no message)")
    if memory_mb is not None and isinstance(error, MemoryError):
        name, message = "memory_limit", f"the job needed more memory than its limit of {memory_mb} MB"
    told = {"type": _text(name, MESSAGE_MAX), "message": _text(message, MESSAGE_MAX)}
    if not str(type(error).__module__).startswith(_OF_BUILTINS):
        told["traceback"] = _text(
            _asked(lambda: _trace(error), "(no traceback)")[-TRACEBACK_MAX:], TRACEBACK_MAX
        )
    return msgspec.json.encode(told)


def _trace(error: BaseException) -> str:
    """Return the traceback as text; without the error itself where its own code does not let it be shown."""
    trace = _from_the_task(error.__traceback__)
    shown = _asked(lambda: "".join(traceback.format_exception(type(error), error, trace)), None)
    return shown or "".join(["Traceback (most recent call last):\n", *traceback.format_tb(trace)])


def _from_the_task(trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins in the task, without our own frames before it; all of it if it has only our
    frames."""
    first = trace
    while first is not None and first.tb_frame.f_globals.get("__package__") == __package__:
        first = first.tb_next
    return first or trace


def _text(text: str, limit: int) -> str:
    return text[:limit].encode("utf-8", "backslashreplace").decode()


if __name__ == "__main__":
    main()
