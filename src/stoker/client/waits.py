"""Waits for jobs: all those of a process together, so that any number of them takes one or two connections.

A wait registers the ids of its jobs with a `Receiver`: that of a thread (`ThreadReceiver`) or of an event loop
(`LoopReceiver`). A courier, which is a thread with an event loop and connections of its own, asks the server for all of
them (`POST /jobs/wait`) and hands out what has ended. It starts with the first wait and leaves when there was nothing to
wait for in a while.

The server holds a request until something has ended, so ids that come meanwhile need a request of their own. There are two:
a long one with what has been waited for in a while, and a short one, which is recalled and sent again together with what is
new. When the short one has grown, both are recalled and sent as one. So each id is sent a few times, however many there are.

A single blocking wait asks for itself, without a courier: most programs have no more than that.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import math
import queue
import re
import sys
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

import msgspec

from stoker.client.errors import ConnectionFailed, NotFound, Problem, ProblemError, Unavailable
from stoker.client.requests import (
    WAIT_MAX_SECONDS,
    ApiRequest,
    Conversation,
    JobInfo,
    check_timeout,
    get_job,
    timed_out,
    wait_for_end,
)
from stoker.system import SYSTEM

if TYPE_CHECKING:
    from stoker.client.transport import Transport

MAX_IDS: Final = 10_000
"""In one request."""
REQUESTS: Final = 2
YOUNG_IDS: Final = 500
"""A short request that has more than this is sent together with the long one."""
GATHER_SECONDS_PER_ID: Final = 0.00005
CROWDED_HOLD_SECONDS: Final = 1.0
"""How long the server holds a request while there are more ids than the requests can carry: they take turns."""
IDLE_SECONDS: Final = 5.0
EARLY_PAUSE_SECONDS: Final = 0.1
"""After an answer without news that came before its time, such as that of a coordinator that stops."""
OLD_SERVER_PAUSE_SECONDS: Final = 0.5
BUSY_TRIES: Final = 10
"""So many times in a row a server may say that it is busy."""
LOOKS: Final = 2
"""How many waits of an event loop whose time is up look at their jobs at once."""
_PATIENCE: Final = 1.0 if sys.platform == "win32" else threading.TIMEOUT_MAX
"""A thread that waits on Windows does not hear Ctrl-C."""

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class WaitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `POST /jobs/wait`."""

    jobs: list[JobInfo]
    pending: int
    missing: list[str] = []
    counts: dict[str, int] = {}


class WaitFailure(msgspec.Struct, frozen=True):
    """Why a wait failed. Each who waits gets an exception of its own: a traceback belongs to one."""

    error: Callable[[], Exception]

    def give(self) -> NoReturn:
        raise self.error()


Outcome = JobInfo | WaitFailure


class Receiver(Protocol):
    """Gets the outcomes of the jobs that a thread or an event loop waits for."""

    @property
    def gone(self) -> bool:
        """Whether outcomes cannot be delivered any more."""
        ...

    def take(self, outcomes: Mapping[str, Outcome]) -> None:
        """Take the outcomes of jobs, by id. Called by the courier; must not block."""
        ...


# --- pure parts ------------------------------------------------------------------------------------------


def wait_request(ids: Collection[str], seconds: float, limit: int | None = None) -> ApiRequest:
    """Ask for those of these jobs that have ended."""
    more = b"" if limit is None else b',"limit":%d' % limit
    body = b'{"ids":["%b"],"timeout_sec":%g%b}' % ('","'.join(ids).encode(), seconds, more)
    return ApiRequest(
        method="POST",
        path="/jobs/wait",
        body=body,
        answer=WaitAnswer,
        repeatable=True,
        wait_seconds=seconds,
    )


def can_share(job_id: str) -> bool:
    """Whether the id looks like one. One that does not is asked for alone: it must not fail the request of others."""
    return _UUID.fullmatch(job_id) is not None


def value_of(outcome: Outcome) -> JobInfo:
    """The job, or the reason why it is not known."""
    return outcome if isinstance(outcome, JobInfo) else outcome.give()


def seconds_left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def deadline_of(timeout: float | None) -> float | None:
    """When a wait that begins now is over; None for never."""
    return None if timeout is None or timeout == math.inf else time.monotonic() + timeout


def last_look(job_id: str, timeout: float) -> Conversation[JobInfo]:
    """The job if it has ended by now. Raises `ResultTimeout`."""
    job: JobInfo = yield get_job(job_id)
    if job.is_final:
        return job
    raise (yield from timed_out(job, timeout))


def lacks_endpoint(error: ProblemError) -> bool:
    """Whether the server is of a release before `POST /jobs/wait`, where that path is the one of a job."""
    return error.status in (404, 405)


def failure(error: Exception) -> WaitFailure:
    match error:
        case ConnectionFailed():
            return WaitFailure(lambda: ConnectionFailed(error.url, error.reason, error.job_id))
        case ProblemError():
            problem = Problem(error.title, error.detail, error.type, error.request_id, error.errors)
            return WaitFailure(lambda: type(error)(error.status, problem, error.retry_after))
    return WaitFailure(lambda: error)


def _missing(job_id: str) -> WaitFailure:
    problem = Problem("There is no such thing", f"there is no job {job_id}", "urn:stoker:problem:not-found")
    return WaitFailure(lambda: NotFound(404, problem))


def _outcomes(answer: WaitAnswer) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {job.id: job for job in answer.jobs if job.is_final}
    found.update((job_id, _missing(job_id)) for job_id in answer.missing)
    return found


# --- those who wait --------------------------------------------------------------------------------------


class ThreadReceiver:
    """A thread that waits for one job or many."""

    gone = False

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Mapping[str, Outcome]] = queue.SimpleQueue()

    def take(self, outcomes: Mapping[str, Outcome]) -> None:
        self._queue.put(outcomes)

    def next(self, deadline: float | None) -> Mapping[str, Outcome] | None:
        """The next outcomes; None when the time is up."""
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
        """The next outcomes; None when the time is up."""
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
        # Those who begin to wait in one turn of the loop are told to the courier together.
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


# --- the registry ----------------------------------------------------------------------------------------


class ClientWaits:
    """Who waits for which jobs of one server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._direct = threading.Lock()
        """Held by the thread that asks for itself."""
        self._receivers: dict[str, list[Receiver]] = {}
        self._arrived: list[str] = []
        self._courier: Courier | None = None
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopReceiver] = (
            weakref.WeakKeyDictionary()
        )

    def wait(self, job_id: str, timeout: float | None) -> JobInfo:
        """The job when it has ended. Raises `ResultTimeout`."""
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
        """The same, without blocking the loop."""
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

    def add(self, job_ids: Iterable[str], receiver: Receiver) -> None:
        """Tell the receiver when these jobs have ended."""
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
        """The receiver does not wait for these jobs any more."""
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
        """Give up all waits, with an error for those who wait."""
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
        """In a child process: the courier and its connections stayed with the parent."""
        self._begin()

    # --- for the courier

    def arrived(self) -> list[str]:
        """Ids that came since the last time."""
        with self._lock:
            arrived, self._arrived = self._arrived, []
        return arrived

    def wanted(self, job_ids: Iterable[str]) -> dict[str, None]:
        """Return those of the ids that a receiver waits for."""
        return {job_id: None for job_id in job_ids if job_id in self._receivers}

    def any_wanted(self, job_ids: Iterable[str]) -> bool:
        return any(job_id in self._receivers for job_id in job_ids)

    def prune(self) -> None:
        """Forget those who cannot be told any more: loops that were closed under their waits."""
        with self._lock:
            for job_id, receivers in list(self._receivers.items()):
                here = [receiver for receiver in receivers if not receiver.gone]
                if here:
                    self._receivers[job_id] = here
                else:
                    del self._receivers[job_id]

    def settle(self, outcomes: Mapping[str, Outcome]) -> None:
        """Tell everybody who waits."""
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


# --- the courier -----------------------------------------------------------------------------------------


class _Asked(msgspec.Struct, frozen=True):
    ids: Collection[str]
    hold_seconds: float


class Courier:
    """Asks the server for all jobs that receivers wait for."""

    def __init__(self, waits: ClientWaits, transport: Transport) -> None:
        self._waits = waits
        self._transport = transport
        self._thread = threading.Thread(target=self._main, name="stoker-waits", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._stopped = False
        self._idle: dict[str, None] = {}
        """Ids that are in no request."""
        self._requests: dict[asyncio.Task[Mapping[str, Outcome]], _Asked] = {}
        self._recall_at: float | None = None
        self._old_server = False

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """There is something to do. A courier that has just started looks by itself."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has left
                self._loop.call_soon_threadsafe(self._news.set)

    def stop(self) -> None:
        self._stopped = True
        self.wake()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=2)

    def _main(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            while not self._stopped and await self._turn():
                pass
        finally:
            await self._recall(list(self._requests))
            await self._transport.aclose_loop()

    async def _turn(self) -> bool:
        """Hand out what came, ask for what is new, and wait for something to happen. Return False when no receiver waits."""
        self._news.clear()
        for request in [request for request in self._requests if request.done()]:
            self._hand_out(request)
        self._idle.update(dict.fromkeys(self._waits.arrived()))
        self._idle = self._waits.wanted(self._idle)
        if self._idle:
            await self._send()
        elif self._requests and not any(
            self._waits.any_wanted(asked.ids) for asked in self._requests.values()
        ):
            await self._recall(list(self._requests))
            return True
        try:
            async with asyncio.timeout(None if self._requests or self._idle else IDLE_SECONDS):
                await self._news.wait()
        except TimeoutError:
            return not self._waits.retire(self)
        return True

    def _hand_out(self, request: asyncio.Task[Mapping[str, Outcome]]) -> None:
        asked = self._requests.pop(request)
        error = request.exception()
        outcomes = (
            dict.fromkeys(asked.ids, failure(error)) if isinstance(error, Exception) else request.result()
        )
        if not outcomes:
            self._waits.prune()
        self._waits.settle(outcomes)
        self._idle.update((job_id, None) for job_id in asked.ids if job_id not in outcomes)

    async def _send(self) -> None:
        """Send what is in no request, if there is room, or make room when its time has come."""
        loop = asyncio.get_running_loop()
        crowded = (
            len(self._idle) + sum(len(asked.ids) for asked in self._requests.values()) > REQUESTS * MAX_IDS
        )
        if len(self._requests) == REQUESTS:
            recalled = self._to_recall(crowded=crowded)
            if not recalled:
                return
            size = sum(len(self._requests[request].ids) for request in recalled)
            if self._recall_at is None:
                self._recall_at = loop.time() + size * GATHER_SECONDS_PER_ID
                loop.call_at(self._recall_at, self._news.set)
            if loop.time() < self._recall_at:
                return
            await self._recall(recalled)
        self._recall_at = None
        hold = CROWDED_HOLD_SECONDS if crowded else WAIT_MAX_SECONDS
        while self._idle and len(self._requests) < REQUESTS:
            ids = list(self._idle)[:MAX_IDS]
            for job_id in ids:
                del self._idle[job_id]
            request = loop.create_task(self._ask(ids, hold))
            request.add_done_callback(lambda _: self._news.set())
            self._requests[request] = _Asked(ids, hold)

    def _to_recall(self, *, crowded: bool) -> list[asyncio.Task[Mapping[str, Outcome]]]:
        """Which requests to send anew together with what is idle."""
        if crowded:  # they take turns from now on
            return [
                request
                for request, asked in self._requests.items()
                if asked.hold_seconds > CROWDED_HOLD_SECONDS
            ]
        short, long = sorted(self._requests, key=lambda request: len(self._requests[request].ids))
        young = len(self._idle) + len(self._requests[short].ids)
        if young <= YOUNG_IDS or young + len(self._requests[long].ids) > MAX_IDS:
            return [short]
        return [short, long]

    async def _recall(self, requests: Collection[asyncio.Task[Mapping[str, Outcome]]]) -> None:
        """Cancel requests; an answer that has come is handed out all the same."""
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        for request in requests:
            if request.cancelled():
                self._idle.update(dict.fromkeys(self._requests.pop(request).ids))
            else:
                self._hand_out(request)

    async def _ask(self, ids: list[str], hold_seconds: float) -> Mapping[str, Outcome]:
        """One request: what became of those of the jobs that have ended."""
        try:
            began = time.monotonic()
            answer = await self._answer(ids, hold_seconds)
        except Exception as error:  # noqa: BLE001 - whatever it was, those who wait must hear of it
            return dict.fromkeys(ids, failure(error))
        outcomes = _outcomes(answer)
        if not outcomes and time.monotonic() - began < min(hold_seconds, EARLY_PAUSE_SECONDS):
            await asyncio.sleep(EARLY_PAUSE_SECONDS)
        return outcomes

    async def _answer(self, ids: list[str], hold_seconds: float) -> WaitAnswer:
        request = wait_request(ids, hold_seconds)
        for tries_left in reversed(range(BUSY_TRIES)):
            if self._old_server:
                break
            try:
                answer: WaitAnswer = await self._transport.send_async(request)
            except Unavailable as error:
                if error.retry_after is None or not tries_left:
                    raise
                await asyncio.sleep(error.retry_after)
            except ProblemError as error:
                if not lacks_endpoint(error):
                    raise
                self._old_server = True
            else:
                return answer
        return await self._one_by_one(ids, hold_seconds)

    async def _one_by_one(self, ids: list[str], hold_seconds: float) -> WaitAnswer:
        """The same from a server that can be asked for one job at a time."""
        jobs: list[JobInfo] = []
        missing: list[str] = []
        for job_id in ids:
            try:
                job: JobInfo = await self._transport.send_async(
                    get_job(job_id, hold_seconds if len(ids) == 1 else 0)
                )
            except NotFound:
                missing.append(job_id)
            else:
                jobs += [job] if job.is_final else []
        if not jobs and not missing and len(ids) > 1:
            await asyncio.sleep(OLD_SERVER_PAUSE_SECONDS)
        return WaitAnswer(jobs=jobs, missing=missing, pending=len(ids) - len(jobs) - len(missing))
