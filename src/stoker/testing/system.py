"""A whole Stoker inside a test: the real coordinator, API, store and supervisor, on an event loop whose time is virtual.

There are two clocks. The loop's time advances by itself, a little with everything that happens, as in the simulation. The
time of day, which decides what is due, stands still until the test moves it (`move_to`).

Jobs start only while `run_due` runs: otherwise dispatch asks for nothing, so that a test sees what was enqueued.
"""

import contextlib
import io
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, MutableMapping
from random import Random
from typing import Any, Final, TypeVar

import structlog

from stoker import __version__, context
from stoker.api.app import App, create_app
from stoker.clock import SECOND
from stoker.coordinator.assembly import Coordinator
from stoker.executors.child import Tasks
from stoker.logs.log import JobLog
from stoker.settings import Settings, load
from stoker.store.sqlite.store import SqliteStore
from stoker.testing import running
from stoker.testing.children import (
    AsyncTaskChild,
    KitJobs,
    KitLife,
    KitLoop,
    KitMachine,
    KitRouter,
    SyncTaskChild,
    as_in_a_child,
    run_apart,
)
from stoker.testing.loop import OWNER, Process, SimLoop
from stoker.testing.net import NetConnection, Weather
from stoker.testing.store import memory_logs, memory_store
from stoker.worker.connection import Dialer
from stoker.worker.supervisor import Supervisor

T = TypeVar("T")

THREADS: Final = 8
LEASE_SECONDS: Final = 15.0
QUIET_SECONDS: Final = 0.06
"""The loop time without any event after which nothing more will happen, if no job waits."""
PATIENCE_SECONDS: Final = 1.6
"""The same while jobs wait: longer than the poll interval of dispatch."""
MANY_STEPS: Final = 5_000_000


class KitClock:
    """The clock of the test: its own time of day, and the loop's time for durations."""

    def __init__(self, loop: SimLoop, start_us: int) -> None:
        self._loop = loop
        self.us = start_us

    def now_us(self) -> int:
        return self.us

    def monotonic(self) -> float:
        return self._loop.time()


class Worker:
    """The kit's worker, for one session."""

    def __init__(self, system: "System", number: int) -> None:
        self._system = system
        self.process = Process(system.loop, f"worker#{number}")
        self.connections: list[NetConnection] = []
        self.supervisor: Supervisor | None = None
        self.machine: KitMachine | None = None
        self.types = sorted(system.app.tasks)
        self.schedules = dict(getattr(system.app, "declared", {}))
        self.name = f"worker-{number}"

    async def run(self) -> None:
        system = self._system
        settings = system.settings
        with _path_kept():
            tasks = Tasks(running.NAME)
        self.machine = KitMachine(system.loop, self.process, tasks, system.sent_jobs, system.life)
        dialer = Dialer(("http://coordinator",), None, connect=self._connect, spread=lambda: 1.0)
        self.supervisor = Supervisor(
            settings, dialer, self.machine, new_id=lambda: self.name, version=__version__
        )
        await self.supervisor.run()

    async def _connect(self, url: str, **_: Any) -> Any:
        system = self._system
        connection = NetConnection(system.weather, Random(0), url, self.process, system.server)
        self.connections.append(connection)
        system.server.spawn(system.serve(connection))
        return connection.worker

    def beat(self) -> None:
        if self.supervisor is not None:
            self.process.call_later(0.0, self.supervisor._beat)

    def die(self) -> None:
        """Die as by `kill -9`: the coordinator sees the connection end and receives nothing more."""
        self.process.kill()
        if self.machine is not None:
            self.machine.kill_children()
        for connection in self.connections:
            connection.worker_died()


class System:
    """The coordinator, API, store and worker of a test. Use it between `open` and `close`."""

    def __init__(self, app: Any, start_us: int, overrides: MutableMapping[str, Any] | None = None) -> None:
        self.app = app
        self.lock = threading.RLock()
        """Lets one thread at a time use the system: code under test may use several, as web frameworks do."""
        self.settings = _settings(overrides or {})
        self.loop = KitLoop(MANY_STEPS)
        self.clock = KitClock(self.loop, start_us)
        self.weather = Weather(self.loop)
        self.weather.low = self.weather.high = 0.0
        self.server = Process(self.loop, "coordinator#1")
        self.sent_jobs = KitJobs()
        self.life = KitLife(app, self.settings.max_result_bytes, self.loop)
        self.closed = False
        self._router = KitRouter(lambda: None if self.worker is None else self.worker.machine)
        self._lives = 0
        self._depth = 0
        """How many calls of `run_due` are under way: a task may call it too."""
        self._dressed = False
        self._waiting_jobs: list[str] = []
        """Ids of jobs whose tasks are waiting for other jobs."""
        self.worker: Worker | None = None
        self.store: SqliteStore
        self.coordinator: Coordinator
        self.api: App

    # ── life ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self) -> None:
        running.app = self.app
        self.call(self._open())
        self.life.enter()
        with quiet_logs():
            self._start_worker()

    async def _open(self) -> None:
        self.store = memory_store(self.clock)
        self.coordinator = Coordinator(
            self.settings,
            self.store,
            self.clock,
            JobLog(stream=io.StringIO(), level="error"),
            memory_logs(),
            version=__version__,
            spread=lambda: 0.0,
        )
        await self.coordinator.prepare()
        dispatch = self.coordinator._dispatch
        request = dispatch.request
        dispatch.request = lambda: request() if self._depth else None  # type: ignore[method-assign]
        self.coordinator.start()
        self.api = create_app(self.coordinator)

    def close(self) -> None:
        """Leave the lifespans and discard everything else, without an orderly shutdown."""
        with self.lock:
            self.life.leave()
            self.closed = True
            running.app = None
            if self.worker is not None:
                self.worker.process.kill()
            self.server.kill()
            self.loop.close()
            self.store._file.close()

    async def serve(self, connection: NetConnection) -> None:
        await self.coordinator.workers.serve(connection.server)
        await connection.server.close()

    def _start_worker(self) -> None:
        self._lives += 1
        worker = self.worker = Worker(self, self._lives)
        task = worker.process.spawn(worker.run())

        def is_up() -> bool:
            if task.done():
                task.result()
            return worker.name in self.coordinator._sessions._sessions

        self.loop.turn_until(is_up)

    def _renew_worker(self) -> None:
        """Replace the worker if the app's tasks or schedules have changed: it reads them when it starts."""
        worker = self.worker
        known = None if worker is None else (worker.types, worker.schedules)
        if worker is not None and known != (sorted(self.app.tasks), dict(getattr(self.app, "declared", {}))):
            worker.die()
            self.span(QUIET_SECONDS)
            self._start_worker()

    # ── running the loop ───────────────────────────────────────────────────────────────────────────────────────────

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the coordinator's process and return its result."""
        with self.lock:
            task = self.server.spawn(work)
            with quiet_logs():
                self.loop.turn_until(task.done)
            result: T = task.result()
            return result

    @contextlib.contextmanager
    def _as_in_a_child(self) -> Iterator[None]:
        if self._dressed:
            yield
            return
        self._dressed = True
        try:
            with as_in_a_child(self._router):
                yield
        finally:
            self._dressed = False

    def span(self, seconds: float) -> bool:
        """Let this many seconds of loop time pass and run the sync jobs that come; return whether anything happened."""
        before = self.sent_jobs.moves
        over: list[bool] = []
        timer = self.loop.call_later(seconds, over.append, True)
        waiting = self.sent_jobs.waiting
        while not over:
            self.loop.turn_until(lambda: bool(over or waiting))
            while waiting:
                self._run(*waiting.popleft())
        timer.cancel()
        return self.sent_jobs.moves != before

    def _run(self, child: SyncTaskChild, job: Any) -> None:
        if not child.process.alive:
            return
        if not self.sent_jobs.begins(job):
            child.pretend(job)
            return
        run_apart(lambda: child.run(job))
        if self.sent_jobs.interrupted is not None:
            raise self.sent_jobs.interrupted

    def run_due(self) -> None:
        """Run everything that is due now, including jobs that become due thereby."""
        caller = context.running_job()
        with self.lock, quiet_logs(), self._as_in_a_child():
            if not self._depth:
                self._renew_worker()
            self._depth += 1
            if caller is not None:
                self._waiting_jobs.append(caller.id)
            try:
                self._run_due()
            finally:
                self._depth -= 1
                if caller is not None:
                    self._waiting_jobs.pop()

    def _run_due(self) -> None:
        self._nudge()
        last = self.loop.time()
        while True:
            if self.span(QUIET_SECONDS):
                last = self.loop.time()
            elif self.sent_jobs.silenced and not self._runs_others():
                self._lose_worker()
                last = self.loop.time()
            elif not self._runs_others() and not self._waits_for_more(last):
                return

    def _runs_others(self) -> bool:
        """Return whether async jobs run that do not wait for this very call to return."""
        machine = None if self.worker is None else self.worker.machine
        children = [] if machine is None else machine.children
        return any(
            job.id in self.sent_jobs.running and job.id not in self._waiting_jobs
            for child in children
            if isinstance(child, AsyncTaskChild) and child.process.alive
            for job in child.jobs.values()
        )

    def _waits_for_more(self, last: float) -> bool:
        if self.loop.time() - last > PATIENCE_SECONDS:
            return False
        counts = _at_once(self.store.counts())
        return any(row.status in ("queued", "running") and row.count for row in counts)

    def _nudge(self) -> None:
        """Wake upkeep, schedules and dispatch, since the time of day moved or jobs were submitted."""
        self.server.call_later(0.0, self.coordinator._upkeep.nudge)
        self.server.call_later(0.0, self.coordinator.schedules._nudge.set)
        self.server.call_later(0.001, self.coordinator._dispatch.wake)

    # ── time and death ─────────────────────────────────────────────────────────────────────────────────────────────

    def next_due(self) -> int | None:
        """Return the next time at which a job, a limit or a schedule is due."""
        store = self.store
        times = [_at_once(ask()) for ask in (store.next_due_at, store.next_limit_at, store.next_schedule_at)]
        return min((at for at in times if at is not None), default=None)

    def move_to(self, us: int) -> None:
        """Set the time of day. Nothing that is due runs yet."""
        if us <= self.clock.us:
            return
        with self.lock, quiet_logs():
            self.clock.us = us
            if self.worker is not None:
                self.worker.beat()  # or its lease would have ended
            depth, self._depth = self._depth, 0
            try:
                over: list[bool] = []
                self.loop.call_later(0.002, over.append, True)
                self.loop.turn_until(lambda: bool(over))
            finally:
                self._depth = depth

    def pass_time(
        self, until_us: int, enough: Callable[[], bool] = lambda: False, *, to_the_end: bool = True
    ) -> None:
        """Run what is due now and at each later moment in order, until `until_us` or until `enough()`. The clock then stands
        at `until_us`, or at the moment when it was enough; without `to_the_end`, at the last moment with something due."""
        with self.lock, quiet_logs(), self._as_in_a_child():
            self._pass_time(until_us, enough, to_the_end=to_the_end)

    def _pass_time(self, until_us: int, enough: Callable[[], bool], *, to_the_end: bool) -> None:
        self.run_due()
        seen = None
        while not enough():
            due = self.next_due()
            if due is None or due > until_us or (due <= self.clock.us and due == seen):
                if to_the_end:
                    self.move_to(until_us)
                    self.run_due()
                return
            seen = due
            self.move_to(due)
            self.run_due()

    def _lose_worker(self) -> None:
        """Kill the worker, start another, and move the clock past the end of the lease."""
        if self.worker is not None:
            self.worker.die()
        self.sent_jobs.silenced.clear()
        self._start_worker()
        self.move_to(self.clock.us + int((LEASE_SECONDS + 1) * SECOND))
        self.span(LEASE_SECONDS + 2.0)


def _at_once(read: Coroutine[Any, Any, T]) -> T:
    """Return the result of a read of the store, which never awaits anything while it is in memory."""
    try:
        read.send(None)
    except StopIteration as end:
        found: T = end.value
        return found
    raise RuntimeError("a read of the store in memory waited for something")


def _settings(overrides: MutableMapping[str, Any]) -> Settings:
    return load(
        {},
        {
            "worker_name": "test",
            "worker_threads": THREADS,
            "worker_heartbeat_timeout_sec": LEASE_SECONDS,
            "cancel_grace_sec": 1.0,
            **overrides,
        },
    )


@contextlib.contextmanager
def _path_kept() -> Iterator[None]:
    """Restore `sys.path`, to which loading an app may add the working directory."""
    path = sys.path[:]
    try:
        yield
    finally:
        sys.path[:] = path


@contextlib.contextmanager
def quiet_logs() -> Iterator[None]:
    """Drop the log events of coordinator and worker inside the block, but not those of the test and its tasks."""
    config = structlog.get_config()
    if _drop in config["processors"]:
        yield
        return
    structlog.configure(processors=[_drop, *config["processors"]])
    try:
        yield
    finally:
        structlog.configure(processors=config["processors"])


def _drop(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    owner = OWNER.get()
    if (
        owner is not None and "." not in owner.name
    ):  # the children, which run tasks, have a dot in their names
        raise structlog.DropEvent
    return event
