"""The updates of the event stream (`stoker.coordinator.events`): how they are made, and the ring of the latest ones."""

import functools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from stoker.coordinator.counts import success_rate, sum_by_status
from stoker.coordinator.event_window import EventBuffer
from stoker.coordinator.job_output.output import JobProgress
from stoker.coordinator.latencies import LastMinute, percentile
from stoker.coordinator.queue_state import QueueState, queue_states
from stoker.domain.lifecycle import Status
from stoker.domain.scaling import ScalingState
from stoker.store.bulk import Bulk
from stoker.store.reads import Count, JobSummary
from stoker.store.sessions import Session

WINDOW_SECONDS: Final = 0.25
QUIET_SECONDS: Final = 5.0
RING: Final = 240


class SlowLook(msgspec.Struct, frozen=True):
    """The gauges that are too expensive for every window."""

    paused: Mapping[str, int]
    oldest_due: Mapping[str, int]
    dead_letters: int
    bulks: Sequence[Bulk]


class Look(msgspec.Struct, frozen=True):
    """The gauges of the system at one moment. A new gauge is added here, and to `Update` and `Composer`."""

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
    """The changes since the last update. `workers`, `queues` and `bulks` are None when they have not changed."""

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
    """The first message of a stream: where it begins."""

    epoch: str
    seq: int


class Reset(msgspec.Struct, frozen=True):
    """Tells a watcher that it missed updates: it should load everything again, and then go on from here."""

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
        """Return the id of this run of the coordinator, made when the first watcher connects."""
        return self._new_epoch()

    def add(self, update: Update) -> None:
        self.seq += 1
        self._items.append(Numbered(self.epoch, self.seq, update))

    def after(self, seq: int) -> list[Numbered] | None:
        """Return the updates after this number; None when some of them are no longer in the ring."""
        if seq == self.seq:
            return []
        first = self._items[0].seq if self._items else self.seq + 1
        if not first - 1 <= seq < self.seq:
            return None
        return [item for item in self._items if item.seq > seq]

    def forget(self) -> None:
        """Empty the ring and leave a gap in the numbers: from now on events are not recorded, so no watcher may go on from
        an earlier position."""
        self._items.clear()
        self.seq += 1

    def find(self, position: str | None) -> tuple[int, str | None]:
        """Return the number after which a watcher continues, and the reason if that is not the position it asked for."""
        if position is None:
            return self.seq, None
        epoch, _, number = position.rpartition(":")
        if epoch != self.epoch or not number.isascii() or not number.isdigit() or len(number) > 18:
            return self.seq, "the position is not of this life of this coordinator"
        if self.after(int(number)) is None:
            return self.seq, "the position is too old"
        return int(number), None


class Composer:
    """Composes updates for the event stream: the differences to the last one. No I/O and no clock."""

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
        """Return an update; None when nothing changed and the last one is less than `QUIET_SECONDS` old. `at` is the time of
        day, `now` that of a monotonic clock."""
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


def _workers_key(workers: Iterable[Session]) -> object:
    """Return the fields whose change is worth an update; a heartbeat is not."""
    return [(row.id, row.status, row.threads, row.threads_used) for row in workers]


def _queues_key(queues: Iterable[QueueState]) -> object:
    """Return the fields whose change is worth an update; ages are not, since a watcher can compute them."""
    return [(queue.name, queue.counts, queue.paused_at) for queue in queues]
