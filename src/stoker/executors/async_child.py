"""Async tasks side by side on one event loop, in one child that holds one thread of the worker.

A timeout or a cancel reaches a task as `asyncio.CancelledError`. If the loop does not get round to it, because one
task hogs it, the supervisor kills the process and hands the neighbours back. What a single task used of CPU and
memory cannot be told apart here.
"""

import asyncio
import os
import socket
import time
from collections.abc import Mapping

from stoker.context import JobContext, connect, enter_job
from stoker.domain.retry import Kind
from stoker.domain.retry_rules import ErrorNote
from stoker.executors.child import UnknownType, describe, failure, note_of
from stoker.executors.leaving import Terminated, leave_copy
from stoker.executors.life import ChildLife, PythonTask, RunAsync
from stoker.executors.pipe import TO_CHILD, CancelJob, ChildBatch, Unpacker
from stoker.executors.results import check_size
from stoker.executors.supervisor_line import SupervisorLine
from stoker.system import SYSTEM


class AsyncChild:
    def __init__(
        self, line: SupervisorLine, tasks: Mapping[str, PythonTask], max_result: int, life: ChildLife
    ) -> None:
        self._line = line
        self._life = life
        self._tasks = tasks
        self._runners: dict[str, tuple[PythonTask, RunAsync]] = {}
        self._max_result = max_result
        self._unpacker = Unpacker()
        self._running: dict[int, asyncio.Task[None]] = {}
        self._cancelled: set[int] = set()
        self._flush_soon = False
        self._leaving = False
        self._socket: socket.socket | None = None

    def run(self) -> None:
        """Serve until the pipe closes or SIGTERM comes. A `sys.exit` in a task that a job started beside itself stops the
        loop; it is the error of that task alone, so the loop goes on."""
        connect(self)
        loop = self._life.loop
        SYSTEM.after_fork_in_child(lambda: self._after_fork(loop))
        serving = loop.create_task(self._serve())
        while not serving.done():
            try:
                loop.run_until_complete(serving)
            except Terminated:
                self._wind_down(loop)
                raise
            except (SystemExit, KeyboardInterrupt):
                continue

    def _wind_down(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let every task run its `finally` blocks; the supervisor kills what takes too long. Threads are not waited
        for."""
        self._leaving = True
        tasks = asyncio.all_tasks(loop) - self._life.own_tasks
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        if not self._life.needs_leaving:  # a lifespan is an async generator too
            loop.run_until_complete(loop.shutdown_asyncgens())

    def _after_fork(self, loop: asyncio.AbstractEventLoop) -> None:
        """Runs in a forked copy: it leaves as soon as the task that forked gives control back to the loop. The loop's next
        turn would run the neighbours a second time and change the selector that both processes share."""
        if self._socket is not None:
            self._socket.close()
        ready = getattr(loop, "_ready", None)
        if ready is None:  # another kind of loop, which the user's app installed
            loop.call_soon(leave_copy)
            return
        handle = asyncio.Handle(leave_copy, (), loop)
        for index in range(len(ready)):
            ready[index] = handle
        ready.append(handle)

    # What `stoker.context` asks for.

    def progress(self, index: int, done: float, total: float | None, message: str | None) -> None:
        self._line.progress(index, done, total, message)

    def cancelled(self, index: int) -> bool:
        return index in self._cancelled

    async def _serve(self) -> None:
        self._socket = socket.socket(fileno=os.dup(self._line.fd))
        reader, _ = await asyncio.open_connection(sock=self._socket, limit=1 << 20)
        while chunk := await reader.read(1 << 18):
            for message in self._unpacker.feed(chunk):
                order = TO_CHILD.decode(message)
                if isinstance(order, ChildBatch):
                    for job in order.jobs():
                        self._start(job)
                elif isinstance(order, CancelJob):
                    self._cancel(order.index)

    def _start(self, job: JobContext) -> None:
        self._running[job.index] = asyncio.get_running_loop().create_task(self._one(job))

    def _cancel(self, index: int) -> None:
        task = self._running.get(index)
        if task is not None:
            self._cancelled.add(index)
            task.cancel()

    async def _one(self, job: JobContext) -> None:
        enter_job(job, alone=False)
        started = time.monotonic()
        kind: Kind = "completed"
        result = error = note = None
        try:
            result = await self._call(job)
        except asyncio.CancelledError as cause:
            if self._leaving and job.index not in self._cancelled:
                return  # the loop closes, and the supervisor knows best what that means for who was on it
            kind, error, note = self._fell(job, cause)
        except Terminated:
            raise
        except BaseException as cause:  # noqa: BLE001 - whatever a job raises is the job's failure, not ours
            kind, error, note = self._fell(job, cause)
        if self._line.forked:
            leave_copy()
        self._cancelled.discard(job.index)
        del self._running[job.index]
        self._line.ended(job.index, kind, result, error, started, time.monotonic(), None, None, note)
        if not self._flush_soon:
            self._flush_soon = True
            self._line.flush_late()  # for a task that keeps the loop busy
            asyncio.get_running_loop().call_soon(self._flush)

    def _fell(self, job: JobContext, cause: BaseException) -> tuple[Kind, bytes, ErrorNote]:
        """Return how a job that raised ended: kind, error and note. A `CancelledError` in a job that was not cancelled is
        the job's own, as of a task that it cancelled and then awaits."""
        if self._line.forked:
            leave_copy(cause)
        kind: Kind = "cancelled" if job.index in self._cancelled else failure(cause)
        return kind, describe(cause), note_of(cause)

    async def _call(self, job: JobContext) -> bytes:
        run = self._runner(job.type)
        return check_size(await run(job.payload, job.soft_timeout_sec), self._max_result)

    def _runner(self, type: str) -> RunAsync:
        """Return what runs the task of this type as it is now: in a notebook a task may be defined anew."""
        task = self._tasks.get(type)
        if task is None or not task.is_async:
            raise UnknownType(f"this worker has no async task of type {type!r}")
        known, run = self._runners.get(type, (None, None))
        if known is not task or run is None:
            run = self._life.async_runner(task, self.cancelled)
            self._runners[type] = task, run
        return run

    def _flush(self) -> None:
        self._flush_soon = False
        self._line.flush()
