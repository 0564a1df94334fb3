"""Waits for jobs: all waits of a process share one or two connections.

A wait registers the ids of its jobs with a `Receiver`: that of a thread (`ThreadReceiver`), of an event loop
(`LoopReceiver`) or of an `async for` (`StreamReceiver`). The courier, a thread with an event loop and connections of its
own, asks the server for all of them (`POST /jobs/wait`) and hands out the outcomes. It starts with the first wait and ends
after a while without any.

The server holds a request until a job has ended, so ids that come meanwhile need another request. There are two: a long one
with older ids, and a short one, which is cancelled and sent again together with new ids. When the short one has grown, both
are cancelled and sent as one. So each id is sent only a few times, however many there are.

A single blocking wait sends its own request, without the courier: most programs need no more than that.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import math
import queue
import sys
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from stoker.client.courier import Courier
from stoker.client.errors import ConnectionFailed
from stoker.client.outcomes import Outcome, WaitFailure, can_share, last_look, value_of
from stoker.client.requests import JobInfo, check_timeout, wait_for_end
from stoker.system import SYSTEM

if TYPE_CHECKING:
    from stoker.client.transport import Transport

LOOKS: Final = 2
"""How many waits of an event loop may ask for their job at once when their time is up."""
_PATIENCE: Final = 1.0 if sys.platform == "win32" else threading.TIMEOUT_MAX
"""The timeout of one wait: on Windows Ctrl-C does not interrupt a waiting thread."""


class Receiver(Protocol):
    """Gets the outcomes of the jobs that a thread or an event loop waits for."""

    @property
    def gone(self) -> bool:
        """Return whether outcomes cannot be delivered any more."""
        ...

    def take(self, outcomes: Mapping[str, Outcome]) -> None:
        """Take the outcomes of jobs, by id; none if the time is up. Called by the courier; must not block."""
        ...


def seconds_left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def deadline_of(timeout: float | None) -> float | None:
    """Return when a wait that begins now times out; None for never."""
    return None if timeout is None or timeout == math.inf else time.monotonic() + timeout


class ThreadReceiver:
    """A thread that waits for one job or many."""

    gone = False

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Mapping[str, Outcome]] = queue.SimpleQueue()

    def take(self, outcomes: Mapping[str, Outcome]) -> None:
        self._queue.put(outcomes)

    def next(self, deadline: float | None) -> Mapping[str, Outcome] | None:
        """Return the next outcomes, or None when the time is up."""
        while True:
            left = seconds_left(deadline)
            try:
                return self._queue.get(timeout=_PATIENCE if left is None else min(left, _PATIENCE))
            except queue.Empty:
                if left is not None and seconds_left(deadline) == 0:
                    return None


class StreamReceiver:
    """A coroutine that waits for many jobs."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Mapping[str, Outcome]] = asyncio.Queue()

    @property
    def gone(self) -> bool:
        return self._loop.is_closed()

    def take(self, outcomes: Mapping[str, Outcome]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(self._queue.put_nowait, outcomes)

    async def next(self, deadline: float | None) -> Mapping[str, Outcome] | None:
        """Return the next outcomes, or None when the time is up."""
        try:
            async with asyncio.timeout(seconds_left(deadline)):
                return await self._queue.get()
        except TimeoutError:
            return None


class LoopReceiver:
    """All the waits of one event loop for one job each."""

    def __init__(self, waits: ClientWaits, loop: asyncio.AbstractEventLoop) -> None:
        self._waits = waits
        self._loop = weakref.ref(loop)
        self._futures: dict[str, list[asyncio.Future[Outcome]]] = {}
        self._new: list[str] = []
        self.looks = asyncio.Semaphore(LOOKS)

    @property
    def gone(self) -> bool:
        loop = self._loop()
        return loop is None or loop.is_closed()

    def future(self, job_id: str) -> asyncio.Future[Outcome]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        known = self._futures.get(job_id)
        if known is not None:
            known.append(future)
            return future
        self._futures[job_id] = [future]
        # Waits that begin in one turn of the loop are registered together.
        if not self._new:
            loop.call_soon(self._tell)
        self._new.append(job_id)
        return future

    def drop(self, job_id: str, future: asyncio.Future[Outcome]) -> None:
        """Forget a future that its caller no longer awaits."""
        futures = self._futures.get(job_id)
        if futures is None or future not in futures:
            return
        futures.remove(future)
        if not futures:
            del self._futures[job_id]
            self._waits.remove([job_id], self)

    def take(self, outcomes: Mapping[str, Outcome]) -> None:
        loop = self._loop()
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it was closed
                loop.call_soon_threadsafe(self._deliver, outcomes)

    def _tell(self) -> None:
        new, self._new = self._new, []
        self._waits.add([job_id for job_id in dict.fromkeys(new) if job_id in self._futures], self)

    def _deliver(self, outcomes: Mapping[str, Outcome]) -> None:
        for job_id, outcome in outcomes.items():
            for future in self._futures.pop(job_id, ()):
                if not future.done():
                    future.set_result(outcome)


class ClientWaits:
    """The registry of all waits for jobs of one server: which receivers wait for which job."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._direct = threading.Lock()
        """Held by the one thread that waits without the courier."""
        self._receivers: dict[str, list[Receiver]] = {}
        self._arrived: list[str] = []
        self._courier: Courier | None = None
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopReceiver] = (
            weakref.WeakKeyDictionary()
        )

    def wait(self, job_id: str, timeout: float | None) -> JobInfo:
        """Wait until the job has ended and return it. Raises `ResultTimeout`."""
        check_timeout(timeout)
        alone = not can_share(job_id) or (timeout is not None and not timeout > 0)
        if alone or self._direct.acquire(blocking=False):
            try:
                return self._transport.run(wait_for_end(job_id, timeout))
            finally:
                if not alone:
                    self._direct.release()
        job_id = job_id.lower()
        receiver = ThreadReceiver()
        self.add([job_id], receiver)
        try:
            outcomes = receiver.next(deadline_of(timeout))
        finally:
            self.remove([job_id], receiver)
        if outcomes is None and timeout is not None:
            return self._transport.run(last_look(job_id, timeout))
        return value_of((outcomes or {})[job_id])

    async def wait_async(self, job_id: str, timeout: float | None) -> JobInfo:
        """Wait as `wait` does, without blocking the loop."""
        check_timeout(timeout)
        if not can_share(job_id):
            return await self._transport.run_async(wait_for_end(job_id, timeout))
        job_id = job_id.lower()
        mine = self._of_loop()
        if timeout is not None and timeout <= 0:
            return await self._look(mine, job_id, timeout)
        future = mine.future(job_id)
        try:
            async with asyncio.timeout(seconds_left(deadline_of(timeout))):
                outcome = await future
        except TimeoutError:
            return await self._look(mine, job_id, timeout or 0)
        finally:
            mine.drop(job_id, future)
        return value_of(outcome)

    async def _look(self, mine: LoopReceiver, job_id: str, timeout: float) -> JobInfo:
        async with mine.looks:
            return await self._transport.run_async(last_look(job_id, timeout))

    def _of_loop(self) -> LoopReceiver:
        loop = asyncio.get_running_loop()
        mine = self._loops.get(loop)
        if mine is None:
            mine = self._loops[loop] = LoopReceiver(self, loop)
        return mine

    def add(self, job_ids: Iterable[str], receiver: Receiver, timeout: float | None = None) -> None:
        """Tell the receiver when these jobs have ended. The receiver keeps the timeout; in the test kit, where time is
        virtual, it is kept here."""
        with self._lock:
            for job_id in job_ids:
                known = self._receivers.get(job_id)
                if known is None:
                    self._receivers[job_id] = [receiver]
                    self._arrived.append(job_id)
                elif receiver not in known:
                    known.append(receiver)
            courier = self._courier
            if courier is None and self._arrived:
                courier = self._courier = Courier(self, self._transport)
                courier.start()
        if courier is not None:
            courier.wake()

    def remove(self, job_ids: Iterable[str], receiver: Receiver) -> None:
        """Stop telling the receiver about these jobs."""
        with self._lock:
            for job_id in job_ids:
                known = self._receivers.get(job_id)
                if known is not None and receiver in known:
                    known.remove(receiver)
                    if not known:
                        del self._receivers[job_id]
            courier = None if self._receivers else self._courier
        if courier is not None:
            courier.wake()

    def close(self) -> None:
        """End all waits with an error."""
        with self._lock:
            courier, self._courier = self._courier, None
            receivers, self._receivers = self._receivers, {}
            self._arrived = []
        if courier is not None:
            courier.stop()
        url = self._transport.url
        closed = WaitFailure(lambda: ConnectionFailed(url, "this client was closed meanwhile"))
        for job_id, waiting in receivers.items():
            for receiver in waiting:
                receiver.take({job_id: closed})

    def forget(self) -> None:
        """Start anew in a forked child, where the courier and its connections do not exist."""
        self._begin()

    # --- for the courier

    def arrived(self) -> list[str]:
        """Return the ids that were added since the last call."""
        with self._lock:
            arrived, self._arrived = self._arrived, []
        return arrived

    def wanted(self, job_ids: Iterable[str]) -> dict[str, None]:
        """Return those of the ids that a receiver waits for."""
        return {job_id: None for job_id in job_ids if job_id in self._receivers}

    def any_wanted(self, job_ids: Iterable[str]) -> bool:
        return any(job_id in self._receivers for job_id in job_ids)

    def prune(self) -> None:
        """Remove receivers whose event loop was closed while they waited."""
        with self._lock:
            for job_id, receivers in list(self._receivers.items()):
                here = [receiver for receiver in receivers if not receiver.gone]
                if here:
                    self._receivers[job_id] = here
                else:
                    del self._receivers[job_id]

    def settle(self, outcomes: Mapping[str, Outcome]) -> None:
        """Pass the outcomes to all receivers that wait for these jobs."""
        told: defaultdict[Receiver, dict[str, Outcome]] = defaultdict(dict)
        with self._lock:
            for job_id, outcome in outcomes.items():
                for receiver in self._receivers.pop(job_id, ()):
                    told[receiver][job_id] = outcome
        for receiver, part in told.items():
            receiver.take(part)

    def retire(self, courier: Courier) -> bool:
        """Return whether the courier may end: no receiver waits, or another courier has taken over."""
        with self._lock:
            if self._receivers and self._courier is courier:
                return False
            if self._courier is courier:
                self._courier = None
            return True


_all: weakref.WeakSet[ClientWaits] = weakref.WeakSet()


def _forget_all() -> None:
    for waits in list(_all):
        waits.forget()


def _close_all() -> None:
    for waits in list(_all):
        waits.close()


SYSTEM.after_fork_in_child(_forget_all)
atexit.register(_close_all)
