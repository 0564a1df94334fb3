"""Submits without waiting: `with app.pipeline() as p: p.submit(task, ...)`.

`submit` puts the job in a queue of this process and returns its handle at once. A thread of the pipeline sends the queued
jobs in batches. `flush`, and the end of the block, wait until every job is stored, and raise `PipelineError` for those that
were refused. A process that dies before that loses what is still in the queue.

The queue is bounded: `submit` waits while it is full, so a fast producer is held to the speed of the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, Self, TypeVar

from stoker.client.errors import ArgumentError, PipelineError, StokerError, SubmitFailure
from stoker.client.outcomes import WaitFailure, failure
from stoker.client.sharing import batch_size

if TYPE_CHECKING:
    from stoker.client.app import Stoker
    from stoker.client.job import JobHandle
    from stoker.client.submission import AcceptedJob, NewJob, Submitted
    from stoker.client.task import Task

P = ParamSpec("P")
R = TypeVar("R")

MAX_PENDING: Final = 10_000
MAX_FAILURES: Final = 10_000
"""With this many failures `submit` raises them, so that their memory is bounded too."""
MAX_PENDING_BYTES: Final = 16 * 1024 * 1024


class _Entry(NamedTuple):
    place: int
    job: NewJob
    handle: JobHandle[Any]


class Pipeline:
    """Submits jobs in the background, without a wait for each. Made by `Stoker.pipeline`.

    Use it as a `with` or `async with` block. One pipeline may be shared by threads and by tasks of an event loop.
    """

    def __init__(self, app: Stoker, max_pending: int = MAX_PENDING) -> None:
        """`max_pending` bounds the jobs that are not stored yet."""
        given: Any = max_pending
        if not isinstance(given, int) or given < 1:
            raise ArgumentError(
                f"max_pending={max_pending!r} must be a whole number, at least 1", "max_pending"
            )
        self._app = app
        self._max_pending = max_pending
        self._changed = threading.Condition()
        self._queue: list[_Entry] = []
        self._in_flight: list[_Entry] = []
        self._bytes = 0
        self._number = 0
        self._stored = 0
        """The number of submissions that have an outcome: they are settled in order."""
        self._failures: list[SubmitFailure] = []
        self._thread: threading.Thread | None = None
        self._closed = False
        self._pid = os.getpid()
        self._wakers: list[Callable[[], None]] = []
        """Callbacks that wake coroutines which wait for a change."""

    # --- submitting

    def submit(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Queue a call of a task and return its handle. The job is stored after `flush`, or after the end of the block.

        Waits while the queue is full. On an event loop that would block it: use `submit_async` there.
        """
        self._check_process()
        job = _job_of(task, args, kwargs)
        with self._changed:
            while not self._has_room(job):
                self._changed.wait()
            return self._put(job)

    async def submit_async(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Queue a call of a task, like `submit`, without blocking the event loop while the queue is full."""
        self._check_process()
        job = _job_of(task, args, kwargs)
        while True:
            with self._changed:
                if self._has_room(job):
                    return self._put(job)
                change = self._next_change()
            await change

    def _has_room(self, job: NewJob) -> bool:
        if self._closed:
            raise StokerError("this pipeline is closed; make another one: app.pipeline()")
        if len(self._failures) >= MAX_FAILURES:
            self._raise_failures()
        pending = len(self._queue) + len(self._in_flight)
        fits = self._bytes + len(job.body) <= MAX_PENDING_BYTES
        return pending == 0 or (pending < self._max_pending and fits)

    def _check_process(self) -> None:
        """Raise in a forked child, before taking the lock: another thread of the parent may have held it at the fork."""
        if self._pid != os.getpid():
            raise StokerError("this pipeline belongs to the parent process; make one here: app.pipeline()")

    def _put(self, job: NewJob) -> JobHandle[Any]:
        handle = self._app._handle_of(job)
        if self._thread is None:
            thread = threading.Thread(target=self._send_all, name="stoker-pipeline", daemon=True)
            thread.start()  # raises if no thread can be started; then nothing was queued
            self._thread = thread
        entry, size = _Entry(self._number, job, handle), len(job.body)
        # In one piece: a signal handler may raise after any call, and the counts must agree with the queue.
        self._number += 1
        self._bytes += size
        self._queue.append(entry)
        if len(self._queue) == 1:
            self._changed.notify_all()
        return handle

    # --- waiting

    def flush(self) -> None:
        """Wait until all jobs submitted so far are stored. Raises `PipelineError` for those that were refused."""
        self._check_process()
        with self._changed:
            until = self._number
            while self._stored < until:
                self._changed.wait()
            self._raise_failures()

    async def flush_async(self) -> None:
        """Wait until all jobs submitted so far are stored, like `flush`, without blocking the event loop."""
        self._check_process()
        until = self._number
        while True:
            with self._changed:
                if self._stored >= until:
                    return self._raise_failures()
                change = self._next_change()
            await change

    def _raise_failures(self) -> None:
        failures, self._failures = self._failures, []
        if failures:
            raise PipelineError(failures)

    def _next_change(self) -> asyncio.Future[None]:
        """Return a future of the running loop that is done when something has changed."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def done() -> None:
            if not future.done():
                future.set_result(None)

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(done)

        self._wakers.append(wake)
        return future

    # --- sending, by the pipeline's own thread

    def _send_all(self) -> None:
        submits = self._app.transport.submits
        while batch := self._next_batch():
            try:
                outcomes = submits.send_many([entry.job for entry in batch])
            except Exception as error:  # noqa: BLE001 - `flush` raises it
                outcomes = [failure(StokerError(f"{type(error).__name__}: {error}"))] * len(batch)
            self._settle(batch, outcomes)

    def _next_batch(self) -> list[_Entry]:
        """Wait for jobs and return those of the next request; none when the pipeline was closed."""
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            number = batch_size(entry.job for entry in self._queue)
            self._in_flight = self._queue[:number]
            del self._queue[:number]
            return self._in_flight

    def _settle(self, batch: list[_Entry], outcomes: list[Submitted]) -> None:
        for entry, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, WaitFailure):
                self._failures.append(SubmitFailure(entry.place, entry.handle, _error(outcome)))
            else:
                _adopt(entry.handle, outcome)
        with self._changed:
            self._in_flight = []
            self._bytes -= sum(len(entry.job.body) for entry in batch)
            self._stored += len(batch)
            self._changed.notify_all()
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()

    # --- the block

    def close(self) -> None:
        """Close the pipeline to further jobs. Queued jobs are still sent; `flush` waits for them."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.flush()
        except PipelineError as failed:
            _raise_unless_another(failed, error)
        finally:
            self.close()
        if self._thread is not None:
            self._thread.join()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.flush_async()
        except PipelineError as failed:
            _raise_unless_another(failed, error)
        finally:
            self.close()


def _job_of(task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
    if not hasattr(task, "submit_many"):
        raise ArgumentError(
            f"{task!r} is no task; a pipeline takes a task and its arguments: pipeline.submit(add, 1, 2)",
            "task",
        )
    return task._new_job(args, kwargs)


def _raise_unless_another(failed: PipelineError, error: BaseException | None) -> None:
    """Raise the failure, or add it as a note to the error of the block, if there is one."""
    if error is None:
        raise failed
    error.add_note(f"{type(failed).__name__}: {failed}")


def _error(outcome: WaitFailure) -> StokerError:
    error = outcome.error()
    return error if isinstance(error, StokerError) else StokerError(str(error))


def _adopt(handle: JobHandle[Any], accepted: AcceptedJob) -> None:
    """Take over the stored job's id, which under an idempotency key may be that of an older job, and its warnings."""
    handle.id = accepted.id
    handle.warnings = accepted.warnings
