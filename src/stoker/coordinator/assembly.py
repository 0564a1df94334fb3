"""The coordinator, put together: which objects it consists of, what each of them knows, and the loops that keep it going.

It owns no truth. What it keeps in memory (sessions connected here, run times seen, requests that wait) can be lost with it.
"""

import asyncio
import hashlib
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from stoker.bus.base import Bus, TypesNoted
from stoker.bus.cache import JobCache, NoCache
from stoker.bus.local import NoBus
from stoker.clock import SECOND, Clock
from stoker.coordinator.announced import Announced
from stoker.coordinator.bulk import Bulks
from stoker.coordinator.connection import LEASE_INTERVALS, Connection
from stoker.coordinator.dead_groups import DeadGroups
from stoker.coordinator.dead_letters import DeadLetterService
from stoker.coordinator.dispatch import Dispatch
from stoker.coordinator.events import Events
from stoker.coordinator.http_workers import HttpWorkers
from stoker.coordinator.job_event_log import JobEventLog
from stoker.coordinator.job_output.output import JobOutput
from stoker.coordinator.job_output.retention import LogRetention
from stoker.coordinator.job_output.service import OutputService
from stoker.coordinator.job_tracing import TracedJobs
from stoker.coordinator.jobs import JobService
from stoker.coordinator.known_types import KnownTypes
from stoker.coordinator.metrics import Metrics
from stoker.coordinator.observers import JobObserver, Observers, WakeOnEnd
from stoker.coordinator.peers import Peers
from stoker.coordinator.queues import QueueService
from stoker.coordinator.readiness import Readiness
from stoker.coordinator.reports import ReportSink
from stoker.coordinator.run_times import RunTimes
from stoker.coordinator.run_workers import RunWorkers
from stoker.coordinator.schedules import JobRules, Schedules
from stoker.coordinator.schema_watch import SchemaWatch
from stoker.coordinator.services import Services
from stoker.coordinator.sessions import Sessions
from stoker.coordinator.stats import StatsService
from stoker.coordinator.upkeep import Upkeep
from stoker.coordinator.waits import Waits
from stoker.coordinator.workers import WorkerList, WorkerService
from stoker.domain.retry import RetryPolicy
from stoker.ids import NewId, new_id
from stoker.logs.log import JobLog
from stoker.settings import Settings
from stoker.store.base import Store
from stoker.store.logs import Logs
from stoker.store.upkeep import Retention
from stoker.tracing import JobTracer

if TYPE_CHECKING:
    from stoker.coordinator.webhooks import Webhooks

KEEP_GRACE_US: Final = 5 * SECOND
"""How long a job with `keep_sec: 0` is kept after its end, so that waiting clients of any coordinator can read it."""

log = structlog.get_logger()


class StoreClock:
    """Gives all coordinators the store's time of day, because a machine's own clock may be wrong. Durations are measured
    by the machine's monotonic clock."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.now_us = store.now_us
        self.monotonic = clock.monotonic


class Coordinator(Services):
    """Builds the parts of a coordinator in named steps, starts their loops and stops them."""

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
        """`spread` is the jitter of retries, between -1 and 1."""
        self.settings = settings
        self.clock = StoreClock(store, clock)
        self._store = store
        self._bus = bus or NoBus()
        self._cache = cache or NoCache()
        self._new_id = new_id
        self.observers = Observers()
        self._tasks: list[asyncio.Task[None]] = []
        self._create_memory(version)
        self._create_output_and_events(logs)
        self._create_dispatch_and_reports(spread)
        self._create_upkeep(clock, logs)
        self._create_peers()
        self._create_worker_services()
        self._create_services()
        self.observers.register(*self._observers_in_order(job_log, tracer))
        logs.on_written(self._peers.changed)

    # ── the parts, each step made of those before it ───────────────────────────────────────────────────────────────

    def _create_memory(self, version: str) -> None:
        """Create what is kept in memory only: sessions, run times, counters."""
        timeout_sec = self.settings.worker_heartbeat_timeout_sec
        # Two missed heartbeats: a worker that moved to another coordinator is not waited for longer than that.
        self._sessions = Sessions(int(timeout_sec * SECOND * 2 / LEASE_INTERVALS))
        self._worker_list = WorkerList(self._store, self._sessions)
        self._announced = Announced(self._store, changed=lambda: self._bus.publish(TypesNoted()))
        self._run_times = RunTimes()
        self._metrics = Metrics(version)
        self._store.on_transaction(self._metrics.on_transaction)
        self._schema = SchemaWatch(self._store, lambda: self._dispatch.wake())
        self.readiness = Readiness(self._store, self.clock.monotonic, self._schema.why_not)

    def _create_output_and_events(self, logs: Logs) -> None:
        """Create what clients look at: job output, live events, statistics."""
        publish = self._bus.publish if self._store.shared else None
        self._job_output = JobOutput(self._store, logs, self._sessions, self.observers, publish=publish)
        self.events = Events(
            self._store,
            new_epoch=self._new_id,
            workers=self._worker_list.all,
            scaling=lambda: self._metrics.scaling,
            progress=self._job_output.progress,
            monotonic=self.clock.monotonic,
            publish=publish,
        )
        self.stats = StatsService(
            self._store,
            self.clock,
            workers=self._worker_list,
            run_times=self._run_times,
            metrics=self._metrics,
            shard=_shard(self._new_id()),
            aliases=self.settings.metrics_aliases,
        )

    def _create_dispatch_and_reports(self, spread: Callable[[], float]) -> None:
        """Create the parts that send jobs to workers and store their reports."""
        settings = self.settings
        self._policy = RetryPolicy(
            settings.retry_backoff_base_sec, settings.retry_backoff_cap_sec, settings.retry_jitter
        )
        self._dispatch = Dispatch(
            self._store,
            self._sessions,
            self._run_times,
            settings.placement,
            self.observers,
            self._schema.outdated,
        )
        self._sink = ReportSink(
            self._store,
            self._run_times,
            self._policy,
            max_result_bytes=settings.max_result_bytes,
            spread=spread,
            wake=self._dispatch.wake,
            observers=self.observers,
        )

    def _create_upkeep(self, clock: Clock, logs: Logs) -> None:
        """Create the periodic loops: leases, due jobs, schedules, retention."""
        settings = self.settings
        retention = Retention(
            int(settings.retention_completed_sec * SECOND),
            int(settings.retention_failed_sec * SECOND),
            client_ids_us=int(settings.idempotency_ttl_sec * SECOND),
            keep_grace_us=KEEP_GRACE_US,
        )
        self._dead_groups = DeadGroups(self._store, clock.monotonic)
        self._log_retention = LogRetention(
            self._store, logs, spared_us=min(retention.completed_us, retention.failed_us)
        )
        self._upkeep = Upkeep(
            self._store,
            clock,
            heartbeat_timeout_sec=settings.worker_heartbeat_timeout_sec,
            policy=self._policy,
            retention=retention,
            wake=self._dispatch.wake,
            observers=self.observers,
            in_doubt=self.readiness.in_doubt,
        )
        rules = JobRules(
            settings.max_attempts, settings.priority_order, self._announced.of, settings.webhook_hosts
        )
        self.schedules = Schedules(
            self._store,
            rules,
            new_id=self._new_id,
            monotonic=clock.monotonic,
            kept_us=retention.failed_us,
            wake=self._dispatch.wake,
            observers=self.observers,
            why_not=self._schema.why_not,
        )

    def _create_peers(self) -> None:
        """Create the connection to the other coordinators on the same store."""
        self._peers = Peers(
            self._bus,
            self._store,
            self._sessions,
            self._job_output,
            self._announced,
            wake=self._dispatch.wake,
            observers=self.observers,
            events=self.events,
            looked=lambda rows: self.run_workers.look(rows),
        )

    def _create_worker_services(self) -> None:
        """Create what serves workers of every kind (WebSocket, plain HTTP, web services) and delivers webhooks."""
        settings = self.settings
        timeout_sec = settings.worker_heartbeat_timeout_sec
        self.http_workers = HttpWorkers(
            self._store,
            self._sessions,
            self._sink,
            new_id=self._new_id,
            endpoints=settings.endpoints,
            max_result_bytes=settings.max_result_bytes,
            heartbeat_timeout_sec=timeout_sec,
        )
        self.run_workers = RunWorkers(
            self.http_workers,
            self._store,
            self._sessions,
            self._sink,
            self._policy,
            new_id=self._new_id,
            observers=self.observers,
            take_over=self._peers.take_over,
        )
        connection = partial(
            Connection,
            store=self._store,
            sessions=self._sessions,
            sink=self._sink,
            output=self._job_output,
            announced=self._announced,
            schedules=self.schedules,
            max_result_bytes=settings.max_result_bytes,
            heartbeat_timeout_sec=timeout_sec,
        )
        self.workers = WorkerService(
            self._store,
            self._sessions,
            self._worker_list,
            peers=self._peers,
            http=self.http_workers,
            connection=connection,
        )
        self._webhooks = self._create_webhooks() if settings.webhook_hosts else None

    def _create_webhooks(self) -> "Webhooks":
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
            new_id=self._new_id,
        )

    def _create_services(self) -> None:
        """Create the other services that the API calls."""
        store, cache, wake = self._store, self._cache, self._dispatch.wake
        self.types = KnownTypes(store, self._sessions, self._peers, self._announced, self._run_times)
        self.jobs = JobService(
            store,
            cache,
            self._sessions,
            types=self.types,
            workers=self._worker_list,
            run_times=self._run_times,
            observers=self.observers,
            upkeep=self._upkeep,
            schema=self._schema,
            wake=wake,
        )
        self.waits = Waits(store, self.jobs, self.events, self._peers)
        self.output = OutputService(self._job_output, self.jobs, self.waits)
        self.dead_letters = DeadLetterService(
            store, cache, groups=self._dead_groups, events=self.events, wake=wake
        )
        self.bulks = Bulks(
            store,
            cache,
            jobs=self.jobs,
            groups=self._dead_groups,
            events=self.events,
            observers=self.observers,
            new_id=self._new_id,
        )
        self.queues = QueueService(store, self.events, self._peers)

    def _observers_in_order(self, job_log: JobLog, tracer: JobTracer | None) -> list[JobObserver]:
        """Return the observers, in the order in which they are told."""
        sessions = self._sessions
        event_log = JobEventLog(
            job_log, self.clock.now_us, sessions.name_of, lambda type: type in sessions.types
        )
        return [
            *([] if self._webhooks is None else [WakeOnEnd(self._dispatch.wake)]),
            self.workers,
            self._metrics,
            self.stats.recorder,
            *([] if tracer is None else [TracedJobs(tracer, self._store.now_us)]),
            self.events,
            self.waits,
            self._job_output,
            self._peers,
            self._upkeep,
            self._dead_groups,
            event_log,
        ]

    # ── life ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def prepare(self) -> None:
        """Read what workers announced for job types, which the first submission needs. Raises StoreUnavailable."""
        await self._announced.read()

    def start(self) -> None:
        """Start the loops, inside a running event loop."""
        loops = {
            "dispatch": self._dispatch.run,
            "upkeep": self._upkeep.run,
            "schema-watch": self._schema.run,
            "log-retention": self._log_retention.run,
            "series": self.stats.recorder.run,
            "bulks": self.bulks.run,
            "dead-groups": self._dead_groups.run,
            "schedules": self.schedules.run,
        }
        if self._webhooks is not None:
            loops["webhooks"] = self._webhooks.run
        self._tasks = [asyncio.create_task(run(), name=f"stoker-{name}") for name, run in loops.items()]
        if self._store.shared:
            self._peers.start()
            self._tasks.append(asyncio.create_task(self._peers.run(), name="stoker-peers"))
        for task in self._tasks:
            task.add_done_callback(_complain)

    def leave(self) -> None:
        """Refuse new jobs from here on. Running requests and loops go on until `stop`."""
        self.jobs.leaving = self.readiness.leaving = True

    async def stop(self) -> None:
        """Stop handing out work and answer all requests that wait; the store is closed by its owner."""
        self.leave()
        self.waits.close()
        self._job_output.close()
        await self.events.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._dead_groups.close()
        await self.http_workers.close()
        if self._webhooks is not None:
            await self._webhooks.close()
        await self.readiness.close()
        await self.stats.recorder.close()


def _shard(id: str) -> int:
    """Return a number for this life of the coordinator, from a fresh id."""
    return int.from_bytes(hashlib.blake2b(id.encode(), digest_size=7).digest(), "big")


def _complain(task: asyncio.Task[None]) -> None:
    """Log the end of a loop that ended by itself: that is a bug, and a silent one would leave jobs stuck."""
    if not task.cancelled() and task.exception() is not None:
        log.critical("loop_died", loop=task.get_name(), error=repr(task.exception()))
