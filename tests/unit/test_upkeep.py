"""Upkeep: when somebody may be given up, when jobs become due, when rows are deleted."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from stoker.clock import SECOND
from stoker.coordinator.observers import JobObserver, Observers
from stoker.coordinator.upkeep import (
    CORRECT_BATCH,
    PROMOTE_BATCH,
    PURGE_BATCH,
    PURGE_EVERY_SECONDS,
    TICK_SECONDS,
    Upkeep,
)
from stoker.domain.errors import StoreUnavailable
from stoker.domain.job import Job
from stoker.domain.retry import RetryPolicy
from stoker.store.sessions import Expired, Renewal
from stoker.store.upkeep import Retention
from tests.support.clock import FakeClock
from tests.support.jobs import a_job
from tests.support.turns import until

TIMEOUT = 10.0


class FakeStore:
    """Counts what upkeep asks for. `due` jobs wait at `due_at`; `broken` is raised by every verb, `unwritable` by what
    every heartbeat needs."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.ahead_us = 0
        """How far a server's own clock is ahead of this machine's."""
        self.due: list[int] = []
        self.limits: list[int] = []
        self.old = 0
        self.silent: list[str] = []
        self.far_retries = 0
        self.corrected_at: list[float] = []
        self.expired_at: list[float] = []
        self.purged_at: list[float] = []
        self.asked = 0
        self.broken: Exception | None = None
        self.unwritable: Exception | None = None
        self.full: Exception | None = None
        """Raised by what really writes: a heartbeat that holds nothing does not."""

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken

    def now_us(self) -> int:
        return self._clock.now_us() + self.ahead_us

    async def next_limit_at(self) -> int | None:
        self._check()
        return self.limits[0] if self.limits else None

    async def end_overdue(self, limit: int) -> list[Job]:
        over = [at for at in self.limits if at <= self.now_us()][:limit]
        self.limits = self.limits[len(over) :]
        return [a_job(id=f"late-{at}") for at in over]

    async def next_due_at(self) -> int | None:
        self.asked += 1
        self._check()
        return min(self.due, default=None)

    async def promote(self, limit: int) -> int:
        self._check()
        ready = [at for at in sorted(self.due) if at <= self.now_us()][:limit]
        for at in ready:
            self.due.remove(at)
        return len(ready)

    async def correct_times(self, limit: int) -> int:
        self._check()
        self.corrected_at.append(self._clock.monotonic())
        corrected = min(self.far_retries, limit)
        self.far_retries -= corrected
        return corrected

    async def renew(self, renewals: Sequence[Renewal]) -> list[str | None]:
        self.asked += 1
        self._check()
        if self.unwritable is not None:
            raise self.unwritable
        return []

    async def probe(self) -> None:
        self.asked += 1
        if self.full is not None:
            raise self.full

    async def expire(self, since: int, policy: RetryPolicy) -> Expired:
        self._check()
        assert since == self.now_us() - int(TIMEOUT * SECOND)
        self.expired_at.append(self._clock.monotonic())
        silent, self.silent = self.silent, []
        return Expired(silent, [])

    async def purge(self, retention: Retention, limit: int) -> int:
        self._check()
        self.purged_at.append(self._clock.monotonic())
        purged = min(self.old, limit)
        self.old -= purged
        return purged


class Told(JobObserver):
    """Keeps what upkeep tells."""

    def __init__(self) -> None:
        self.expiries: list[Expired] = []
        self.overdue: list[Job] = []

    def expired(self, expired: Expired) -> None:
        self.expiries.append(expired)

    def ended_waiting(self, jobs: Sequence[Job], *, overdue: bool) -> None:
        assert overdue
        self.overdue += jobs


class House:
    """Upkeep and what it touches."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.store = FakeStore(clock)
        self.wakes = 0
        self.told = Told()
        self.in_doubt = False
        self.upkeep = Upkeep(
            self.store,  # type: ignore[arg-type]  # the part of a store that upkeep uses
            clock,
            heartbeat_timeout_sec=TIMEOUT,
            policy=RetryPolicy(),
            retention=Retention(1, 1),
            wake=self._wake,
            observers=Observers(self.told),
            in_doubt=lambda: self.in_doubt,
        )

    def _wake(self) -> None:
        self.wakes += 1

    async def live(self, seconds: float) -> None:
        """Time passes in ticks, as it does when all is well."""
        for _ in range(round(seconds / TICK_SECONDS)):
            self.clock.advance(TICK_SECONDS)
            await self.upkeep.tick()


# ── expiry ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_nobody_is_given_up_before_one_full_timeout_after_the_start(clock: FakeClock) -> None:
    house = House(clock)
    await house.live(TIMEOUT - TICK_SECONDS)
    assert house.store.expired_at == []
    await house.live(TICK_SECONDS)
    assert len(house.store.expired_at) == 1


async def test_after_that_every_tick_looks_for_silent_sessions(clock: FakeClock) -> None:
    house = House(clock)
    await house.live(TIMEOUT + 5)
    assert len(house.store.expired_at) == 11


async def test_silent_sessions_are_told_and_dispatch_is_woken(clock: FakeClock) -> None:
    house = House(clock)
    await house.live(TIMEOUT)
    assert (house.told.expiries, house.wakes) == ([], 0)
    house.store.silent = ["w1"]
    await house.live(TICK_SECONDS)
    assert [expired.sessions for expired in house.told.expiries] == [["w1"]]
    assert house.wakes == 1


async def test_after_sleeping_nobody_is_given_up_for_one_full_timeout(clock: FakeClock) -> None:
    house = House(clock)
    await house.live(TIMEOUT)
    before = len(house.store.expired_at)
    clock.advance(60)
    await house.upkeep.tick()
    await house.live(TIMEOUT - TICK_SECONDS)
    assert len(house.store.expired_at) == before
    await house.live(TICK_SECONDS)
    assert len(house.store.expired_at) == before + 1


@pytest.mark.parametrize("seconds", [3600.0, -3600.0, 4.0])
async def test_after_a_clock_jump_nobody_is_given_up_for_one_full_timeout(
    clock: FakeClock, seconds: float
) -> None:
    house = House(clock)
    await house.live(TIMEOUT)
    before = len(house.store.expired_at)
    clock.jump(seconds)
    await house.live(TIMEOUT)
    assert len(house.store.expired_at) == before
    await house.live(TICK_SECONDS)
    assert len(house.store.expired_at) == before + 1


@pytest.mark.parametrize("seconds", [3600, -3600, 4])
async def test_after_a_jump_of_the_clock_that_judges_nobody_is_given_up_for_one_full_timeout(
    clock: FakeClock, seconds: int
) -> None:
    """The clock of a database server, that is: ours is not asked. Seed 898 of the simulation."""
    house = House(clock)
    await house.live(TIMEOUT)
    before = len(house.store.expired_at)
    house.store.ahead_us = seconds * SECOND
    await house.live(TIMEOUT)
    assert len(house.store.expired_at) == before
    await house.live(TICK_SECONDS)
    assert len(house.store.expired_at) == before + 1


async def test_a_small_delay_is_not_taken_for_sleep(clock: FakeClock) -> None:
    house = House(clock)
    await house.live(TIMEOUT)
    before = len(house.store.expired_at)
    clock.advance(2)
    await house.upkeep.tick()
    assert len(house.store.expired_at) == before + 1


# ── the loop ───────────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def running(house: House) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(house.upkeep.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def turn(house: House, task: asyncio.Task[None]) -> None:
    """A little time passes, and the loop goes round once."""
    house.clock.advance(TICK_SECONDS)
    asked = house.store.asked
    house.upkeep.nudge()
    failing = any((house.store.broken, house.store.unwritable, house.store.full))
    await until(lambda: house.store.asked >= asked + (1 if failing else 3) or task.done())
    for _ in range(5):
        await asyncio.sleep(0)


async def test_after_a_store_failure_nobody_is_given_up_for_one_full_timeout(clock: FakeClock) -> None:
    house = House(clock)
    async with running(house) as task:
        await until(lambda: house.store.asked >= 3)
        for _ in range(20):
            await turn(house, task)
        assert house.store.expired_at != []
        house.store.broken = StoreUnavailable("the disk is full")
        await turn(house, task)
        house.store.broken = None
        before, failed_at = len(house.store.expired_at), clock.monotonic()
        while len(house.store.expired_at) == before and clock.monotonic() < failed_at + 3 * TIMEOUT:
            await turn(house, task)
    assert house.store.expired_at[before] - failed_at >= TIMEOUT
    assert house.store.expired_at[before] - failed_at <= TIMEOUT + 2 * TICK_SECONDS


async def test_while_heartbeats_cannot_be_written_nobody_is_given_up(clock: FakeClock) -> None:
    """Reads may still work then, so it must be a write that tells."""
    house = House(clock)
    async with running(house) as task:
        await until(lambda: house.store.asked >= 3)
        house.store.unwritable = StoreUnavailable("the disk is full")
        await turn(house, task)
        house.store.unwritable = None
        failed_at = clock.monotonic()
        while not house.store.expired_at and clock.monotonic() < failed_at + 3 * TIMEOUT:
            await turn(house, task)
    assert house.store.expired_at[0] - failed_at >= TIMEOUT


async def test_after_a_write_that_failed_a_real_one_tells_whether_heartbeats_can_be_stored(
    clock: FakeClock,
) -> None:
    """A heartbeat that holds nothing can be committed on a full disk."""
    house = House(clock)
    async with running(house) as task:
        await until(lambda: house.store.asked >= 3)
        house.store.full, house.in_doubt = StoreUnavailable("the disk is full"), True
        await turn(house, task)
        house.store.full, house.in_doubt = None, False
        failed_at = clock.monotonic()
        while not house.store.expired_at and clock.monotonic() < failed_at + 3 * TIMEOUT:
            await turn(house, task)
    assert house.store.expired_at[0] - failed_at >= TIMEOUT


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), OSError("disk"), RuntimeError("a bug")])
async def test_no_error_ends_upkeep_for_good(clock: FakeClock, error: Exception) -> None:
    """A loop that dies leaves every lost and scheduled job stuck until somebody restarts the coordinator."""
    house = House(clock)
    async with running(house) as task:
        await until(lambda: house.store.asked >= 3)
        house.store.broken = error
        await turn(house, task)
        house.store.broken = None
        house.store.due = [clock.now_us()]
        await turn(house, task)
        assert not task.done()
        assert house.store.due == []


# ── due jobs ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_due_jobs_are_queued_and_dispatch_is_woken(clock: FakeClock) -> None:
    house = House(clock)
    house.store.due = [clock.now_us() + 1, clock.now_us() + 60 * SECOND]
    await house.live(TICK_SECONDS)
    assert (len(house.store.due), house.wakes) == (1, 1)


async def test_more_due_jobs_than_a_batch_are_all_queued_in_one_tick(clock: FakeClock) -> None:
    house = House(clock)
    house.store.due = [clock.now_us()] * (2 * PROMOTE_BATCH + 1)
    await house.live(TICK_SECONDS)
    assert house.store.due == []
    assert house.wakes == 3


async def test_with_nothing_due_nobody_is_woken(clock: FakeClock) -> None:
    house = House(clock)
    house.store.due = [clock.now_us() + 60 * SECOND]
    await house.live(5)
    assert house.wakes == 0


async def test_jobs_whose_time_is_up_are_ended_and_told(clock: FakeClock) -> None:
    house = House(clock)
    house.store.limits = [clock.now_us(), clock.now_us() + 60 * SECOND]
    await house.live(TICK_SECONDS)
    assert len(house.store.limits) == 1
    assert len(house.told.overdue) == 1


# ── times that a wrong clock wrote ─────────────────────────────────────────────────────────────────────────────────


async def test_times_are_corrected_after_the_start_for_the_clock_may_have_been_set_before_it(
    clock: FakeClock,
) -> None:
    house = House(clock)
    await house.live(30)
    assert house.store.corrected_at == [1_000.0 + TICK_SECONDS]


@pytest.mark.parametrize("seconds", [-3600, -4])
async def test_times_are_corrected_when_the_clock_that_judges_was_set_back(
    clock: FakeClock, seconds: int
) -> None:
    house = House(clock)
    await house.live(5)
    house.store.ahead_us = seconds * SECOND
    await house.live(5)
    assert house.store.corrected_at[1:] == [1_005.0 + TICK_SECONDS]


async def test_times_are_corrected_after_this_process_stood_still(clock: FakeClock) -> None:
    """The clock may have been ahead and set right in that time."""
    house = House(clock)
    await house.live(5)
    clock.advance(60)
    await house.live(5)
    assert len(house.store.corrected_at) == 2


async def test_all_retries_are_corrected_however_many_there_are(clock: FakeClock) -> None:
    house = House(clock)
    house.store.far_retries = 2 * CORRECT_BATCH + 1
    await house.live(TICK_SECONDS)
    assert (house.store.far_retries, len(house.store.corrected_at)) == (0, 3)


async def test_times_that_could_not_be_corrected_are_corrected_when_the_store_is_back(
    clock: FakeClock,
) -> None:
    house = House(clock)
    house.store.broken = StoreUnavailable("the disk is full")
    async with running(house) as task:
        await until(lambda: house.store.asked >= 1)
        await turn(house, task)
        assert house.store.corrected_at == []
        house.store.broken = None
        await turn(house, task)
        assert len(house.store.corrected_at) == 1


# ── retention ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_old_rows_are_deleted_now_and_then(clock: FakeClock) -> None:
    house = House(clock)
    await house.live(PURGE_EVERY_SECONDS - TICK_SECONDS)
    assert house.store.purged_at == []
    await house.live(PURGE_EVERY_SECONDS + TICK_SECONDS)
    assert len(house.store.purged_at) == 2


async def test_while_more_is_waiting_every_tick_deletes_a_batch(clock: FakeClock) -> None:
    house = House(clock)
    house.store.old = 3 * PURGE_BATCH
    await house.live(PURGE_EVERY_SECONDS + 3 * TICK_SECONDS)
    assert house.store.old == 0
    assert len(house.store.purged_at) == 4
