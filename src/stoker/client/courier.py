"""The courier: one thread that asks the server for all jobs that a client waits for (see `stoker.client.waits`)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from stoker.client.errors import NotFound, ProblemError, Unavailable
from stoker.client.outcomes import (
    MAX_IDS,
    Outcome,
    WaitAnswer,
    failure,
    lacks_endpoint,
    outcomes_of,
    wait_request,
)
from stoker.client.requests import WAIT_MAX_SECONDS, JobInfo, get_job

if TYPE_CHECKING:
    from stoker.client.transport import Transport
    from stoker.client.waits import ClientWaits

REQUESTS: Final = 2
YOUNG_IDS: Final = 500
"""A short request with more ids than this is merged with the long one."""
GATHER_SECONDS_PER_ID: Final = 0.00005
CROWDED_HOLD_SECONDS: Final = 1.0
"""How long the server holds a request while there are more ids than the requests can carry: they take turns."""
IDLE_SECONDS: Final = 5.0
EARLY_PAUSE_SECONDS: Final = 0.1
"""The pause after an answer without ended jobs that came early, as from a coordinator that stops."""
OLD_SERVER_PAUSE_SECONDS: Final = 0.5
BUSY_TRIES: Final = 10
"""How many times in a row a server may answer that it is busy."""


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
        """Wake the courier. One that has just started needs no waking."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed
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
        """Hand out answers, send new ids, and wait for a change. Return False when no receiver waits."""
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
        """Send the idle ids. When both requests are under way, first recall one or both of them, but not too often."""
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
        """Return the requests to recall and send again together with the idle ids."""
        if crowded:  # ids take turns from now on
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
        """Cancel requests. An answer that has already come is still handed out."""
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        for request in requests:
            if request.cancelled():
                self._idle.update(dict.fromkeys(self._requests.pop(request).ids))
            else:
                self._hand_out(request)

    async def _ask(self, ids: list[str], hold_seconds: float) -> Mapping[str, Outcome]:
        """Send one request; return the outcomes of those jobs that have ended."""
        try:
            began = time.monotonic()
            answer = await self._answer(ids, hold_seconds)
        except Exception as error:  # noqa: BLE001 - raised in all waits for these jobs
            return dict.fromkeys(ids, failure(error))
        outcomes = outcomes_of(answer)
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
        """Ask an older server for one job at a time."""
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
