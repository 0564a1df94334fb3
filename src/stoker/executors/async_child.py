"""Async tasks side by side on one event loop, in one child that holds one thread of the worker.

A timeout or a cancel reaches a task as `asyncio.CancelledError`. If the loop does not get round to it, because one
task hogs it, the supervisor kills the process and hands the neighbours back. What a single task used of CPU and
memory cannot be told apart here.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from typing import NoReturn

from stoker.context import connect, enter_job
from stoker.domain.retry import Kind
from stoker.executors.child import (
    TERMINATED,
    PythonTask,
    SupervisorLine,
    UnknownType,
    check_size,
    context_of,
    describe,
    encode_result,
    failure,
)
from stoker.executors.pipe import TO_CHILD, CancelJob, ChildJob, ChildLot, ChildResult, Unpacker


class AsyncChild:
    def __init__(self, line: SupervisorLine, tasks: Mapping[str, PythonTask], max_result: int) -> None:
        self._line = line
        self._tasks = tasks
        self._max_result = max_result
        self._unpacker = Unpacker()
        self._running: dict[int, asyncio.Task[None]] = {}
        self._cancelled: set[int] = set()
        self._flush_soon = False
        self._leaving = False

    def run(self) -> None:
        connect(self)
        signal.signal(signal.SIGTERM, self._terminate)
        asyncio.run(self._serve())

    def _terminate(self, *_: object) -> NoReturn:
        self._leaving = True
        sys.exit(TERMINATED)

    # What `stoker.context` asks for.

    def progress(self, index: int, done: float, total: float | None, message: str | None) -> None:
        self._line.progress(index, done, total, message)

    def cancelled(self, index: int) -> bool:
        return index in self._cancelled

    async def _serve(self) -> None:
        reader, _ = await asyncio.open_connection(sock=_socket(self._line.fd), limit=1 << 20)
        while chunk := await reader.read(1 << 18):
            for message in self._unpacker.feed(chunk):
                order = TO_CHILD.decode(message)
                if isinstance(order, ChildLot):
                    for job in order.jobs():
                        self._start(job)
                elif isinstance(order, CancelJob):
                    self._cancel(order.index)

    def _start(self, job: ChildJob) -> None:
        self._running[job.index] = asyncio.get_running_loop().create_task(self._one(job))

    def _cancel(self, index: int) -> None:
        task = self._running.get(index)
        if task is not None:
            self._cancelled.add(index)
            task.cancel()

    async def _one(self, job: ChildJob) -> None:
        enter_job(context_of(job), alone=False)
        started = time.monotonic()
        kind: Kind = "completed"
        result = error = None
        try:
            result = await self._call(job)
        except asyncio.CancelledError as cause:
            if self._leaving and job.index not in self._cancelled:
                return  # the loop closes, and the supervisor knows best what that means for who was on it
            kind, error = self._fell(job, cause)
        except BaseException as cause:  # noqa: BLE001 - whatever a job raises is the job's failure, not ours
            kind, error = self._fell(job, cause)
        self._cancelled.discard(job.index)
        del self._running[job.index]
        self._line.result(ChildResult(job.index, kind, result, error, started, time.monotonic()))
        if not self._flush_soon:
            self._flush_soon = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _fell(self, job: ChildJob, cause: BaseException) -> tuple[Kind, bytes]:
        """What became of a job that raised. A `CancelledError` that nobody asked for is one of the job's own, as of a task
        that it cancelled and then awaits."""
        return "cancelled" if job.index in self._cancelled else failure(cause), describe(cause)

    async def _call(self, job: ChildJob) -> bytes:
        task = self._tasks.get(job.type)
        if task is None:
            raise UnknownType(f"this worker has no async task of type {job.type!r}")
        value = await task.function(**task.bind(job.payload))
        return check_size(encode_result(value), self._max_result)

    def _flush(self) -> None:
        self._flush_soon = False
        self._line.flush()


def _socket(fd: int) -> socket.socket:
    return socket.socket(fileno=os.dup(fd))
