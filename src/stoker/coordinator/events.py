"""Live events: what changed, sent to all watchers a few times a second.

Nothing is stored, and nothing is kept while there are no watchers. While there are, here or at another coordinator, the
hooks of the coordinator put the ids of changed jobs into a window: each id once, up to a limit, the rest as a count. Every
`WINDOW_SECONDS` the window is closed, the jobs in it are read from the store, which alone knows what they are now, and one
`Update` is made of it for all watchers. So its cost depends on neither the number of changed jobs nor that of watchers.

Updates are numbered and the last ones stand in a ring. A watcher is a position in the ring and nothing else: one that comes
back goes on where it was, and one that is too slow, or was away for too long, finds that its position is gone, is told to
begin anew (`Reset`), and costs no memory meanwhile. The numbers belong to this life of this coordinator (`epoch`). When
all watchers have left, the ring is kept for a while, for those that come back; then it is forgotten, with a gap in the
numbers, because from then on things happen that are not in it.

Other coordinators publish what happens to them only on request: a coordinator that has watchers says so every few seconds
(`Listen`), and hears of windows (`Happened`) that are closed there as they are here. Notifications may be lost; the
gauges of an update are always read from the store, and at least every `QUIET_SECONDS` there is one.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final

import structlog

from stoker.bus.base import LISTEN_SECONDS, Happened, Listen, Notification
from stoker.coordinator.counts import dead_letters
from stoker.coordinator.durations import Durations, Key
from stoker.coordinator.event_updates import (
    WINDOW_SECONDS,
    Composer,
    Look,
    Message,
    Reset,
    Ring,
    SlowLook,
    StreamHello,
)
from stoker.coordinator.event_window import EventBuffer, happened, word_for
from stoker.coordinator.job_output.output import JobProgress
from stoker.coordinator.observers import JobObserver
from stoker.coordinator.waiters import JobWaiters, woken
from stoker.domain.errors import StoreUnavailable
from stoker.domain.job import Job
from stoker.domain.lifecycle import Status
from stoker.domain.placement import Placed
from stoker.domain.scaling import ScalingState
from stoker.store.base import Store
from stoker.store.outcomes import Completions, Finish
from stoker.store.reads import Count, JobSummary
from stoker.store.sessions import Expired, Session
from stoker.store.submissions import Accepted

SLOW_LOOK_SECONDS: Final = 1.0
LINGER_SECONDS: Final = 30.0
KEEP_ALIVE_SECONDS: Final = 15.0
LATEST_BULKS: Final = 20
"""How many bulk operations are shown."""

log = structlog.get_logger()


class Events(JobObserver):
    """Collects what happens to jobs, and serves the clients that watch."""

    def __init__(
        self,
        store: Store,
        *,
        new_epoch: Callable[[], str],
        workers: Callable[[], Awaitable[list[Session]]],
        scaling: Callable[[], ScalingState | None],
        progress: Callable[[JobSummary], JobProgress | None],
        monotonic: Callable[[], float],
        publish: Callable[[Notification], None] | None = None,
    ) -> None:
        """`publish` carries notifications to other coordinators, where there can be any."""
        self._store = store
        self._read_workers = workers
        self._scaling = scaling
        self._progress = progress
        self._monotonic = monotonic
        self._publish = publish
        self._ring = Ring(new_epoch)
        self._composer = Composer()
        self._own = EventBuffer()
        self._heard = EventBuffer()
        self._watchers: dict[asyncio.Event, None] = {}
        self._of_job = JobWaiters()
        self._linger_until = 0.0
        self._interest_until = 0.0
        self._asked_at: float | None = None
        self._slow: SlowLook | None = None
        """The cached snapshot, or None when it is stale."""
        self._slow_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._failing = False
        self._live = False
        """Whether the ring is complete: every change since the first watcher came is in it."""
        self.wanted = False
        """Whether there are watchers of all events, here or at another coordinator."""
        self.heeded = False
        """Whether there are watchers of all events or of a single job. Mostly there are none, and this check is all that an
        event costs."""

    # ── what the coordinator tells ─────────────────────────────────────────────────────────────────────────────────

    def submitted(self, accepted: Sequence[Accepted], requests: Sequence[str | None]) -> None:
        if self.wanted:
            self._own.submitted(accepted)

    def dispatched(self, grants: Sequence[Placed]) -> None:
        if self.heeded:
            self.changed([id for grant in grants for id in grant.batch.ids])

    def started(self, ids: Sequence[str]) -> None:
        self.changed(ids)

    def progressed(self, ids: Sequence[str]) -> None:
        self.changed(ids)

    def completed(self, completed: Sequence[Completions], durations: Mapping[Key, Durations]) -> None:
        if self.heeded:
            for batch in completed:
                self._of_job.finished(batch.ids)
        if self.wanted:
            self._own.completed(completed, durations)

    def ended(self, ended: Sequence[tuple[Finish, Status | None]]) -> None:
        self._of_job.finished(finish.claim.id for finish, status in ended if status is not None)
        if self.wanted:
            self._own.ended(ended)

    def ended_waiting(self, jobs: Sequence[Job], *, overdue: bool) -> None:
        self.changed([job.id for job in jobs])
        if self.wanted:
            self._own.tally.update(job.status for job in jobs)

    def cancel_requested(self, jobs: Sequence[Job]) -> None:
        self.changed([job.id for job in jobs])

    def expired(self, expired: Expired) -> None:
        self.changed([lost.claim.id for lost in expired.losses])
        if self.wanted:
            self._own.tally.update(word_for(lost.status, "lost") for lost in expired.losses)

    def changed(self, ids: Sequence[str]) -> None:
        self._of_job.finished(ids)
        if self.wanted:
            self._own.changed(ids)

    def changed_many(self, count: int) -> None:
        """Note that this many jobs changed, without their ids: watchers that show jobs should fetch them again."""
        if self.wanted:
            self._own.more += count

    def look_soon(self) -> None:
        """Read the slow part of the gauges again in the next window, because it changed."""
        self._slow = None

    # ── what other coordinators tell ───────────────────────────────────────────────────────────────────────────────

    def heard_interest(self) -> None:
        self._interest_until = self._monotonic() + LISTEN_SECONDS
        self._begin()

    def heard(self, notification: Happened) -> None:
        if self.wanted:
            self._heard.add(
                notification.ids, notification.more, notification.tally, notification.waits, notification.runs
            )

    def changed_elsewhere(self, ids: Sequence[str]) -> None:
        self._of_job.finished(ids)

    # ── for watchers ───────────────────────────────────────────────────────────────────────────────────────────────

    async def follow(self, position: str | None) -> AsyncGenerator[Message, None]:
        """Yield all updates after a position (`EPOCH:SEQ`; None for the present) until the caller stops."""
        with self._listening() as news:
            seq, why = self._ring.find(position)
            yield StreamHello(self._ring.epoch, seq)
            if why is not None:
                yield Reset(self._ring.epoch, seq, why)
            while not self._closing:
                items = self._ring.after(seq)
                if items is None:
                    seq = self._ring.seq
                    yield Reset(self._ring.epoch, seq, "the watcher is too slow; updates were left out")
                    continue
                for item in items:
                    yield item
                    seq = item.seq
                if not items and not await woken(news, KEEP_ALIVE_SECONDS):
                    yield "keep-alive"

    @contextlib.contextmanager
    def _listening(self) -> Iterator[asyncio.Event]:
        news = asyncio.Event()
        self._watchers[news] = None
        self._live = True
        self._begin()
        try:
            yield news
        finally:
            self._watchers.pop(news, None)
            self._linger_until = self._monotonic() + LINGER_SECONDS

    @contextlib.contextmanager
    def watch_job(self, id: str) -> Iterator[asyncio.Event]:
        """`with events.watch_job(id) as news:` gives an event that is set when something happened to the job."""
        self.heeded = True
        try:
            with self._of_job.watch(id) as news:
                yield news
        finally:
            self._heed()

    def _heed(self) -> None:
        self.heeded = self.wanted or len(self._of_job) > 0

    # ── windows ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self) -> None:
        if self._closing:
            return
        self.wanted = self.heeded = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="stoker-events")

    async def _run(self) -> None:
        while self.wanted:
            await asyncio.sleep(WINDOW_SECONDS)
            try:
                await self.close_window()
                self._failing = False
            except Exception as error:
                if not self._failing:
                    expected = isinstance(error, StoreUnavailable)
                    log.error("events_failed", detail=str(error), exc_info=not expected)
                self._failing = True
            self._rest()
        self._task = None

    def _rest(self) -> None:
        """Forget the ring when there were no watchers here for a while, and stop when there are none elsewhere either."""
        now = self._monotonic()
        if self._is_watched(now):
            return
        if self._live:
            self._ring.forget()
            self._composer = Composer()
            self._slow = self._asked_at = None
            self._live = False
        if now >= self._interest_until:
            self._own, self._heard = EventBuffer(), EventBuffer()
            self.wanted = False
            self._heed()

    def _is_watched(self, now: float) -> bool:
        return bool(self._watchers) or now < self._linger_until

    async def close_window(self) -> None:
        """Publish what happened since the last window, to other coordinators that asked for it and to the watchers here."""
        now = self._monotonic()
        own, self._own = self._own, EventBuffer()
        if self._publish is not None and own and now < self._interest_until:
            self._publish(happened(own))
        window, self._heard = self._heard, EventBuffer()
        if self._is_watched(now):
            self._ask_others(now)
            window.take_in(own)
            await self._tell(window, now)

    def _ask_others(self, now: float) -> None:
        if self._publish is None or (
            self._asked_at is not None and now < self._asked_at + LISTEN_SECONDS / 4
        ):
            return
        self._asked_at = now
        self._publish(Listen())

    async def _tell(self, window: EventBuffer, now: float) -> None:
        try:
            look = await self._look(now)
            found = await self._store.summaries(list(window.ids)) if window.ids else []
        except BaseException:
            self._heard.take_in(window)  # to be told when the store answers again
            raise
        jobs = [(job, self._progress(job)) for job in found]
        update = self._composer.compose(window, look, jobs, at=self._store.now_us(), now=now)
        if update is not None:
            self._ring.add(update)
            for watcher in self._watchers:
                watcher.set()

    async def _look(self, now: float) -> Look:
        """Read counters and workers; what costs more is read once a second."""
        counts = await self._store.counts()
        slow = self._slow
        if slow is None or now >= self._slow_at + SLOW_LOOK_SECONDS:
            slow = self._slow = await self._look_slowly(counts)
            self._slow_at = now
        return Look(counts, await self._read_workers(), slow, self._scaling())

    async def _look_slowly(self, counts: Sequence[Count]) -> SlowLook:
        return SlowLook(
            await self._store.paused(),
            await self._store.oldest_due(),
            await dead_letters(self._store, counts),
            await self._store.bulks(LATEST_BULKS),
        )

    async def close(self) -> None:
        """End all streams."""
        self._closing = True
        self.wanted = self.heeded = False
        for watcher in self._watchers:
            watcher.set()
        self._of_job.finished_all()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
