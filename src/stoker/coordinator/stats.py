"""Numbers, as the API shows them: `/stats`, `/metrics`, the series of the dashboard's charts."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Final, Literal, TypeVar

from stoker.clock import Clock
from stoker.coordinator import metric_aliases
from stoker.coordinator.counts import success_rate, sum_by_status
from stoker.coordinator.metrics import Metrics, text_in_turns
from stoker.coordinator.run_times import RunTimes
from stoker.coordinator.series import Series
from stoker.coordinator.workers import WorkerList
from stoker.domain.scaling import ScalingState, pending_thread_seconds
from stoker.domain.series import Gauges, Pair, Point, Range, Tally, points, sums
from stoker.domain.webhooks import WEBHOOK_QUEUE
from stoker.store.base import Store
from stoker.store.reads import JobFilter, JobQuery

FEW_ROWS: Final = 500
"""Up to this many rows of a series are added up on the loop; more on another thread."""
T = TypeVar("T")


class StatsService:
    """Reads the numbers of the whole system from the store, and those of this coordinator from its metrics."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        workers: WorkerList,
        run_times: RunTimes,
        metrics: Metrics,
        shard: int,
        aliases: bool,
    ) -> None:
        """`shard` is the number under which this life of the coordinator writes its series; with `aliases` metrics are
        shown under other names too."""
        self._store = store
        self._clock = clock
        self._workers = workers
        self._run_times = run_times
        self._metrics = metrics
        self._aliases = aliases
        self._started = clock.monotonic()
        self.recorder = Series(store, metrics, shard=shard, depths=self._depths, gauges=self._gauges)

    async def stats(self) -> dict[str, object]:
        """Return the answer of `/stats`."""
        counts, paused, live = await asyncio.gather(
            self._store.counts(), self._store.paused(), self._workers.live()
        )
        by_status = sum_by_status(counts)
        queued = [count for count in counts if count.status == "queued" and count.queue != WEBHOOK_QUEUE]
        rate = success_rate(by_status)
        uptime = round(self._clock.monotonic() - self._started, 3)
        return {
            "queue_depth": by_status["queued"],
            "paused_depth": sum(count.count for count in queued if count.queue in paused),
            "workers": len(live),
            "threads": sum(row.threads for row in live),
            "threads_used": sum(row.threads_used for row in live),
            "jobs_by_status": by_status,
            "jobs_total": sum(by_status.values()),
            "success_rate": rate,
            "success_rate_pct": None if rate is None else round(100 * rate, 3),
            "uptime_sec": uptime,
            "uptime_seconds": uptime,
            "pending_thread_seconds": pending_thread_seconds(
                ((count.type, count.count) for count in queued if count.queue not in paused),
                self._run_times.view(),
            ),
            "autoscaler": self._metrics.scaling,
        }

    def scaling_decided(self, state: ScalingState) -> None:
        """Note what an autoscaler decided, for `/stats` and `/metrics`."""
        self._metrics.on_scaling(state, self._clock.monotonic())

    async def series(self, wanted: Range, queue: str | None, type: str | None) -> list[Point]:
        """Return every point of the range, for all jobs, or for those of a queue or type."""
        await self.recorder.write_now()
        of_all = queue is None and type is None
        tallies, gauges = await self._store.series(
            wanted.bucket_sec, wanted.start, wanted.end, queue, type, folded=of_all
        )
        if of_all:
            tallies = [row for row in tallies if row.queue != WEBHOOK_QUEUE]
        return await _aside(len(tallies), lambda: points(wanted, tallies, gauges, of_all=of_all))

    async def breakdown(self, wanted: Range, by: Literal["queue", "type"]) -> dict[str, Tally]:
        """Return the sums over the range, by queue or type."""
        await self.recorder.write_now()
        tallies, _ = await self._store.series(wanted.bucket_sec, wanted.start, wanted.end, folded=True)
        return await _aside(len(tallies), lambda: sums(tallies, by))

    async def _depths(self) -> dict[Pair, int]:
        return {
            (count.queue, count.type): count.count
            for count in await self._store.counts()
            if count.status == "queued"
        }

    async def _gauges(self) -> Gauges:
        live = await self._workers.live()
        scaling = self._metrics.scaling
        return Gauges(
            threads_used_max=sum(row.threads_used for row in live),
            threads_max=sum(row.threads for row in live),
            workers_max=len(live),
            autoscaler_wanted=None if scaling is None else scaling.decision.wanted,
        )

    async def metrics(self) -> bytes:
        """Return the text of `/metrics`, in the format of Prometheus."""
        dead = await self._store.page(JobQuery(JobFilter(dead_letters=True), limit=1))
        # Beyond the cap only all that failed is known, the discarded ones included.
        dead_letters = None if dead.total_capped else dead.total
        counts, workers, now = await self._store.counts(), await self._workers.all(), self._store.now_us()
        families = self._metrics.families(
            counts,
            workers,
            now,
            self._clock.monotonic() - self._started,
            oldest_due=await self._store.oldest_due(),
            dead_letters=dead_letters,
            store_pending=self._store.pending,
            monotonic=self._clock.monotonic(),
        )
        if self._aliases:
            aliases = metric_aliases.families(self._metrics, counts, workers, now, dead_letters)
            families = itertools.chain(families, aliases)
        return await text_in_turns(families)

    @contextlib.contextmanager
    def stream(self, what: str) -> Iterator[None]:
        """Count a client that follows `logs` or `events` for as long as the context lasts."""
        self._metrics.stream_opened(what)
        try:
            yield
        finally:
            self._metrics.stream_closed(what)


async def _aside(size: int, work: Callable[[], T]) -> T:
    """Run this work on `size` rows: here, or on another thread when it would block the loop for long."""
    return work() if size < FEW_ROWS else await asyncio.to_thread(work)
