"""Upkeep: sessions that fell silent, jobs whose time has come, rows past their retention.

Any coordinator may run it and none must: each step is one guarded transaction, and doing it twice does nothing twice.

After an outage no worker is given up before heartbeats were possible again for one full timeout. A coordinator that just
started, or that notices it was itself asleep (a paused machine, a blocked loop), or that the store's clock was set, which
is the one that judges, starts that count anew.

A clock that was ahead and is set right leaves times behind that lie too far ahead: retries would wait for hours, and the
sessions of dead workers would look alive. After a start, and whenever that count starts anew, these times are corrected.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from stoker.clock import SECOND, Clock
from stoker.coordinator.observers import JobObserver, Observers
from stoker.domain.errors import StoreUnavailable
from stoker.domain.lifecycle import Status
from stoker.domain.retry import RetryPolicy
from stoker.store.base import Store
from stoker.store.outcomes import Finish
from stoker.store.schedules import ScheduleChanged
from stoker.store.submissions import Accepted
from stoker.store.upkeep import Retention

TICK_SECONDS: Final = 0.5
ASLEEP_SECONDS: Final = 3.0
PROMOTE_BATCH: Final = 1_000
CORRECT_BATCH: Final = 1_000
OVERDUE_BATCH: Final = 500
PURGE_BATCH: Final = 500
PURGE_BATCHES: Final = 20
PURGE_EVERY_SECONDS: Final = 30.0

log = structlog.get_logger()


class Upkeep(JobObserver):
    """The periodic work of a coordinator. As an observer it learns of jobs that become due before it would look."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        heartbeat_timeout_sec: float,
        policy: RetryPolicy,
        retention: Retention,
        wake: Callable[[], None],
        observers: Observers,
        in_doubt: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._clock = clock
        self._timeout_sec = heartbeat_timeout_sec
        self._policy = policy
        self._retention = retention
        self._wake_dispatch = wake
        self._observers = observers
        self._in_doubt = in_doubt
        self._nudge = asyncio.Event()
        self._next_purge = clock.monotonic() + PURGE_EVERY_SECONDS
        self._last_tick = clock.monotonic()
        self._last_wall = store.now_us()
        self._judging_since = self._last_tick
        self._times_in_doubt = True
        """Whether the store's clock may have been set back since its times were last corrected."""

    def nudge(self) -> None:
        """Something was scheduled: look again when to wake."""
        self._nudge.set()

    def accepted(self, accepted: Sequence[Accepted]) -> None:
        for item in accepted:
            if item.batch.template.status == "scheduled":
                self._nudge.set()

    def ended(self, ended: Sequence[tuple[Finish, Status | None]]) -> None:
        if any(status == "scheduled" for _, status in ended):
            self._nudge.set()

    def ticked(self, changed: Sequence[ScheduleChanged]) -> None:
        # A job that its schedule held back may have a later time of its own.
        if any(one.released for one in changed):
            self._nudge.set()

    async def run(self) -> None:
        while True:
            try:
                await self._check_heartbeats()
                await self.tick()
            except Exception as error:
                log.error(
                    "upkeep_failed", detail=str(error), exc_info=not isinstance(error, StoreUnavailable)
                )
                self._doubt(self._clock.monotonic())
                self._nudge.clear()
                await self._rest(TICK_SECONDS)  # whatever is due: it cannot be queued now
                continue
            await self._pause()

    async def _check_heartbeats(self) -> None:
        """Raise when no heartbeat can be stored. One that holds nothing tells that a server is away or read-only; a full
        disk is found by a real write, which is made when the last one failed."""
        if self._in_doubt():
            await self._store.probe()
        else:
            await self._store.renew([])

    async def tick(self) -> None:
        self._notice_sleep()
        if self._times_in_doubt:
            await self._correct_times()
        await self._promote()
        await self._end_overdue()
        if self._clock.monotonic() - self._judging_since >= self._timeout_sec:
            await self._expire()
        if self._clock.monotonic() >= self._next_purge:
            await self._purge()

    def _notice_sleep(self) -> None:
        mono, wall = self._clock.monotonic(), self._store.now_us()
        slept = mono - self._last_tick
        jumped = abs((wall - self._last_wall) / SECOND - slept)
        self._last_tick, self._last_wall = mono, wall
        if slept > ASLEEP_SECONDS or jumped > ASLEEP_SECONDS:
            log.warning("upkeep_asleep", seconds=round(slept, 3), clock_jump_seconds=round(jumped, 3))
            self._doubt(mono)

    def _doubt(self, mono: float) -> None:
        """Judge no session for one timeout from here, and look for times that a wrong clock wrote."""
        self._judging_since = mono
        self._times_in_doubt = True

    async def _correct_times(self) -> None:
        self._times_in_doubt = False  # a jump that is noticed meanwhile is in doubt again
        corrected = 0
        while (count := await self._store.correct_times(CORRECT_BATCH)) == CORRECT_BATCH:
            corrected += count
        corrected += count
        if corrected:
            log.warning("retries_brought_forward", jobs=corrected)

    async def _promote(self) -> None:
        due = await self._store.next_due_at()
        while due is not None and due <= self._store.now_us():
            count = await self._store.promote(PROMOTE_BATCH)
            if count == 0:
                return
            self._wake_dispatch()
            self._observers.changed_many(count)
            due = await self._store.next_due_at()

    async def _end_overdue(self) -> None:
        """End jobs whose expiry or deadline passed while they waited."""
        at = await self._store.next_limit_at()
        while at is not None and at <= self._store.now_us():
            ended = await self._store.end_overdue(OVERDUE_BATCH)
            if ended:
                self._observers.overdue(ended)
            later = await self._store.next_limit_at()
            if not ended and later == at:  # another transaction has them
                return
            at = later

    async def _expire(self) -> None:
        # Who is silent is decided here, as a point in time: if this process stands still before the transaction, that must
        # not make all workers look silent.
        self._notice_sleep()
        if self._clock.monotonic() - self._judging_since < self._timeout_sec:
            return
        since = self._store.now_us() - int(self._timeout_sec * SECOND)
        expired = await self._store.expire(since, self._policy)
        if expired.sessions or expired.losses:
            self._observers.expired(expired)
            self._wake_dispatch()

    async def _purge(self) -> None:
        # A full batch means that more is waiting. Other writes happen in between; after `PURGE_BATCHES` the other steps of
        # upkeep have their turn.
        for _ in range(PURGE_BATCHES):
            if await self._store.purge(self._retention, PURGE_BATCH) < PURGE_BATCH:
                self._next_purge = self._clock.monotonic() + PURGE_EVERY_SECONDS
                return

    async def _pause(self) -> None:
        self._nudge.clear()
        seconds = TICK_SECONDS
        due = await self._next_due()
        if due is not None:
            seconds = min(seconds, max(0.0, (due - self._store.now_us()) / SECOND))
        await self._rest(seconds)

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._nudge.wait()
        except TimeoutError:
            pass

    async def _next_due(self) -> int | None:
        try:
            return await self._store.next_due_at()
        except Exception:  # noqa: BLE001 - the next tick meets the same error and says so
            return None
