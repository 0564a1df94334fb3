"""Concurrent submits share requests.

While a submit request of this process is under way, further submits wait, and the next request carries all of them, as
group commit does in a database. A lone submit is sent at once, on the caller's own thread or task.

Threads share as leader and followers (`ThreadSharing`). A thread that finds no request under way sends its own job. The
others wait, each in a `_Seat`. The thread whose request ends makes the first of them the leader, which sends one batch for
all, gives each its outcome, and names the next leader. So no thread is needed besides those that submit.

Tasks of an event loop do the same with futures (`LoopSharing`), where a background task sends the batches.

Each caller gets its own outcome. Ids make repeats safe, so when the server refuses a whole batch because of one job, the
jobs are sent again one by one.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, NamedTuple

from stoker.client.outcomes import failure
from stoker.client.submission import AcceptedJob, NewJob, Submitted

MAX_JOBS: Final = 10_000
"""The most jobs of a shared request."""
MAX_BYTES: Final = 1024 * 1024
"""The most bytes of a shared request."""
ALONE_BYTES: Final = 64 * 1024
"""A larger job has a request to itself: it would keep the others waiting."""
LOOP_REQUESTS: Final = 1
"""How many submit requests of one loop are under way at once."""
RETURN_SECONDS: Final = 0.0005
"""Within this time one of many threads submits its next job, if they submit job after job."""
_PATIENCE: Final = 1.0 if sys.platform == "win32" else -1.0
"""The timeout of one wait: on Windows Ctrl-C does not interrupt a waiting thread."""


def batch_size(jobs: Iterable[NewJob]) -> int:
    """Return how many of the first jobs one request can carry: within the limits, and no two with the same name."""
    size = number = 0
    names: set[str] = set()
    for job in jobs:
        size += len(job.body)
        if number and (number == MAX_JOBS or size > MAX_BYTES or not names.isdisjoint(job.names)):
            break
        names.update(job.names)
        number += 1
    return number


# --- threads ---------------------------------------------------------------------------------------------


class _Seat:
    """A thread that submits a job: it sends the job itself, or waits for another thread to send it."""

    __slots__ = ("batch", "gate", "job", "outcome")

    def __init__(self, job: NewJob) -> None:
        self.job = job
        self.gate = threading.Lock()
        """Held until there is an outcome, or a batch to lead."""
        self.gate.acquire()
        self.batch: list[_Seat] | None = None
        """The seats that this thread sends for, its own first; None for a thread that follows."""
        self.outcome: Submitted | None = None

    def wait(self) -> None:
        while not self.gate.acquire(timeout=_PATIENCE):
            pass


class ThreadSharing:
    """The submits of all threads to one server."""

    def __init__(
        self, send_one: Callable[[NewJob], AcceptedJob], send_many: Callable[[list[NewJob]], list[Submitted]]
    ) -> None:
        """`send_one` raises errors; `send_many` returns them, one outcome for each job."""
        self._send_one = send_one
        self._send_many = send_many
        self.forget()

    def forget(self) -> None:
        """Start anew in a forked child, where the other threads do not exist."""
        self._mutex = threading.Lock()
        self._sender: _Seat | None = None
        """The thread whose request is under way."""
        self._seats: list[_Seat] = []
        self._inside: set[int] = set()
        """The idents of the threads that are in `submit`."""
        self._expected = 0
        self._gathered = threading.Event()
        """Set when as many seats are taken as are expected."""

    def submit(self, job: NewJob) -> AcceptedJob:
        """Wait until the job is stored, or raise why it is not."""
        me = threading.get_ident()
        # A signal handler or a destructor may submit while its own thread does, and cannot wait for that to end.
        if len(job.body) > ALONE_BYTES or me in self._inside:
            return self._send_one(job)
        seat = _Seat(job)
        try:
            self._inside.add(me)
            with self._mutex:
                if first := self._sender is None:
                    self._sender = seat
                else:
                    self._seats.append(seat)
                    if len(self._seats) == self._expected:
                        self._gathered.set()
            if first:
                return self._send_one(job)
            seat.wait()
            if seat.batch is not None:
                self._lead(seat, seat.batch)
        finally:
            try:
                if seat.outcome is None or self._sender is seat:
                    self._leave(seat)
            except BaseException:
                self._leave(seat)  # a signal handler raised in it, and the other threads wait
                raise
            finally:
                self._inside.discard(me)
        outcome = seat.outcome
        assert outcome is not None  # noqa: S101 - the gate opens for nothing else
        return outcome if isinstance(outcome, AcceptedJob) else outcome.give()

    def _lead(self, leader: _Seat, batch: list[_Seat]) -> None:
        outcomes = self._send_many([seat.job for seat in batch])
        for seat, outcome in zip(batch, outcomes, strict=True):
            seat.outcome = outcome
        for seat in batch:
            if seat is not leader:
                seat.gate.release()
        leader.batch = None
        self._gather(len(batch) - 1)

    def _gather(self, told: int) -> None:
        """Let the threads that have just been told go first, so that what they submit next is part of the next request. Wait
        until all have come back, or none comes any more."""
        with self._mutex:
            came = len(self._seats)
            self._expected = told
            self._gathered.clear()
        while came < told and not self._gathered.wait(RETURN_SECONDS) and came < len(self._seats):
            came = len(self._seats)

    def _leave(self, seat: _Seat) -> None:
        """Take a thread out. If it was the sender, the first waiting thread sends for all.

        A signal handler may have raised anywhere, also in here. So this may be called again, and what must not be torn apart
        stands in lines between which Python runs no handler. A batch that was not sent is passed on; ids make sending it
        twice harmless.
        """
        with self._mutex:
            if self._sender is not seat:
                if seat in self._seats:
                    self._seats.remove(seat)
                return
            others = [other for other in seat.batch or () if other is not seat]
            for other in others:
                if other.outcome is not None and other.gate.locked():
                    other.gate.release()
            unsent = [other for other in others if other.outcome is None]
            self._seats[:0] = unsent
            seat.batch = None
            number = batch_size(other.job for other in self._seats)
            if number == 0:
                self._sender = None
                return
            batch = self._seats[:number]
            leader = batch[0]
            del self._seats[:number]
            leader.batch = batch
            self._sender = leader
            leader.gate.release()


# --- event loops -----------------------------------------------------------------------------------------


class _Waiting(NamedTuple):
    job: NewJob
    future: asyncio.Future[Submitted]


class LoopSharing:
    """The submits of all tasks of one event loop to one server."""

    def __init__(
        self,
        send_one: Callable[[NewJob], Coroutine[Any, Any, AcceptedJob]],
        send_many: Callable[[list[NewJob]], Coroutine[Any, Any, list[Submitted]]],
    ) -> None:
        self._send_one = send_one
        self._send_many = send_many
        self._under_way = 0
        self._waiting: list[_Waiting] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, job: NewJob) -> AcceptedJob:
        """Wait until the job is stored, or raise why it is not."""
        if len(job.body) > ALONE_BYTES:
            return await self._send_one(job)
        if self._under_way >= LOOP_REQUESTS:
            future: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
            self._waiting.append(_Waiting(job, future))
            outcome = await future
            return outcome if isinstance(outcome, AcceptedJob) else outcome.give()
        self._under_way += 1
        try:
            return await self._send_one(job)
        finally:
            self._hand_on()

    def _hand_on(self) -> None:
        """Send the waiting jobs, after a request has ended. A submit whose task was cancelled meanwhile is not sent."""
        waiting = [place for place in self._waiting if not place.future.done()]
        if not waiting:
            self._waiting = waiting
            self._under_way -= 1
            return
        number = batch_size(place.job for place in waiting)
        batch, self._waiting = waiting[:number], waiting[number:]
        task = asyncio.get_running_loop().create_task(self._send(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, batch: list[_Waiting]) -> None:
        try:
            outcomes = await self._send_many([place.job for place in batch])
        except Exception as error:  # noqa: BLE001 - each caller raises it
            outcomes = [failure(error)] * len(batch)
        except BaseException:
            for place in batch:
                place.future.cancel()
            self._hand_on()
            raise
        for place, outcome in zip(batch, outcomes, strict=True):
            if not place.future.done():
                place.future.set_result(outcome)
        # The tasks that have just got their outcomes run first, so that what they submit is part of the next request.
        asyncio.get_running_loop().call_soon(self._hand_on)
