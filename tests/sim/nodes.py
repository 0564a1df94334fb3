"""The parts of a simulated system that live and die: coordinators and workers, each a real one in a simulated process."""

import asyncio
import io
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from stoker.bus.base import JobsWaiting, Notification, Receive
from stoker.coordinator.assembly import Coordinator
from stoker.domain.errors import StokerDomainError
from stoker.executors.runner_contract import PLAIN
from stoker.logs.log import JobLog
from stoker.settings import Settings, load
from stoker.store.base import Store
from stoker.store.logs import LogPage, Piece, Selection, Written
from stoker.store.sqlite.store import SqliteStore
from stoker.testing.loop import Process
from stoker.testing.net import FIN, RESET, NetConnection, host
from stoker.wire import codec, frames
from stoker.worker.connection import Dialer, NotAllowed
from stoker.worker.supervisor import StartFailed, Supervisor
from tests.checkers.history import Ack, Death, Told
from tests.sim.disk import Disk, SimClock, drop_store, open_store
from tests.sim.machine import SimMachine
from tests.support.frames import assigned, reported

if TYPE_CHECKING:
    from tests.sim.world import World

T = TypeVar("T")


class Unknown(Exception):
    """No answer came, or none that says what happened."""


class Refused(Exception):
    """Nothing was done, and the answer says so."""


class NoLogs:
    """Output is not part of the simulation."""

    def append(self, pieces: Sequence[Piece]) -> None: ...

    def on_written(self, call: Callable[[Iterable[str]], None]) -> None: ...

    async def settled(self, job_ids: Iterable[str]) -> None: ...

    async def read(self, which: Selection, after: int = 0, limit_bytes: int = 0) -> LogPage:
        return LogPage([], 0, False, False, 0)

    async def written(self, after_key: int, before: int, limit: int) -> list[Written]:
        return []

    async def delete(self, job_ids: Sequence[str]) -> None: ...

    async def close(self) -> None: ...


class SimulatedBuses:
    """Notifications between coordinators: late, lost or twice, as the world likes it."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.loss = 0.0
        self.listeners: dict[str, tuple[Process, Receive]] = {}

    def of(self, node: "CoordinatorNode") -> "SimulatedBus":
        assert node.process is not None
        return SimulatedBus(self, node.name, node.process)


class SimulatedBus:
    """One coordinator's end of the bus (`stoker.bus.base.Bus`)."""

    def __init__(self, buses: SimulatedBuses, name: str, process: Process) -> None:
        self._buses = buses
        self._name = name
        self._process = process
        self._random = buses.world.random(f"{process.name}/bus")

    def start(self, receive: Receive) -> None:
        self._buses.listeners[self._name] = self._process, receive
        self._process.call_later(0.0, receive, [JobsWaiting()])

    def publish(self, notification: Notification) -> None:
        for name, (process, receive) in self._buses.listeners.items():
            copies = self._random.choice([1, 1, 1, 2])
            if name != self._name and self._random.random() >= self._buses.loss:
                for _ in range(copies):
                    process.call_later(
                        self._buses.world.weather.latency(self._random), receive, [notification]
                    )

    @property
    def connected(self) -> bool:
        return self._buses.loss < 1.0

    async def close(self) -> None:
        self._buses.listeners.pop(self._name, None)


class CoordinatorNode:
    """One coordinator host. `process` is None while it is down."""

    def __init__(self, world: "World", name: str, clock: SimClock, disk: Disk, path: Path) -> None:
        self.world = world
        self.name = name
        self.clock = clock
        self.disk = disk
        self._path = path
        self._lives = 0
        self.process: Process | None = None
        self.coordinator: Coordinator | None = None
        self.own_store: SqliteStore | None = None
        self.connections: list[NetConnection] = []
        self._calls: dict[int, tuple[Process, asyncio.Future[Any]]] = {}
        self._call_count = 0
        self.crash_at_commit: int | None = None

    @property
    def up(self) -> bool:
        return self.coordinator is not None

    async def start(self) -> None:
        self._lives += 1
        self.process = process = Process(self.world.loop, f"{self.name}#{self._lives}")
        process.on_fuse = self.crash
        self.world.trace(process.name, "starts")
        # Shielded: a process that was killed before it had opened never ends its task, not even when that is cancelled, and
        # whoever gives up waiting must not wait for it (seed 1057).
        await asyncio.shield(process.spawn(self._open(process)))

    async def _open(self, process: Process) -> None:
        world = self.world
        random = world.random(f"{process.name}/store")
        store: Store
        if world.database is None:
            self.own_store = await open_store(self._path, self.clock, self.disk, world.committed)
            store = self.own_store
        else:
            store = world.database.connect(random, process, self.name)
        spread = world.random(f"{process.name}/spread")
        coordinator = world.new_coordinator(
            self, store, JobLog(stream=io.StringIO(), level="error"), lambda: spread.uniform(-1.0, 1.0)
        )
        world.meter.watch_claims(coordinator._dispatch, process.name)
        coordinator.start()
        self.coordinator = coordinator

    def crash(self) -> None:
        """`kill -9`: nothing of it runs any more, the kernel closes its connections."""
        if self.process is None:
            return
        self.world.trace(self.process.name, "is killed")
        self.process.kill()
        self.process = self.coordinator = None
        self.crash_at_commit = None
        if self.own_store is not None:
            drop_store(self.own_store)
            self.own_store = None
        for connection in self.connections:
            connection.server_died()
        self.connections.clear()
        calls, self._calls = self._calls, {}
        for caller, future in calls.values():
            caller.call_later(0.001, settle, future, Unknown("the coordinator went away"))

    # ── what reaches it ────────────────────────────────────────────────────────────────────────────────────────────

    async def dial(self, worker: Process, random: Random, seconds: float) -> NetConnection:
        """A worker opens a WebSocket."""
        weather = self.world.weather
        await asyncio.sleep(weather.latency(random))
        hosts = (host(worker), self.name)
        if weather.is_blocked(*hosts) or weather.is_blocked(*reversed(hosts)):
            await asyncio.sleep(seconds)
            raise TimeoutError("no answer")
        if self.process is None or self.coordinator is None:
            raise ConnectionRefusedError("nobody listens")
        if self.process.paused:
            await asyncio.sleep(seconds)
            raise TimeoutError("no answer")
        connection = NetConnection(
            weather, random, f"{worker.name}-{self.process.name}", worker, self.process
        )
        Tap(self.world, connection)
        self.connections = [other for other in self.connections if not other.server.closed]
        self.connections.append(connection)
        self.process.spawn(self._serve(self.coordinator, connection))
        return connection

    async def _serve(self, coordinator: Coordinator, connection: NetConnection) -> None:
        try:
            await coordinator.workers.serve(connection.server)
        except Exception as error:  # noqa: BLE001 - as `stoker.api.server.sockets.serve` does
            self.world.trace(connection.server.process.name, f"connection failed: {error!r}")
        await connection.server.close()

    async def call(
        self,
        client: Process,
        random: Random,
        handler: Callable[[Coordinator], Awaitable[T]],
        seconds: float,
    ) -> T:
        """A request over HTTP: the answer, `Refused`, or `Unknown` when none came."""
        weather = self.world.weather
        await asyncio.sleep(weather.latency(random))
        if self.process is None or self.coordinator is None:
            raise Refused("nobody listens")
        future: asyncio.Future[T] = self.world.loop.create_future()
        self._call_count += 1
        number = self._call_count
        self._calls[number] = client, future
        lost = random.random() < self.world.lost_answers
        self.process.spawn(
            self._answer(number, self.coordinator, handler, weather.latency(random), lost=lost)
        )
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            raise Unknown("no answer in time") from None

    async def _answer(
        self,
        number: int,
        coordinator: Coordinator,
        handler: Callable[[Coordinator], Awaitable[Any]],
        delay: float,
        *,
        lost: bool,
    ) -> None:
        result: Any
        try:
            result = await handler(coordinator)
        except StokerDomainError as error:
            result = error
        client, future = self._calls.pop(number)
        if lost:
            result = Unknown("the connection broke before the answer")
        client.call_later(delay, settle, future, result)

    def burn(self) -> None:
        """Called at every commit: a crash may be waiting for one."""
        if self.crash_at_commit is not None and self.process is not None:
            self.process.fuse, self.crash_at_commit = self.crash_at_commit, None


class WorkerNode:
    """One worker host. Its processes come and go under one name."""

    def __init__(self, world: "World", name: str, threads: int, *, any_type: bool = False) -> None:
        self.world = world
        self.name = name
        self.threads = threads
        self.any_type = any_type
        self._lives = 0
        self.process: Process | None = None
        self.supervisor: Supervisor | None = None
        self.machine: SimMachine | None = None
        self.connections: list[NetConnection] = []

    @property
    def up(self) -> bool:
        return self.process is not None

    def start(self) -> None:
        self._lives += 1
        self.process = process = Process(self.world.loop, f"{self.name}#{self._lives}")
        process.on_fuse = self.crash
        self.world.trace(process.name, "starts")
        process.spawn(self._run(process))

    async def _run(self, process: Process) -> None:
        world = self.world
        random = world.random(process.name)
        sessions = iter(range(1, 1_000_000))
        settings = self._settings()
        machine = SimMachine(
            world.loop,
            process,
            world.random(f"{process.name}/machine"),
            concurrency=settings.async_concurrency,
            note=world.effect,
        )
        dialer = Dialer(
            tuple(f"http://{node.name}" for node in _shuffled(world.coordinators, random)),
            None,
            connect=self._connect(process, random),
            spread=lambda: random.uniform(0.7, 1.3),
        )
        supervisor = world.new_supervisor(
            settings,
            dialer,
            machine,
            lambda: f"{process.name.replace('#', '-')}-s{next(sessions)}",
            PLAIN if self.any_type else None,
        )
        self.supervisor, self.machine = supervisor, machine
        try:
            await supervisor.run()
            world.trace(process.name, "leaves")
        except (NotAllowed, StartFailed) as error:
            world.trace(process.name, f"gives up: {error}")
        if self.process is process:
            self._gone()

    def _settings(self) -> Settings:
        return load(
            {},
            {
                "worker_name": self.name,
                "worker_labels": f"host={self.name}",
                "worker_threads": self.threads,
                "worker_heartbeat_timeout_sec": self.world.lease,
                "async_concurrency": 5,
                "cancel_grace_sec": 1.0,
                "shutdown_grace_sec": 3.0,
            },
        )

    def _connect(self, process: Process, random: Random) -> Callable[..., Awaitable[Any]]:
        async def connect(url: str, *, open_timeout: float, **_: Any) -> Any:
            name = url.split("/")[2]
            node = next(node for node in self.world.coordinators if node.name == name)
            connection = await node.dial(process, random, open_timeout)
            self.connections = [other for other in self.connections if not other.worker.closed]
            self.connections.append(connection)
            return connection.worker

        return connect

    def crash(self) -> None:
        """`kill -9` of the supervisor; its children go with it."""
        if self.process is None:
            return
        self.world.trace(self.process.name, "is killed")
        self.process.kill()
        if self.machine is not None:
            self.machine.kill_children()
        self._gone()

    def vanish(self) -> None:
        """The machine loses power: nobody is told."""
        for connection in self.connections:
            connection.forget()
        self.crash()

    def _gone(self) -> None:
        if self.supervisor is not None:
            self.world.deaths.append(Death(self.supervisor.session_id, self.world.loop.time()))
        for connection in self.connections:
            connection.worker_died()
        self.connections.clear()
        self.process = self.supervisor = self.machine = None

    def processes(self) -> list[Process]:
        """The supervisor and its children."""
        assert self.process is not None
        return [self.process, *(self.machine.processes() if self.machine is not None else [])]

    @property
    def busy(self) -> bool:
        return self.supervisor is not None and bool(self.supervisor._pool.works)


def _shuffled(nodes: list[CoordinatorNode], random: Random) -> list[CoordinatorNode]:
    return random.sample(nodes, len(nodes))


class Tap:
    """Listens to one connection, for the trace and for what workers were told about their reports."""

    def __init__(self, world: "World", connection: NetConnection) -> None:
        self._world = world
        self._reports: dict[int, list[frames.Report]] = {}
        up, down = connection.up, connection.down
        self._to_server, self._to_worker = up.deliver, down.deliver
        self._worker, self._server = connection.worker, connection.server
        up.deliver, down.deliver = self._up, self._down
        self._send, self._send_now = connection.server.send, connection.server.send_now
        self._session, self._greeted = "", False
        connection.server.send = self._sent  # type: ignore[method-assign]
        connection.server.send_now = self._sent_now  # type: ignore[method-assign]

    async def _sent(self, data: bytes | str) -> None:
        self._greet()
        await self._send(data)
        self._world.meter.taken(self._server.process.name, self._session, data)

    def _sent_now(self, data: bytes | str) -> bool:
        self._greet()
        if not self._send_now(data):
            return False
        self._world.meter.taken(self._server.process.name, self._session, data)
        return True

    def _greet(self) -> None:
        if not self._greeted:
            # Grants that were made since the hello found no connection, so they were dropped and wait for nothing.
            self._greeted = True
            self._world.meter.opened(self._server.process.name, self._session)

    def _up(self, item: Any) -> None:
        ends = self._worker.process.name, self._server.process.name
        if item is FIN or item is RESET:
            self._world.trace(ends[1], f"< {ends[0]} {'closed' if item is FIN else 'reset'}")
        elif not self._server.closed:
            frame = codec.decode_from_worker(item)
            if isinstance(frame, frames.Hello):
                self._session = frame.session
                self._world.meter.opened(ends[1], frame.session)
            if isinstance(frame, frames.Reports):
                self._reports[frame.number] = reported(frame)
                self._world.reports += [
                    Told(self._world.loop.time(), host(self._worker.process), r.id, r.claim_id, r.kind)
                    for r in reported(frame)
                ]
            self._world.trace(ends[1], f"< {ends[0]} {describe(frame)}")
        self._to_server(item)

    def _down(self, item: Any) -> None:
        ends = self._worker.process.name, self._server.process.name
        if item is FIN or item is RESET:
            self._world.trace(ends[0], f"< {ends[1]} {'closed' if item is FIN else 'reset'}")
        elif not self._worker.closed:
            frame = codec.decode_to_worker(item)
            if isinstance(frame, frames.Ack):
                self._acknowledged(frame)
            self._world.trace(ends[0], f"< {ends[1]} {describe(frame)}")
        self._to_worker(item)

    def _acknowledged(self, frame: frames.Ack) -> None:
        stale = {(ref.id, ref.claim_id) for ref in frame.stale}
        now = self._world.loop.time()
        for report in self._reports.get(frame.number, []):
            late = (report.id, report.claim_id) in stale
            worker = host(self._worker.process)
            self._world.acks.append(Ack(now, worker, report.id, report.claim_id, report.kind, late))


def describe(frame: frames.Frame) -> str:
    """A frame in a few words."""
    name = type(frame).__name__.lower()
    match frame:
        case frames.Hello():
            return f"hello {frame.session}"
        case frames.Heartbeat():
            return f"heartbeat {frame.number} [{_refs(frame.held)}]"
        case frames.Reports():
            ends = " ".join(f"{r.id}/{r.claim_id}:{r.kind}" for r in reported(frame))
            return f"reports {frame.number} [{ends}]"
        case frames.Started():
            return f"started [{' '.join(f'{s.id}/{s.claim_id}' for s in frame.starts)}]"
        case frames.Assign():
            return f"assign [{_refs(assigned(frame))}]"
        case frames.Cancel() | frames.Drop():
            return f"{name} [{_refs(frame.claims)}]"
        case frames.Ack():
            return f"ack {frame.number}" + (f" stale [{_refs(frame.stale)}]" if frame.stale else "")
        case frames.Renewed():
            return f"renewed {frame.number}"
        case frames.Refused():
            return f"refused: {frame.reason}"
        case _:
            return name


def _refs(refs: Sequence[frames.ClaimRef]) -> str:
    return " ".join(f"{ref.id}/{ref.claim_id}" for ref in refs)


def settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
