"""The child process in which Python jobs run: receive, run, report, in a loop, until the supervisor says otherwise.

Results are gathered and sent together, but never held back: they are sent when nothing more waits to run, before a
job whose type is not known to be short, and by a small thread when a job turns out longer than its type used to be.

Nothing here watches the clock for the job's timeout and nothing here retries: that is the supervisor's work, which
can also kill this process at any time.
"""

import argparse
import asyncio
import contextlib
import ctypes
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn, Protocol

import msgspec

from stoker.context import JobContext, enter_job
from stoker.executors.board import Board
from stoker.executors.builtin import BUILTINS
from stoker.executors.pipe import JOBS, ChildJob, ChildResult, Ready, Unpacker, pack

PR_SET_PDEATHSIG: Final = 1
SHORT_SECONDS: Final = 0.001
LATE_SECONDS: Final = 0.005
MESSAGE_MAX: Final = 4_000
TRACEBACK_MAX: Final = 16_000

Run = Callable[[bytes], bytes]


class PythonTask(Protocol):
    """What a child needs of a task of the user's app; `stoker.Task` is one."""

    name: str
    is_async: bool

    def bind(self, payload: bytes) -> dict[str, Any]: ...

    @property
    def function(self) -> Callable[..., Any]: ...


def main() -> None:
    options = _options()
    die_with_parent(options.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    os.set_inheritable(options.fd, False)
    os.set_inheritable(options.board, False)
    try:
        tasks = load_tasks(options.app)
    except BaseException as error:  # noqa: BLE001 - whatever the user's module raises is told to the operator
        os.write(options.fd, pack(Ready([], f"{type(error).__name__}: {error}\n{traceback.format_exc()}")))
        sys.exit(1)
    os.write(options.fd, pack(Ready(sorted(tasks))))
    Child(options.fd, Board(options.board), tasks, options.max_result).run()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--board", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--max-result", type=int, required=True)
    parser.add_argument("--app")
    return parser.parse_args()


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Ask the kernel to end this process when its parent ends, and end now if that already happened."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _terminate(*_: object) -> NoReturn:
    """SIGTERM unwinds the job, so that its `finally` blocks run, and ends the process."""
    sys.exit(128 + signal.SIGTERM)


def load_tasks(app: str | None) -> dict[str, Run]:
    """The built-in types and, over them, those of the user's app (`module:name`)."""
    tasks: dict[str, Run] = dict(BUILTINS)
    if app is None:
        return tasks
    sys.path.insert(0, os.getcwd())
    module, _, name = app.partition(":")
    target = getattr(importlib.import_module(module), name)
    loop = _Loop()
    for task in target.tasks.values():
        tasks[task.name] = _runner(task, loop)
    return tasks


class _Loop:
    """One event loop for all async tasks of this child, made when the first one needs it."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(work)


def _runner(task: PythonTask, loop: _Loop) -> Run:
    function, bind = task.function, task.bind
    if task.is_async:
        return lambda payload: encode_result(loop.run(function(**bind(payload))))
    return lambda payload: encode_result(function(**bind(payload)))


class UnencodableResult(TypeError):
    error_type = "result_not_json"
    retryable = False


def encode_result(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeError) as error:
        raise UnencodableResult(f"the result of type {type(value).__name__} is not JSON: {error}") from error


class Child:
    def __init__(self, fd: int, board: Board, tasks: dict[str, Run], max_result: int) -> None:
        self._fd = fd
        self._board = board
        self._tasks = tasks
        self._max_result = max_result
        self._unpacker = Unpacker()
        self._outbox: list[ChildResult] = []
        self._lock = threading.Lock()
        self._dirty = threading.Event()
        self._slow: dict[str, bool] = {}
        threading.Thread(target=self._flush_late, name="stoker-results", daemon=True).start()

    def run(self) -> None:
        while chunk := self._read():
            for message in self._unpacker.feed(chunk):
                for job in JOBS.decode(message):
                    self._one(job)
            self._flush()

    def _read(self) -> bytes:
        return os.read(self._fd, 1 << 18)

    def _one(self, job: ChildJob) -> None:
        if self._outbox and self._slow.get(job.type, True):
            self._flush()
        started = time.monotonic()
        if self._board.start(job.index, started):
            kind, result, error = self._run(job)
        else:  # taken back before it could start; say so, because the supervisor may have thought otherwise
            kind, result, error = "handed_back", None, None
        finished = time.monotonic()
        self._slow[job.type] = finished - started > SHORT_SECONDS
        with self._lock:
            self._outbox.append(ChildResult(job.index, kind, result, error, started, finished))
            oldest = self._outbox[0].finished
        self._board.stop()
        if finished - oldest > SHORT_SECONDS:
            self._flush()
        elif not self._dirty.is_set():
            self._dirty.set()

    def _run(self, job: ChildJob) -> tuple[Any, bytes | None, bytes | None]:
        enter_job(_context(job))
        try:
            run = self._tasks.get(job.type)
            if run is None:
                raise UnknownType(f"this worker has no task of type {job.type!r}")
            result = run(job.payload)
            if len(result) > self._max_result:
                raise ResultTooLarge(
                    f"the result has {len(result)} bytes, and {self._max_result} are allowed; "
                    "store it elsewhere and return a reference"
                )
            return "completed", result, None
        except SystemExit as error:
            if error.code == 128 + signal.SIGTERM:
                raise
            return "error", None, describe(error)
        except BaseException as error:  # noqa: BLE001 - whatever a job raises is the job's failure, not ours
            kind = "error" if getattr(error, "retryable", True) else "invalid"
            return kind, None, describe(error)

    def _flush(self) -> None:
        with self._lock:
            results, self._outbox = self._outbox, []
            self._dirty.clear()
            if results:
                _write_all(self._fd, pack(results))

    def _flush_late(self) -> None:
        while True:
            self._dirty.wait()
            time.sleep(LATE_SECONDS)
            self._flush()


class UnknownType(LookupError):
    error_type = "unknown_type"


class ResultTooLarge(ValueError):
    error_type = "result_too_large"
    retryable = False


def _context(job: ChildJob) -> JobContext:
    return JobContext(
        job.id,
        job.claim_id,
        job.type,
        job.attempt,
        job.max_attempts,
        job.threads,
        job.queue,
        job.name,
        job.metadata,
    )


def describe(error: BaseException) -> bytes:
    """An error as it is stored on the job. Whatever the exception says, this is valid JSON of bounded size."""
    trace = "".join(traceback.format_exception(error))
    return msgspec.json.encode(
        {
            "type": getattr(error, "error_type", type(error).__name__),
            "message": _text(_message(error), MESSAGE_MAX),
            "traceback": _text(trace[-TRACEBACK_MAX:], TRACEBACK_MAX),
        }
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception whose own __str__ fails
        return "(no message)"


def _text(text: str, limit: int) -> str:
    return text[:limit].encode("utf-8", "backslashreplace").decode()


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        main()
