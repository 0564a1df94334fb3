"""The coordinator as one object: what the API calls, and the loops that keep it going.

It owns no truth. Whatever it keeps in memory (sessions connected here, run times seen, who waits) can be lost with it.
"""

import asyncio
import contextlib
import hashlib
import itertools
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec
import structlog
from msgspec.structs import replace

from stoker.bus.base import WATCH_SECONDS, Bus, TypesNoted
from stoker.bus.cache import JobCache, NoCache
from stoker.bus.local import JobWaiters, NoBus
from stoker.clock import SECOND, Clock
from stoker.coordinator import metric_aliases
from stoker.coordinator.announced import Announced
from stoker.coordinator.bulk import Bulks
from stoker.coordinator.connection import LEASE_INTERVALS, Connection, Socket
from stoker.coordinator.dead_groups import DeadGroups
from stoker.coordinator.dispatch import Dispatch
from stoker.coordinator.durations import durations_of
from stoker.coordinator.events import LATEST_BULKS, Events, Message, success_rate, sum_by_status
from stoker.coordinator.http_workers import HttpWorkers
from stoker.coordinator.job_event_log import JobEventLog
from stoker.coordinator.job_types import TypeState, type_states
from stoker.coordinator.known_types import KnownTypes
from stoker.coordinator.metrics import Metrics, text_in_turns
from stoker.coordinator.output import JobOutput, JobProgress, LogRetention
from stoker.coordinator.peers import LOOK_SECONDS, Peers
from stoker.coordinator.queues import QueueState, queue_states
from stoker.coordinator.readiness import PATIENCE_SECONDS, Readiness
from stoker.coordinator.reports import ReportSink, each
from stoker.coordinator.run_times import RunTimes
from stoker.coordinator.run_workers import RunWorkers
from stoker.coordinator.schedules import JobRules, Schedules
from stoker.coordinator.schema_watch import SchemaWatch
from stoker.coordinator.series import Series
from stoker.coordinator.sessions import Sessions, kept_until
from stoker.coordinator.text_search import with_text
from stoker.coordinator.upkeep import Upkeep
from stoker.coordinator.waits import Waited, Waits
from stoker.domain.edit import Changes
from stoker.domain.errors import MissingError, StateConflict, Stopping, StoreUnavailable, UniqueConflict
from stoker.domain.explain import Explanation, Facts, Hand, explain
from stoker.domain.job import Job, JobDefaults
from stoker.domain.lifecycle import FINAL, Status
from stoker.domain.nearest import nearest
from stoker.domain.retry import RetryPolicy
from stoker.domain.scaling import ScalingState, pending_thread_seconds
from stoker.domain.series import Gauges, Pair, Point, Range, Tally, points, sums
from stoker.domain.short_ids import ShortId
from stoker.domain.unique import taken_by_replay
from stoker.domain.webhooks import WEBHOOK_QUEUE, only_delivers
from stoker.ids import NewId, new_id
from stoker.logs.log import JobLog, request_id
from stoker.settings import Settings
from stoker.store.base import Store
from stoker.store.bulk import Bulk, BulkAction, BulkStepped, changeable
from stoker.store.claims import Grant
from stoker.store.logs import LogPage, Logs, Selection
from stoker.store.outcomes import Completions, Finish
from stoker.store.reads import WHOLE_JOBS, Attempt, DeadLetterGroups, JobFilter, JobQuery, JobSummary, Page
from stoker.store.schedules import ScheduleChanged
from stoker.store.sessions import Expired, Session
from stoker.store.submissions import Accepted, Submission
from stoker.store.upkeep import Retention
from stoker.tracing import JobTracer
from stoker.wire import frames
from stoker.wire.http import (
    HttpAssignment,
    HttpClaim,
    HttpHello,
    HttpOrders,
    HttpReceipt,
    HttpReport,
    HttpWelcome,
)
from stoker.wire.run import RunHello, RunOutcome

if TYPE_CHECKING:
    from stoker.coordinator.webhooks import Webhooks

BULK: Final = 1_000
WARNED_TYPES: Final = 20
KEEP_GRACE_US: Final = 5 * SECOND
"""So long a job with `keep_sec: 0` is kept, for clients that wait for its end at any coordinator."""
FEW_ROWS: Final = 500
T = TypeVar("T")

log = structlog.get_logger()


class Submitted(msgspec.Struct, frozen=True):
    accepted: list[Accepted]
    warnings: list[str]


class StoreClock:
    """The time of day is the store's, for everybody: this machine's clock may be wrong. Durations are measured here."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.now_us = store.now_us
        self.monotonic = clock.monotonic


class Coordinator:
    def __init__(
        self,
        settings: Settings,
        store: Store,
        clock: Clock,
        job_log: JobLog,
        logs: Logs,
        *,
        bus: Bus | None = None,
        cache: JobCache | None = None,
        tracer: JobTracer | None = None,
        version: str = "0",
        new_id: NewId = new_id,
        spread: Callable[[], float] = lambda: random.uniform(-1.0, 1.0),
    ) -> None:
        self.settings = settings
        self.clock = StoreClock(store, clock)
        self._store = store
        self._event_log = JobEventLog(
            job_log, self.clock.now_us, self._worker_name, lambda type: type in self._sessions.types
        )
        self._bus = bus or NoBus()
        self._cache = cache or NoCache()
        # Two missed heartbeats: a worker that moved to another coordinator is not waited for longer than that.
        quiet_us = int(settings.worker_heartbeat_timeout_sec * SECOND * 2 / LEASE_INTERVALS)
        self._sessions = Sessions(quiet_us)
        self._announced = Announced(store, changed=lambda: self._bus.publish(TypesNoted()))
        self._run_times = RunTimes()
        self._waiters = JobWaiters()
        self._events = Events(
            store,
            new_epoch=new_id,
            workers=self.workers,
            scaling=lambda: self._scaling,
            progress=self.progress,
            monotonic=clock.monotonic,
            publish=self._bus.publish if store.shared else None,
        )
        self._output = JobOutput(
            store,
            logs,
            self._sessions,
            publish=self._bus.publish if store.shared else None,
            progressed=self._events.changed,
        )
        self._metrics = Metrics(version)
        store.on_transaction(self._metrics.on_transaction)
        self._readiness = Readiness(store, clock.monotonic)
        self._series = Series(
            store, self._metrics, shard=_shard(new_id()), depths=self._depths, gauges=self._gauges
        )
        self._tracer = tracer
        self._scaling: ScalingState | None = None
        self._started = clock.monotonic()
        self._leaving = False
        self._closing = False
        self._new_id = new_id
        self._accepted: list[Accepted] = []
        self._requests: list[str | None] = []
        policy = RetryPolicy(
            settings.retry_backoff_base_sec, settings.retry_backoff_cap_sec, settings.retry_jitter
        )
        self._schema = SchemaWatch(store, lambda: self._dispatch.wake())
        self._dispatch = Dispatch(
            store,
            self._sessions,
            self._run_times,
            settings.placement,
            self._on_dispatched,
            overdue=self._on_overdue,
            held_back=self._schema.outdated,
        )
        self._sink = ReportSink(
            store,
            self._run_times,
            policy,
            max_result_bytes=settings.max_result_bytes,
            spread=spread,
            wake=self._dispatch.wake,
            completed=self._on_completed,
            finished=self._on_finished,
            began=self._on_began,
        )
        self._http = HttpWorkers(
            store,
            self._sessions,
            self._sink,
            heartbeat_timeout_sec=settings.worker_heartbeat_timeout_sec,
            new_id=new_id,
            endpoints=settings.endpoints,
            max_result_bytes=settings.max_result_bytes,
        )
        retention = Retention(
            int(settings.retention_completed_sec * SECOND),
            int(settings.retention_failed_sec * SECOND),
            client_ids_us=int(settings.idempotency_ttl_sec * SECOND),
            keep_grace_us=KEEP_GRACE_US,
        )
        self._dead_groups = DeadGroups(store, clock.monotonic)
        self._bulks = Bulks(store, before=self._before_bulk, done=self._on_bulk_stepped)
        self._log_retention = LogRetention(
            store, logs, spared_us=min(retention.completed_us, retention.failed_us)
        )
        self._upkeep = Upkeep(
            store,
            clock,
            heartbeat_timeout_sec=settings.worker_heartbeat_timeout_sec,
            policy=policy,
            retention=retention,
            wake=self._dispatch.wake,
            expired=self._on_expired,
            promoted=self._events.changed_many,
            overdue=self._on_overdue,
            in_doubt=self._readiness.in_doubt,
        )
        self.schedules = Schedules(
            store,
            JobRules(
                settings.max_attempts, settings.priority_order, self._announced.of, settings.webhook_hosts
            ),
            new_id=new_id,
            monotonic=clock.monotonic,
            kept_us=retention.failed_us,
            wake=self._dispatch.wake,
            told=self._on_schedules,
            why_not=self._schema.why_not,
        )
        self._peers = Peers(
            self._bus,
            store,
            self._sessions,
            self._output,
            self._announced,
            wake=self._dispatch.wake,
            changed=self._on_changed_elsewhere,
            events=self._events,
            looked=lambda rows: self._run_workers.look(rows),
        )
        self._run_workers = RunWorkers(
            self._http,
            store,
            self._sessions,
            self._sink,
            policy,
            new_id=new_id,
            expired=self._on_expired,
            take_over=self._peers.take_over,
        )
        self._webhooks = self._deliverer(new_id) if settings.webhook_hosts else None
        self._known_types = KnownTypes(store, self._sessions, self._peers)
        self._waits = Waits(store, self._waiters, self._peers, lambda: self._closing)
        logs.on_written(self._peers.tell_changed)
        self._tasks: list[asyncio.Task[None]] = []

    def _deliverer(self, new_id: NewId) -> "Webhooks":
        from stoker.coordinator.webhooks import (
            Webhooks,  # most systems have none, and it brings an HTTP client
        )

        return Webhooks(
            self._store,
            self._sessions,
            self._sink,
            secret=self.settings.webhook_secret or "",
            hosts=self.settings.webhook_hosts,
            heartbeat_timeout_sec=self.settings.worker_heartbeat_timeout_sec,
            new_id=new_id,
        )

    # ── life ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def prepare(self) -> None:
        """Read what must be known before the first job is accepted. Raises StoreUnavailable."""
        await self._announced.read()

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._dispatch.run(), name="stoker-dispatch"),
            asyncio.create_task(self._upkeep.run(), name="stoker-upkeep"),
            asyncio.create_task(self._schema.run(), name="stoker-schema-watch"),
            asyncio.create_task(self._log_retention.run(), name="stoker-log-retention"),
            asyncio.create_task(self._series.run(), name="stoker-series"),
            asyncio.create_task(self._bulks.run(), name="stoker-bulks"),
            asyncio.create_task(self._dead_groups.run(), name="stoker-dead-groups"),
            asyncio.create_task(self.schedules.run(), name="stoker-schedules"),
        ]
        if self._webhooks is not None:
            self._tasks.append(asyncio.create_task(self._webhooks.run(), name="stoker-webhooks"))
        if self._store.shared:
            self._peers.start()
            self._tasks.append(asyncio.create_task(self._peers.run(), name="stoker-peers"))
        for task in self._tasks:
            task.add_done_callback(_complain)

    def leave(self) -> None:
        """Accept nothing new from here on. What is under way goes on until `stop`."""
        self._leaving = True

    async def stop(self) -> None:
        """Stop handing out work and let go of everybody who waits; the store is closed by its owner."""
        self._leaving = self._closing = True
        self._waiters.finished_all()
        self._output.ended_all()
        await self._events.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._dead_groups.close()
        await self._http.close()
        if self._webhooks is not None:
            await self._webhooks.close()
        await self._readiness.close()
        await self._series.close()

    # ── jobs ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def submit(self, jobs: Sequence[Submission]) -> Submitted:
        if self._leaving:
            raise Stopping
        self._schema.check()
        # Woken before the commit, so that a job for which a worker is free is stored as already claimed.
        self._dispatch.wake()
        accepted = await self._store.insert(jobs)
        self._account(accepted)
        if self._tracer is not None:
            new = [job for item in accepted if not item.repeated for job in item.batch]
            self._tracer.submitted(new, self._store.now_us())
        missing = False
        for item in accepted:
            if item.batch.template.status == "scheduled":
                self._upkeep.nudge()
            if item.unique == "replaced":
                self._events.changed(item.batch.ids)
                self._peers.tell_changed(item.batch.ids)
            missing = missing or not self._sessions.serves(item.batch.template.type)
        return Submitted(accepted, await self._warnings(accepted) if missing else [])

    def _account(self, accepted: list[Accepted]) -> None:
        """Count and log, once a turn of the loop for everybody whose jobs were stored together."""
        if not self._accepted:
            asyncio.get_running_loop().call_soon(self._account_for_all)
        self._accepted += accepted
        self._requests += [request_id.get()] * len(accepted)

    def _account_for_all(self) -> None:
        if not self._accepted:
            return
        accepted, self._accepted = self._accepted, []
        requests, self._requests = self._requests, []
        self._metrics.on_submitted(accepted)
        if self._events.heeded:
            self._events.submitted(accepted)
        self._event_log.submitted(accepted, requests)

    async def _warnings(self, accepted: Sequence[Accepted]) -> list[str]:
        """Return warnings for the submitter about types that no worker seems to serve."""
        types = {item.batch.template.type for item in accepted}
        missing = sorted(type for type in types if not self._sessions.serves(type))
        if missing and self._store.shared:
            served = await self._peers.serves(missing)
            missing = [type for type in missing if type not in served]
        return [self._warning(type) for type in missing[:WARNED_TYPES]]

    def _warning(self, type: str) -> str:
        meant = nearest(type, self._sessions.types)
        hint = "" if meant is None else f"; did you mean {meant}?"
        return f"no live worker serves the type {type!r}; the job waits until one does{hint}"

    async def is_announced(self, type: str) -> bool:
        return await self._known_types.has(type)

    def defaults(self, type: str) -> JobDefaults:
        return self._announced.of(type)

    async def known_key(self, client: str, key: str) -> bool:
        return await self._store.known_key(client, key)

    async def known_ids(self, ids: Sequence[str]) -> set[str]:
        return {state.id for state in await self._store.states(ids)}

    async def get(self, id: str) -> Job:
        cached = await self._cache.get(id)
        return cached if cached is not None else await self._stored(id)

    async def lookup(self, part: ShortId, limit: int) -> list[JobSummary]:
        found = await self._store.summaries(await self._store.ids_like(part, limit))
        return sorted(found, key=lambda job: job.id, reverse=True)

    async def _stored(self, id: str) -> Job:
        asked_at = time.monotonic()
        (job,) = await self._store.get([id])
        if job is None:
            raise MissingError(f"there is no job {id}")
        self._cache.put(job, asked_at)
        return job

    async def wait(self, id: str, seconds: float) -> Job:
        with self._waiters.watch(id) as ended:
            job = await self.get(id)
            for left in self._looks(id, seconds):
                if job.status in FINAL or self._closing:
                    break
                await _news(ended, left)
                job = await self.get(id)
            return job

    async def wait_many(self, ids: Collection[str], seconds: float, limit: int) -> Waited:
        return await self._waits.wait(ids, seconds, limit)

    def _looks(self, id: str, seconds: float) -> Iterator[float]:
        """How long to wait for news of a job before each look at it, until the time is up. What happens here is
        heard of here; what happens at another coordinator is told by it, or else found out by looking every second."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        watched_until = 0.0
        while (left := deadline - loop.time()) > 0:
            if self._store.shared:
                if loop.time() >= watched_until:
                    self._peers.watch(id)
                    watched_until = loop.time() + WATCH_SECONDS / 2
                left = min(left, LOOK_SECONDS)
            yield left

    async def attempts(self, id: str) -> list[Attempt]:
        return await self._store.attempts(id)

    async def why(self, id: str) -> tuple[Job, Explanation]:
        """Why the job is where it is."""
        job = await self.get(id)
        if job.status != "queued":
            return job, explain(job, Facts(self._store.now_us(), _hands(await self.workers())))
        rows = await self._store.sessions()
        facts = Facts(
            self._store.now_us(),
            _hands(map(self._fresh, rows)),
            (await self._store.paused()).get(job.queue),
            await self._store.line(job),
            self._run_times.us.get(job.type),
            kept_until(job.type, rows),
        )
        return job, explain(job, facts)

    def progress(self, job: Job | JobSummary) -> JobProgress | None:
        return self._output.progress(job)

    def follow(self, position: str | None) -> AsyncGenerator[Message, None]:
        """Everything that happens, from a position on."""
        return self._events.follow(position)

    @contextlib.contextmanager
    def watching(self, id: str) -> Iterator[Callable[[float], Awaitable[bool]]]:
        """Register the caller as a watcher of this job. Yields a function that waits for a change of the job, for at most
        the given number of seconds, and returns False when this coordinator ends."""
        with self._events.watch_job(id) as news:

            async def wait(seconds: float) -> bool:
                for left in self._looks(id, seconds):
                    if self._closing or await _news(news, left) or self._store.shared:
                        break
                return not self._closing

            yield wait

    async def logs(self, which: Selection, after: int = 0, wait: float = 0.0) -> LogPage:
        """Output after a position; when there is none yet, waits up to `wait` seconds for some, or for the end."""
        with self._output.watch(which.job_id) as news:
            page = await self._output.read(await self.get(which.job_id), which, after)
            for left in self._looks(which.job_id, wait):
                if page.entries or page.ended or self._closing:
                    break
                await _news(news, left)
                page = await self._output.read(await self.get(which.job_id), which, after)
        return msgspec.structs.replace(page, closing=True) if self._closing else page

    async def page(self, query: JobQuery) -> Page:
        filter = await with_text(self._store, query.filter)
        return await self._store.page(replace(query, filter=filter))

    async def cancel(self, id: str) -> Job:
        asked_at = self._store.now_us()
        (job,) = await self._store.cancel([id])
        if job is None:
            raise MissingError(f"there is no job {id}")
        if job.status in ("completed", "failed"):
            raise StateConflict(f"job {id} is {job.status} already and cannot be cancelled")
        self._on_cancelled([job], asked_at)
        return job

    def _on_cancelled(self, jobs: Sequence[Job], asked_at: int) -> None:
        """Pass on that these jobs were cancelled: to the workers of those that run, and of the others to the metrics, the
        event stream and the waiting requests."""
        self._deliver_soon()
        for job in jobs:
            if job.status == "running":
                self._peers.cancel(job)
                self._events.changed([job.id])
                log.info("job_cancel_requested", job_id=job.id)
            elif job.completed_at is not None and job.completed_at >= asked_at:  # not cancelled before
                self._metrics.on_cancelled(job)
                self._events.changed([job.id], "cancelled")
                if self._tracer is not None:
                    self._tracer.cancelled(job, job.completed_at)
                log.info("job_cancelled", job_id=job.id)
        over = [job.id for job in jobs if job.status != "running"]
        self._waiters.finished(over)
        self._output.ended(over)
        self._peers.tell_changed(over)

    def _on_overdue(self, jobs: Sequence[Job]) -> None:
        """Tell everybody concerned of jobs that ended while they waited, because their expiry or deadline passed."""
        self._metrics.on_overdue(jobs)
        for job in jobs:
            self._events.changed([job.id], job.status)
            if self._tracer is not None:
                self._tracer.cancelled(job, job.completed_at or job.created_at)
            if job.status == "cancelled":
                log.info("job_expired", job_id=job.id)
            else:
                log.info("job_overdue", job_id=job.id)
        over = [job.id for job in jobs]
        self._waiters.finished(over)
        self._output.ended(over)
        self._peers.tell_changed(over)
        self._dead_groups.changed()

    async def edit(self, id: str, changes: Changes) -> Job:
        job = await self._store.edit(id, changes)
        if job is None:
            raise MissingError(f"there is no job {id}")
        self._dispatch.wake()
        if job.status == "scheduled":
            self._upkeep.nudge()
        self._events.changed([id])
        self._peers.tell_changed([id])
        log.info("job_edited", job_id=id)
        return job

    async def retry(self, id: str) -> Job:
        job = await self._stored(id)
        if job.status not in ("failed", "cancelled", "scheduled"):
            raise StateConflict(
                f"job {id} is {job.status}; only failed, cancelled and scheduled jobs can be retried"
            )
        await self._cache.forget([id])
        self._dispatch.wake()
        (after,) = await self._store.replay([id])
        if after is None:
            raise MissingError(f"there is no job {id}")
        await self._check_key(after)
        self._on_replayed([after])
        return after

    async def _check_key(self, job: Job) -> None:
        """Raise for a job that a replay left as it was, because another one holds its unique key."""
        key = taken_by_replay(job) if job.status in FINAL else None
        holder = None if key is None else await self._store.key_holder(key)
        if key is not None:
            (held,) = [None] if holder is None else await self._store.get([holder])
            status = "over by now" if held is None else held.status
            raise UniqueConflict(key, holder or "that has just ended", status)

    async def keys_taken(self, ids: Sequence[str] | None, filter: JobFilter | None) -> int:
        """Return how many of these dead letters cannot be replayed now, because other jobs hold their unique keys."""
        if ids is None:
            return await self._store.keys_taken(filter or JobFilter())
        found = [
            job
            for first in range(0, len(ids), WHOLE_JOBS)
            for job in await self._store.get(ids[first : first + WHOLE_JOBS])
        ]
        return sum(
            job is not None and _is_dead_letter(job) and taken_by_replay(job) is not None for job in found
        )

    def _on_replayed(self, jobs: Sequence[Job]) -> None:
        self._dispatch.wake()
        ids = [job.id for job in jobs]
        self._events.changed(ids)
        self._peers.tell_changed(ids)
        for id in ids:
            log.info("job_replayed", job_id=id)

    async def replay(
        self, ids: Sequence[str] | None, filter: JobFilter | None, limit: int | None = None
    ) -> int:
        """Run dead letters again: those named, or those that match, at most `limit` of these."""
        if ids is not None:
            await self._cache.forget(ids)
            dead = [
                job.id
                for first in range(0, len(ids), WHOLE_JOBS)
                for job in await self._store.get(ids[first : first + WHOLE_JOBS])
                if job is not None and _is_dead_letter(job)
            ]
            after = await self._store.replay(dead) if dead else []
            count = sum(job is not None and job.status not in FINAL for job in after)
            self._events.changed(dead)
        else:
            wanted = filter or JobFilter()
            count = await self._in_bulk(lambda most: self._store.replay_where(wanted, most), limit)
            self._events.changed_many(count)
        self._dead_groups.changed()
        self._dispatch.wake()
        log.info("dead_letters_replayed", count=count)
        return count

    async def discard(
        self, ids: Sequence[str] | None, filter: JobFilter | None, limit: int | None = None
    ) -> int:
        if ids is not None:
            await self._cache.forget(ids)
            count = await self._store.discard(ids)
            self._events.changed(ids)
        else:
            wanted = filter or JobFilter()
            count = await self._in_bulk(lambda most: self._store.discard_where(wanted, most), limit)
            self._events.changed_many(count)
        self._dead_groups.changed()
        self._events.look_soon()
        log.info("dead_letters_discarded", count=count)
        return count

    async def _in_bulk(self, step: Callable[[int], Awaitable[int]], limit: int | None) -> int:
        """Repeat the step until it changes nothing, or `limit` is reached. Return how many jobs were changed. The cache is
        emptied before each step, so that no reader gets the jobs as they were."""
        total = 0
        while limit is None or total < limit:
            await self._cache.forget_all()
            count = await step(BULK if limit is None else min(BULK, limit - total))
            if not count:
                break
            total += count
        return total

    async def dead_letter_groups(self, limit: int) -> DeadLetterGroups:
        return await self._dead_groups.get(limit)

    # ── bulk operations ────────────────────────────────────────────────────────────────────────────────────────────

    async def start_bulk(self, action: BulkAction, filter: JobFilter) -> Bulk:
        filter = await with_text(self._store, filter)
        # Counted before it is narrowed to those that are there now: the counters know more totals than the jobs do.
        page = await self._store.page(JobQuery(changeable(action, filter), limit=1, summary=True))
        bulk = Bulk(
            self._new_id(),
            action,
            filter,
            "running",
            page.total,
            page.total_capped,
            0,
            0,
            self._store.now_us(),
        )
        await self._store.put_bulk(bulk)
        self._bulks.nudge()
        self._events.look_soon()
        log.info("bulk_accepted", bulk_id=bulk.id, action=action, total=bulk.total)
        return bulk

    async def bulk(self, id: str) -> Bulk:
        return _found(await self._store.bulk(id), id)

    async def bulks(self) -> list[Bulk]:
        return await self._store.bulks(LATEST_BULKS)

    async def stop_bulk(self, id: str) -> Bulk:
        bulk = _found(await self._store.stop_bulk(id), id)
        self._events.look_soon()
        log.info("bulk_stopped", bulk_id=id, status=bulk.status, changed=bulk.changed)
        return bulk

    async def _before_bulk(self, action: BulkAction, ids: Sequence[str]) -> None:
        """Remove the jobs from the cache, so that no reader gets them as they were. A cancel needs none of this: the cache
        holds only jobs that are over, which no cancel changes."""
        if action != "cancel" and ids:
            await self._cache.forget(ids)

    def _on_bulk_stepped(self, stepped: BulkStepped) -> None:
        bulk = stepped.bulk
        self._dead_groups.changed()
        if bulk.action == "cancel":
            self._on_cancelled(stepped.jobs, 0)
        elif bulk.action == "retry":
            self._on_replayed(stepped.jobs)
        elif stepped.jobs:
            self._events.changed([job.id for job in stepped.jobs])
            log.info("dead_letters_discarded", count=len(stepped.jobs))
        self._events.look_soon()
        if bulk.status == "done":
            log.info("bulk_done", bulk_id=bulk.id, done=bulk.done, changed=bulk.changed)

    # ── workers ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def workers(self) -> list[Session]:
        rows = await self._store.sessions()
        return [self._fresh(row) for row in rows if row.status != "gone" and not only_delivers(row.queues)]

    def _fresh(self, row: Session) -> Session:
        """A row with what only the coordinator that has the connection knows."""
        session = self._sessions.get(row.id)
        return row if session is None else msgspec.structs.replace(row, threads_used=session.threads_used)

    async def drain(self, worker_id: str) -> Session:
        row = self._named(worker_id, await self._store.sessions())
        if row is None or not await self._store.set_session_status(row.id, "draining"):
            raise MissingError(f"there is no live worker {worker_id}; GET /workers lists them")
        self._peers.drain(row.id)
        log.info("worker_draining", worker_id=row.id, worker=row.name)
        return msgspec.structs.replace(row, status="draining")

    def _named(self, worker_id: str, rows: Sequence[Session]) -> Session | None:
        live = [row for row in rows if row.status in ("live", "draining")]
        named = [row for row in live if row.id == worker_id] or [row for row in live if row.name == worker_id]
        return named[0] if len(named) == 1 else None

    async def worker_socket(self, socket: Socket) -> None:
        connection = Connection(
            socket,
            store=self._store,
            sessions=self._sessions,
            sink=self._sink,
            output=self._output,
            announced=self._announced,
            schedules=self.schedules,
            heartbeat_timeout_sec=self.settings.worker_heartbeat_timeout_sec,
            max_result_bytes=self.settings.max_result_bytes,
        )
        await connection.run()

    async def http_register(self, hello: HttpHello) -> HttpWelcome:
        return await self._http.register(hello)

    async def http_admit(self, worker_id: str, secret: str | None) -> None:
        await self._http.admit(worker_id, secret)

    async def http_lease(self, worker_id: str, max_jobs: int, wait: float) -> list[HttpAssignment]:
        return await self._http.lease(worker_id, max_jobs, wait)

    def http_undelivered(self, worker_id: str, jobs: Sequence[HttpAssignment]) -> None:
        self._http.undelivered(worker_id, jobs)

    async def http_heartbeat(self, worker_id: str, held: Sequence[HttpClaim]) -> HttpOrders:
        return await self._http.heartbeat(worker_id, held)

    async def run_register(self, hello: RunHello) -> HttpWelcome:
        return await self._run_workers.register(hello)

    async def run_heartbeat(self, worker_id: str) -> None:
        await self._run_workers.heartbeat(worker_id)

    async def run_complete(self, ref: frames.ClaimRef, outcome: RunOutcome) -> None:
        await self._run_workers.complete(ref, outcome)

    async def http_report(self, worker_id: str, reports: Sequence[HttpReport]) -> HttpReceipt:
        return await self._http.report(worker_id, reports)

    # ── numbers ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def queues(self) -> list[QueueState]:
        store = self._store
        return queue_states(await store.counts(), await store.paused(), await store.oldest_due())

    async def types(self) -> list[TypeState]:
        """Everything that can be submitted."""
        rows = [row for row in await self._store.sessions() if not only_delivers(row.queues)]
        return type_states(rows, await self._store.noted_types(), self._run_times.p50_us)

    async def set_paused(self, queue: str, paused: bool) -> QueueState:
        await self._store.set_paused(queue, paused)
        self._events.look_soon()
        log.info("queue_paused" if paused else "queue_resumed", queue=queue)
        if not paused:
            self._peers.resumed()
        nothing = QueueState(queue, {}, None, None)
        return next((state for state in await self.queues() if state.name == queue), nothing)

    async def stats(self) -> dict[str, object]:
        counts = await self._store.counts()
        by_status = sum_by_status(counts)
        queued = [count for count in counts if count.status == "queued" and count.queue != WEBHOOK_QUEUE]
        paused = await self._store.paused()
        live = [row for row in await self.workers() if row.status in ("live", "draining")]
        rate = success_rate(by_status)
        uptime = round(self.clock.monotonic() - self._started, 3)
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
            "autoscaler": self._scaling,
        }

    def scaling_decided(self, state: ScalingState) -> None:
        """An autoscaler tells what it decided: news for `/stats` and `/metrics`."""
        self._scaling = state
        self._metrics.on_scaling(state, self.clock.monotonic())

    async def series(self, wanted: Range, queue: str | None, type: str | None) -> list[Point]:
        await self._series.settle()
        of_all = queue is None and type is None
        tallies, gauges = await self._store.series(
            wanted.bucket_sec, wanted.start, wanted.end, queue, type, folded=of_all
        )
        if of_all:
            tallies = [row for row in tallies if row.queue != WEBHOOK_QUEUE]
        return await _aside(len(tallies), lambda: points(wanted, tallies, gauges, of_all=of_all))

    async def breakdown(self, wanted: Range, by: Literal["queue", "type"]) -> dict[str, Tally]:
        await self._series.settle()
        tallies, _ = await self._store.series(wanted.bucket_sec, wanted.start, wanted.end, folded=True)
        return await _aside(len(tallies), lambda: sums(tallies, by))

    async def _depths(self) -> dict[Pair, int]:
        return {
            (count.queue, count.type): count.count
            for count in await self._store.counts()
            if count.status == "queued"
        }

    async def _gauges(self) -> Gauges:
        live = [row for row in await self.workers() if row.status in ("live", "draining")]
        return Gauges(
            threads_used_max=sum(row.threads_used for row in live),
            threads_max=sum(row.threads for row in live),
            workers_max=len(live),
            autoscaler_wanted=None if self._scaling is None else self._scaling.decision.wanted,
        )

    async def not_ready(self) -> list[str]:
        if self._leaving:
            return ["the coordinator is shutting down"]
        why_not = self._schema.why_not() or await self._readiness.why_not()
        if why_not is not None:
            return [f"jobs cannot be stored: {why_not}"]
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                rows = await self._store.sessions()
        except (StoreUnavailable, TimeoutError) as error:
            return [f"the store does not answer: {str(error) or 'no answer in time'}"]
        if not any(row.status == "live" and not only_delivers(row.queues) for row in rows):
            return ["no worker is registered; start one with: stoker worker"]
        return []

    async def metrics(self) -> bytes:
        dead = await self._store.page(JobQuery(JobFilter(dead_letters=True), limit=1))
        # Beyond the cap only all that failed is known, the discarded ones included.
        dead_letters = None if dead.total_capped else dead.total
        counts, workers, now = await self._store.counts(), await self.workers(), self._store.now_us()
        families = self._metrics.families(
            counts,
            workers,
            now,
            self.clock.monotonic() - self._started,
            oldest_due=await self._store.oldest_due(),
            dead_letters=dead_letters,
            store_pending=self._store.pending,
            monotonic=self.clock.monotonic(),
        )
        if self.settings.metrics_aliases:
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

    # ── what the loops tell ────────────────────────────────────────────────────────────────────────────────────────

    def _deliver_soon(self) -> None:
        """Jobs ended: their webhooks, if they have any, are queued now."""
        if self._webhooks is not None:
            self._dispatch.wake()

    def _on_began(self, ids: Sequence[str]) -> None:
        self._events.changed(ids)
        self._peers.tell_changed(ids)

    def _worker_name(self, session_id: str) -> str:
        session = self._sessions.get(session_id)
        return session_id if session is None else session.name

    def _on_dispatched(self, grants: list[Grant]) -> None:
        # In the next turn: who submitted these, in the same transaction, may hear of it only later in this one, and a job is
        # submitted before it is dispatched, also in the log.
        asyncio.get_running_loop().call_soon(self._tell_dispatched, grants)

    def _tell_dispatched(self, grants: list[Grant]) -> None:
        self._account_for_all()
        if self._events.heeded:
            self._events.dispatched(grants)
        for grant in grants:
            self._peers.tell_changed(grant.batch.ids)
        self._event_log.dispatched(grants)

    def _on_completed(self, completed: Sequence[Completions]) -> None:
        self._deliver_soon()
        durations = durations_of(completed)
        self._metrics.on_completed(durations)
        self._series.on_completed(durations)
        if self._tracer is not None:
            for claim, outcome in each(completed):
                self._tracer.ended(claim, outcome, "completed")
        if self._events.heeded:
            self._events.completed(completed, durations)
        for batch in completed:
            self._waiters.finished(batch.ids)
            self._output.ended(batch.ids)
            self._peers.tell_changed(batch.ids)
        self._event_log.completed(completed)

    def _on_finished(self, ended: Sequence[tuple[Finish, Status | None]]) -> None:
        """Attempts that did not complete their jobs, and those that came too late."""
        self._deliver_soon()
        self._metrics.on_ended(ended)
        self._series.on_ended(ended)
        if self._tracer is not None:
            for finish, status in ended:
                self._tracer.ended(finish.claim, finish.outcome, status)
        if self._events.heeded:
            self._events.ended(ended)
        self._waiters.finished(finish.claim.id for finish, status in ended if status in FINAL)
        self._output.ended(finish.claim.id for finish, status in ended if status is not None)
        self._peers.tell_changed(finish.claim.id for finish, status in ended if status is not None)
        if any(status == "scheduled" for _, status in ended):
            self._upkeep.nudge()
        self._event_log.ended(ended)

    def _on_schedules(self, changed: Sequence[ScheduleChanged]) -> None:
        """Jobs that schedules made, cancelled or released."""
        accepted = [item for one in changed for item in one.accepted]
        if accepted:
            self._account(accepted)
            if self._tracer is not None:
                new = [item.batch.template for item in accepted if not item.repeated]
                self._tracer.submitted(new, self._store.now_us())
            if any(item.batch.template.status == "scheduled" for item in accepted):
                self._upkeep.nudge()
        cancelled = [job for one in changed for job in one.cancelled]
        if cancelled:
            self._on_cancelled(cancelled, min(job.cancel_requested_at or 0 for job in cancelled))
        released = [id for one in changed for id in one.released]
        if released:
            self._dispatch.wake()
            self._upkeep.nudge()  # one that was held back beyond its tick may have a later time of its own
            self._events.changed(released)
            self._peers.tell_changed(released)
        self._metrics.on_schedules(changed)
        for one in changed:
            for tick in one.ticks:
                if tick.outcome != "fired":
                    log.info(
                        "schedule_tick_skipped" if tick.outcome == "skipped" else "schedule_tick_missed",
                        schedule=tick.schedule,
                        tick=tick.tick,
                        last=tick.last,
                        reason=tick.reason,
                    )
            if (
                one.after is not None
                and one.after.pause_reason == "failures"
                and not (one.before and one.before.paused)
            ):
                log.warning("schedule_failing", schedule=one.after.name, failures=one.after.failures)

    def _on_expired(self, expired: Expired) -> None:
        self._deliver_soon()
        for id in expired.sessions:
            session = self._sessions.get(id)
            if session is not None:
                self._sessions.remove(session, self._store.now_us())
                session.send(frames.Refused("this session was given up for lost", True))
            self._http.forget(id)
            log.warning("worker_stale", worker_id=id)
        self._metrics.on_expired(expired)
        self._series.on_expired(expired)
        if self._tracer is not None:
            for lost in expired.losses:
                self._tracer.lost(lost.claim, lost.status, self._store.now_us())
        for lost in expired.losses:
            log.warning(
                "job_lease_expired",
                job_id=lost.claim.id,
                worker_id=lost.claim.session_id,
                claim=lost.claim.claim_id,
                status=lost.status,
            )
        self._events.expired(expired)
        self._waiters.finished(lost.claim.id for lost in expired.losses if lost.status in FINAL)
        self._output.ended(lost.claim.id for lost in expired.losses)
        self._peers.tell_changed(lost.claim.id for lost in expired.losses)

    def _on_changed_elsewhere(self, ids: Sequence[str]) -> None:
        self._events.heard_changed(ids)
        self._waiters.finished(ids)
        self._output.news(ids)


async def _news(event: asyncio.Event, seconds: float) -> bool:
    """Wait for news, but not longer than this; whether there were any."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True


def _hands(rows: Iterable[Session]) -> list[Hand]:
    return [
        Hand(
            row.id,
            row.name,
            row.threads,
            max(0, row.threads - row.threads_used),
            frozenset(row.types),
            None if row.queues is None else frozenset(row.queues),
            row.labels,
            row.status == "live",
            row.any_type,
        )
        for row in rows
        if row.status in ("live", "draining")
    ]


async def _aside(size: int, work: Callable[[], T]) -> T:
    """Work on so many rows: at once, or, where it would keep others waiting, on another thread."""
    return work() if size < FEW_ROWS else await asyncio.to_thread(work)


def _shard(id: str) -> int:
    """A number of this life of the coordinator, from a fresh id."""
    return int.from_bytes(hashlib.blake2b(id.encode(), digest_size=7).digest(), "big")


def _found(bulk: Bulk | None, id: str) -> Bulk:
    if bulk is None:
        raise MissingError(f"there is no bulk operation {id}; GET /bulk lists the latest")
    return bulk


def _is_dead_letter(job: Job) -> bool:
    return job.status == "failed" and job.discarded_at is None


def _complain(task: asyncio.Task[None]) -> None:
    """A loop that ends by itself is a bug, and a silent one would leave jobs stuck: say so loudly."""
    if not task.cancelled() and task.exception() is not None:
        log.critical("loop_died", loop=task.get_name(), error=repr(task.exception()))
