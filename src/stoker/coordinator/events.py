"""Live events: what changed, for everybody who watches, a few times a second.

Nothing is stored, and nothing is kept while there are no watchers. While there are, here or at another coordinator, the
hooks of the coordinator put the ids of changed jobs into a window: each id once, up to a limit, the rest as a count. Every
`WINDOW_SECONDS` the window is closed, the jobs in it are read from the store, which alone knows what they are now, and one
`Update` is made of it for all who watch. So an update costs the same however many jobs changed and however many watch.

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
import functools
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec
import structlog

from stoker.bus.base import HAPPENED_IDS, LISTEN_SECONDS, Happened, Listen, Notification
from stoker.coordinator.durations import Durations, Key
from stoker.coordinator.job_output.output import JobProgress
from stoker.coordinator.latencies import Buckets, LastMinute, in_buckets, percentile
from stoker.coordinator.observers import JobObserver
from stoker.coordinator.queue_state import QueueState, queue_states
from stoker.coordinator.waiters import JobWaiters, woken
from stoker.domain.errors import StoreUnavailable
from stoker.domain.job import Job
from stoker.domain.lifecycle import FINAL, STATUSES, Status
from stoker.domain.retry import Kind
from stoker.domain.scaling import ScalingState
from stoker.domain.webhooks import WEBHOOK_QUEUE
from stoker.store.base import (
    Accepted,
    Bulk,
    Completions,
    Count,
    Expired,
    Finish,
    Grant,
    JobFilter,
    JobQuery,
    JobSummary,
    Session,
    Store,
)

WINDOW_SECONDS: Final = 0.25
QUIET_SECONDS: Final = 5.0
SLOW_LOOK_SECONDS: Final = 1.0
LINGER_SECONDS: Final = 30.0
KEEP_ALIVE_SECONDS: Final = 15.0
MAX_JOBS: Final = 200
RING: Final = 240
LATEST_BULKS: Final = 20
"""How many bulk operations are shown."""

log = structlog.get_logger()


# ── what happened ────────────────────────────────────────────────────────────────────────────────────────────────────


class EventBuffer:
    """What happened since the window was opened: bounded, whatever happens."""

    def __init__(self) -> None:
        self.ids: dict[str, None] = {}
        self.more = 0
        """Changes of jobs that are not in `ids`."""
        self.tally: Counter[str] = Counter()
        self.waits: Counter[int] = Counter()
        self.runs: Counter[int] = Counter()

    def __bool__(self) -> bool:
        return bool(self.ids or self.more)

    def changed(self, ids: Iterable[str]) -> None:
        known = self.ids
        for id in ids:
            if id not in known:
                if len(known) < MAX_JOBS:
                    known[id] = None
                else:
                    self.more += 1

    def add(
        self, ids: Iterable[str], more: int, tally: Mapping[str, int], waits: Buckets, runs: Buckets
    ) -> None:
        self.changed(ids)
        self.more += more
        self.tally.update(tally)
        self.waits.update(waits)
        self.runs.update(runs)

    def take_in(self, other: "EventBuffer") -> None:
        self.add(other.ids, other.more, other.tally, other.waits, other.runs)

    def submitted(self, accepted: Sequence[Accepted]) -> None:
        new = [id for item in accepted if not item.repeated for id in item.batch.ids]
        self.tally["submitted"] += len(new)
        self.changed(new)

    def completed(self, completed: Sequence[Completions], durations: Mapping[Key, Durations]) -> None:
        for batch in completed:
            self.changed(batch.ids)
            self.tally["completed"] += len(batch.ids)
        for of in durations.values():
            self.waits.update(in_buckets(of.waits))
            self.runs.update(in_buckets(of.runs))

    def ended(self, ended: Sequence[tuple[Finish, Status | None]]) -> None:
        """Attempts that did not complete their jobs."""
        ids: list[str] = []
        words: list[str] = []
        waits: list[int] = []
        runs: list[int] = []
        for finish, status in ended:
            if status is None:
                continue
            claim, outcome = finish.claim, finish.outcome
            ids.append(claim.id)
            words.append(word_for(status, outcome.kind))
            finished = outcome.finished_at
            if finished is not None and status in FINAL:
                started = outcome.started_at or finished
                waits.append(started - claim.run_at)
                runs.append(finished - started)
        self.changed(ids)
        self.tally.update(words)
        self.waits.update(in_buckets(waits))
        self.runs.update(in_buckets(runs))


def word_for(status: Status, kind: Kind) -> str:
    """What the end of an attempt counts as."""
    if status in FINAL:
        return status
    return "handed_back" if kind == "handed_back" else "retried"


def happened(window: EventBuffer) -> Happened:
    """Return a window as a notification for other coordinators. A message of the bus is short, so ids beyond
    `HAPPENED_IDS` are sent only as a count."""
    ids = list(window.ids)
    return Happened(
        ids[:HAPPENED_IDS],
        window.more + len(ids[HAPPENED_IDS:]),
        dict(window.tally),
        dict(window.waits.most_common(HAPPENED_IDS // 2)),
        dict(window.runs.most_common(HAPPENED_IDS // 2)),
    )


# ── what is told ─────────────────────────────────────────────────────────────────────────────────────────────────────


class SlowLook(msgspec.Struct, frozen=True):
    """The part of a look that is not taken in every window."""

    paused: Mapping[str, int]
    oldest_due: Mapping[str, int]
    dead_letters: int
    bulks: Sequence[Bulk]


class Look(msgspec.Struct, frozen=True):
    """The gauges of the system at one moment. What else an update should show as it is now is added here, and to
    `Update` and `Composer`."""

    counts: Sequence[Count]
    workers: Sequence[Session]
    slow: SlowLook
    scaling: ScalingState | None


class LiveGauges(msgspec.Struct, frozen=True):
    """The numbers that people look at first. Percentiles are of the last minute."""

    by_status: Mapping[Status, int]
    workers: int
    threads: int
    threads_used: int
    success_rate: float | None
    dead_letters: int
    oldest_due_at: int | None
    wait_p50_sec: float | None
    wait_p95_sec: float | None
    run_p50_sec: float | None
    run_p95_sec: float | None
    scaling: ScalingState | None


class Update(msgspec.Struct, frozen=True):
    """What changed since the update before. `workers`, `queues` and `bulks` are None when they are as they were."""

    at: int
    period_sec: float
    tally: Mapping[str, int]
    gauges: LiveGauges
    jobs: Sequence[tuple[JobSummary, JobProgress | None]]
    more: int
    workers: Sequence[Session] | None
    queues: Sequence[QueueState] | None
    bulks: Sequence[Bulk] | None


class Numbered:
    """An update in the ring. `rendered` is its form in the event stream, made once for all watchers."""

    __slots__ = ("epoch", "rendered", "seq", "update")

    def __init__(self, epoch: str, seq: int, update: Update) -> None:
        self.epoch = epoch
        self.seq = seq
        self.update = update
        self.rendered: bytes | None = None


class StreamHello(msgspec.Struct, frozen=True):
    epoch: str
    seq: int


class Reset(msgspec.Struct, frozen=True):
    """What the watcher knows may be outdated: it should look at everything again, and then go on from here."""

    epoch: str
    seq: int
    reason: str


Message = StreamHello | Reset | Numbered | Literal["keep-alive"]


class Ring:
    """The last updates, by number."""

    def __init__(self, new_epoch: Callable[[], str], size: int = RING) -> None:
        self._new_epoch = new_epoch
        self.seq = 0
        self._items: deque[Numbered] = deque(maxlen=size)

    @functools.cached_property
    def epoch(self) -> str:
        """Made for the first who watches."""
        return self._new_epoch()

    def add(self, update: Update) -> None:
        self.seq += 1
        self._items.append(Numbered(self.epoch, self.seq, update))

    def after(self, seq: int) -> list[Numbered] | None:
        """All that came after this number; None when some of it is not known any more."""
        if seq == self.seq:
            return []
        first = self._items[0].seq if self._items else self.seq + 1
        if not first - 1 <= seq < self.seq:
            return None
        return [item for item in self._items if item.seq > seq]

    def forget(self) -> None:
        """Empty the ring, and leave a gap in the numbers: what happens from now on is not in it, so no watcher may go on
        from an earlier position."""
        self._items.clear()
        self.seq += 1

    def find(self, position: str | None) -> tuple[int, str | None]:
        """Return the number from which a watcher goes on, and, if that is not the position it asked for, why."""
        if position is None:
            return self.seq, None
        epoch, _, number = position.rpartition(":")
        if epoch != self.epoch or not number.isascii() or not number.isdigit() or len(number) > 18:
            return self.seq, "the position is not of this life of this coordinator"
        if self.after(int(number)) is None:
            return self.seq, "the position is too old"
        return int(number), None


class Composer:
    """Makes updates: remembers what was told last, and tells what is different. No I/O and no clock."""

    def __init__(self) -> None:
        self._waits = LastMinute()
        self._runs = LastMinute()
        self._told_at: float | None = None
        self._workers: object = None
        self._queues: object = None
        self._bulks: Sequence[Bulk] = ()
        self._scaling: ScalingState | None = None

    def compose(
        self,
        window: EventBuffer,
        look: Look,
        jobs: Sequence[tuple[JobSummary, JobProgress | None]],
        *,
        at: int,
        now: float,
    ) -> Update | None:
        """An update, if there is anything to tell. `at` is the time of day, `now` measures."""
        self._waits.add(window.waits, now)
        self._runs.add(window.runs, now)
        slow = look.slow
        queues = queue_states(look.counts, slow.paused, slow.oldest_due)
        workers_now, queues_now = _workers_key(look.workers), _queues_key(queues)
        same_workers, same_queues = workers_now == self._workers, queues_now == self._queues
        same_bulks = slow.bulks == self._bulks
        same = same_workers and same_queues and same_bulks and look.scaling == self._scaling
        news = window or not same
        if not news and self._told_at is not None and now < self._told_at + QUIET_SECONDS:
            return None
        period = WINDOW_SECONDS if self._told_at is None else now - self._told_at
        self._told_at, self._scaling = now, look.scaling
        self._workers, self._queues, self._bulks = workers_now, queues_now, slow.bulks
        return Update(
            at,
            round(period, 3),
            window.tally,
            self._gauges(look, now),
            jobs,
            window.more + len(window.ids) - len(jobs),
            None if same_workers else look.workers,
            None if same_queues else queues,
            None if same_bulks else slow.bulks,
        )

    def _gauges(self, look: Look, now: float) -> LiveGauges:
        by_status = sum_by_status(look.counts)
        live = [row for row in look.workers if row.status in ("live", "draining")]
        waits, runs = self._waits.buckets(now), self._runs.buckets(now)
        return LiveGauges(
            by_status,
            len(live),
            sum(row.threads for row in live),
            sum(row.threads_used for row in live),
            success_rate(by_status),
            look.slow.dead_letters,
            min(look.slow.oldest_due.values(), default=None),
            percentile(waits, 0.5),
            percentile(waits, 0.95),
            percentile(runs, 0.5),
            percentile(runs, 0.95),
            look.scaling,
        )


def sum_by_status(counts: Iterable[Count]) -> dict[Status, int]:
    """How many jobs of users are in each status; deliveries of webhooks are none."""
    by_status = dict.fromkeys(STATUSES, 0)
    for count in counts:
        if count.queue != WEBHOOK_QUEUE:
            by_status[count.status] += count.count
    return by_status


def success_rate(by_status: Mapping[Status, int]) -> float | None:
    ended = by_status["completed"] + by_status["failed"]
    return by_status["completed"] / ended if ended else None


def _workers_key(workers: Iterable[Session]) -> object:
    """What makes a difference to a watcher; a heartbeat does not."""
    return [(row.id, row.status, row.threads, row.threads_used) for row in workers]


def _queues_key(queues: Iterable[QueueState]) -> object:
    """Ages grow by themselves: a watcher can add up."""
    return [(queue.name, queue.counts, queue.paused_at) for queue in queues]


# ── the loop ─────────────────────────────────────────────────────────────────────────────────────────────────────────


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
        """As long as it is new enough."""
        self._slow_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._failing = False
        self._live = False
        """Whether all that happens gets into the ring."""
        self.wanted = False
        """Whether anybody wants to know what happens."""
        self.heeded = False
        """Whether anybody wants to know that, or what happens to some job. The coordinator looks at this before it tells
        what happens to every job, and mostly that is all."""

    # ── what the coordinator tells ─────────────────────────────────────────────────────────────────────────────────

    def submitted(self, accepted: Sequence[Accepted], requests: Sequence[str | None]) -> None:
        if self.wanted:
            self._own.submitted(accepted)

    def dispatched(self, grants: Sequence[Grant]) -> None:
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
        """Something changed that is not looked at in every window."""
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

    # ── for those who watch ────────────────────────────────────────────────────────────────────────────────────────

    async def follow(self, position: str | None) -> AsyncGenerator[Message, None]:
        """Everything from a position on (`EPOCH:SEQ`; None for now), for as long as it is listened to."""
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
        """`with events.watch_job(id) as news:` is set when something happened to the job."""
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
        """Counters and workers in every window, what costs more once a second."""
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
        """Let go of everybody."""
        self._closing = True
        self.wanted = self.heeded = False
        for watcher in self._watchers:
            watcher.set()
        self._of_job.finished_all()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


async def dead_letters(store: Store, counts: Iterable[Count]) -> int:
    """How many jobs failed and were not discarded. Beyond the cap only all that failed is known, the discarded ones
    included; and where nothing failed, nothing is counted."""
    failed = sum_by_status(counts)["failed"]
    if not failed:
        return 0
    page = await store.page(JobQuery(JobFilter(dead_letters=True), limit=1))
    return failed if page.total_capped else page.total
