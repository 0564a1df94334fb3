"""What this coordinator saw, kept as series: counted in memory, written every few seconds, summed when read.

The path of a finished job costs two additions to histograms. What was submitted and how jobs ended is counted by the metrics
anyway: once a second the difference to the last look goes into the open buckets. Every coordinator writes its own rows
(`shard`), each time with all that its bucket holds, so that writing twice counts nothing twice. What was not written when a
coordinator is killed is lost: at most `WRITE_SECONDS`.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

import structlog
from msgspec.structs import replace

from stoker.coordinator.durations import Durations, Key
from stoker.coordinator.metric_table import OTHER
from stoker.coordinator.metrics import Metrics
from stoker.coordinator.observers import JobObserver
from stoker.domain.errors import StoreUnavailable
from stoker.domain.lifecycle import FINAL, Status
from stoker.domain.series import (
    COARSE_SEC,
    FINE_SEC,
    SECOND,
    GaugeRow,
    Gauges,
    Histogram,
    Pair,
    Tally,
    TallyRow,
    add_durations,
    add_histogram,
)
from stoker.store.base import Store
from stoker.store.outcomes import Completions, Finish
from stoker.store.sessions import Expired

LOOK_SECONDS: Final = 1.0
WRITE_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 1.0
FRESH_SECONDS: Final = 1.0
"""A read is at most this old, unless the disk is slower than `WRITE_NOW_SECONDS`."""
WRITE_NOW_SECONDS: Final = 0.02
"""How long a read waits for the write before it."""
MAX_PAIRS: Final = 100
"""Pairs of queue and type that a bucket tells apart."""
MAX_UNWRITTEN: Final = 400
"""Buckets that wait for a store that does not answer: about an hour's."""

Bucket = tuple[int, int]
"""Its length in seconds, and when it began."""

K = TypeVar("K")
log = structlog.get_logger()


class Series(JobObserver):
    """Counts what happens in buckets of time, and writes them."""

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        *,
        shard: int,
        depths: Callable[[], Awaitable[Mapping[Pair, int]]],
        gauges: Callable[[], Awaitable[Gauges]],
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._shard = shard
        self._depths = depths
        self._gauges = gauges
        self._histograms: dict[Pair, tuple[Histogram, Histogram]] = {}
        self._retried: Counter[Pair] = Counter()
        self._submitted: dict[Pair, int] = {}
        self._ended: dict[tuple[str, str, str], int] = {}
        self._tallies: dict[Bucket, dict[Pair, Tally]] = {}
        self._seen: dict[Bucket, Gauges] = {}
        self._changed: set[Bucket] = set()
        self._written_at = -WRITE_SECONDS
        self._writing = asyncio.Lock()
        self._write_task: asyncio.Task[None] | None = None

    # ── what happens ───────────────────────────────────────────────────────────────────────────────────────────────

    def completed(self, completed: Sequence[Completions], durations: Mapping[Key, Durations]) -> None:
        for (queue, type, known), of in durations.items():
            if known:
                self._observe((queue, type), of.waits, of.runs)

    def ended(self, ended: Sequence[tuple[Finish, Status | None]]) -> None:
        """Attempts that did not complete their jobs."""
        for finish, status in ended:
            claim, outcome = finish.claim, finish.outcome
            if status not in FINAL:
                if status is not None and outcome.kind != "handed_back":
                    self._retried[claim.queue, claim.type] += 1
                continue
            started, finished = outcome.started_at, outcome.finished_at
            if started is not None and finished is not None:
                pair = (claim.queue, claim.type)
                self._observe(pair, [max(0, started - claim.run_at)], [max(0, finished - started)])

    def _observe(self, pair: Pair, waits: Sequence[int], runs: Sequence[int]) -> None:
        wait, run = self._histograms.setdefault(pair, ({}, {}))
        add_durations(wait, waits)
        add_durations(run, runs)

    def expired(self, expired: Expired) -> None:
        self._retried.update(
            (lost.claim.queue, lost.claim.type) for lost in expired.losses if lost.status not in FINAL
        )

    # ── into buckets ───────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        while True:
            try:
                await self._look_and_write()
            except (StoreUnavailable, MemoryError) as error:
                log.warning("series_not_written", detail=str(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def _look_and_write(self) -> None:
        self.take(self._store.now_us(), await self._depths())
        if asyncio.get_running_loop().time() >= self._written_at + WRITE_SECONDS:
            self.note(self._store.now_us(), await self._gauges())
            await self.write()

    async def write_now(self) -> None:
        """Write what was counted, unless that was done a moment ago: for a read that follows. It does not wait for a slow
        disk: then it sees what was there before."""
        if self._write_task is None:
            if asyncio.get_running_loop().time() < self._written_at + FRESH_SECONDS:
                return
            self._written_at = -WRITE_SECONDS
            self._write_task = asyncio.create_task(self._look_and_write(), name="stoker-series-write")
            self._write_task.add_done_callback(self._written)
        task_now = self._write_task
        done, _ = await asyncio.wait({task_now}, timeout=WRITE_NOW_SECONDS)
        if done:
            task_now.result()

    def _written(self, task: asyncio.Task[None]) -> None:
        self._write_task = None
        if not task.cancelled():
            task.exception()  # the loop that writes meets the same error, and tells of it

    def take(self, now: int, depths: Mapping[Pair, int]) -> None:
        """Put what was counted since the last time into the buckets of now."""
        news = self._news()
        for pair, depth in depths.items():
            if depth:
                news.setdefault(pair, Tally()).queue_depth_max = depth
        for bucket in _buckets(now) if news else ():
            self._seen.setdefault(bucket, Gauges()).rise(Gauges(queue_depth_max=sum(depths.values())))
            pairs = self._tallies.setdefault(bucket, {})
            for pair, tally in news.items():
                known = pair in pairs or len(pairs) < MAX_PAIRS
                pairs.setdefault(pair if known else (OTHER, OTHER), Tally()).add(tally)
            self._changed.add(bucket)

    def note(self, now: int, gauges: Gauges) -> None:
        """Note gauges. A bucket that they do not change is not written again, so that an idle system hardly writes."""
        for bucket in _buckets(now):
            seen = self._seen.setdefault(bucket, Gauges())
            before = replace(seen)
            seen.rise(gauges)
            if seen != before:
                self._changed.add(bucket)

    def _news(self) -> dict[Pair, Tally]:
        news: dict[Pair, Tally] = {}
        for pair, number in _more(self._metrics.submissions, self._submitted):
            news.setdefault(pair, Tally()).submitted += number
        for (queue, type, status), number in _more(self._metrics.ends, self._ended):
            tally = news.setdefault((queue, type), Tally())
            setattr(tally, status, getattr(tally, status) + number)
        for pair, number in self._retried.items():
            news.setdefault(pair, Tally()).retried += number
        for pair, (wait, run) in self._histograms.items():
            tally = news.setdefault(pair, Tally())
            add_histogram(tally.wait, wait)
            add_histogram(tally.run, run)
        self._retried.clear()
        self._histograms = {}
        return news

    # ── into the store ─────────────────────────────────────────────────────────────────────────────────────────────

    async def write(self) -> None:
        """Write the buckets that changed, each with all that it holds. One that could not be written waits."""
        async with self._writing:
            changed, self._changed = self._changed, set()
            try:
                if changed:
                    await self._store.put_series(
                        self._shard, self._tally_rows(changed), self._gauge_rows(changed)
                    )
            except StoreUnavailable:
                self._changed |= changed
                raise
            finally:
                self._forget()
        self._written_at = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Write what is left, if the store takes it at once."""
        self.take(self._store.now_us(), {})
        with contextlib.suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.write()

    def _tally_rows(self, buckets: set[Bucket]) -> list[TallyRow]:
        return [
            TallyRow(*bucket, *pair, tally)
            for bucket in sorted(buckets)
            for pair, tally in self._tallies.get(bucket, {}).items()
        ]

    def _gauge_rows(self, buckets: set[Bucket]) -> list[GaugeRow]:
        return [GaugeRow(*bucket, self._seen[bucket]) for bucket in sorted(buckets) if bucket in self._seen]

    def _forget(self) -> None:
        """Buckets that are over and written, and those that waited too long."""
        now = self._store.now_us()
        closed = {(length, at) for length, at in {*self._tallies, *self._seen} if at + length * SECOND <= now}
        waiting = sorted(closed & self._changed, key=lambda bucket: bucket[1])
        for bucket in (closed - self._changed) | set(waiting[:-MAX_UNWRITTEN]):
            self._tallies.pop(bucket, None)
            self._seen.pop(bucket, None)
            self._changed.discard(bucket)


def _buckets(now: int) -> list[Bucket]:
    return [(length, now - now % (length * SECOND)) for length in (FINE_SEC, COARSE_SEC)]


def _more(counts: Mapping[K, int], last: dict[K, int]) -> list[tuple[K, int]]:
    """Return by how much each number grew since the last call, and remember the numbers in `last`."""
    grown = [(key, count - last.get(key, 0)) for key, count in counts.items() if count != last.get(key)]
    last.update(counts)
    return [(key, number) for key, number in grown if number > 0]
