"""What happens to a simulated system: each kind of fault, to whom, when and for how long; all from the seed.

Each run draws the kinds that it knows (a few of them together find more than all of them at once), then strikes at
random moments until the load ends. A fault notes when it began and when its effect was over: the checkers excuse some
things inside that time, and a run says which kinds it saw. `end` undoes whatever is still broken.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from stoker.testing.loop import Process
from stoker.testing.net import NetConnection
from tests.checkers.history import Fault, Outage
from tests.sim.nodes import CoordinatorNode, WorkerNode

if TYPE_CHECKING:
    from tests.sim.world import World

HOUR: Final = 3_600.0
FOR_EVER: Final = 1e6
NOTICED_SECONDS: Final = 3.5
SET_BACK_SECONDS: Final = 12.0
"""Longer than the longest backoff of a simulation and what the checkers allow beyond it."""
REMOTE_ONLY: Final = frozenset({"database_crash", "commit_unknown", "database_unreachable", "bus_cut"})


class Fate:
    def __init__(self, world: "World", until: float) -> None:
        self._world = world
        self._until = until
        self._random = world.random("fate")
        self._down: set[str] = set()
        """Nodes that somebody will start again."""
        self._tasks: list[asyncio.Task[None]] = []
        self.kinds = self._draw_kinds()

    def _draw_kinds(self) -> list[str]:
        possible = [kind for kind in KINDS if self._world.database is not None or kind not in REMOTE_ONLY]
        return self._random.sample(possible, self._random.randint(3, 7))

    # ── the course of events ───────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        world, random = self._world, self._random
        world.trace("fate", f"kinds {' '.join(self.kinds)}")
        world.lost_answers = random.choice([0.0, 0.05, 0.2])
        self._tasks.append(world.loop.create_task(self._keep_up()))
        self._tasks.append(world.loop.create_task(self._see_to_a_lost_lease()))
        mean = random.uniform(1.0, 4.5)
        while True:
            pause = random.uniform(0.1, 2 * mean)
            if world.loop.time() + pause >= self._until:
                break
            await asyncio.sleep(pause)
            kind = random.choice(self.kinds)
            self._tasks.append(world.loop.create_task(self._strike(kind)))
        await asyncio.sleep(max(0.0, self._until - world.loop.time()))

    async def _see_to_a_lost_lease(self) -> None:
        """A run in which no lease expired says little about leases: if there was none yet, a worker that is busy dies."""
        world = self._world
        await asyncio.sleep(self._until - world.loop.time() - world.lease * 2.5)
        while not world.events["job_lease_expired"]:
            worker = next((worker for worker in world.workers if worker.busy and worker.process), None)
            if worker is not None:
                self._down.add(worker.name)
                self._note("worker_crash", worker.name, world.lease * 1.5)
                worker.crash()
                await asyncio.sleep(world.lease * 1.5)
                self._back(worker)
            await asyncio.sleep(0.3)

    async def _strike(self, kind: str) -> None:
        await KINDS[kind](self)

    async def end(self) -> None:
        """Whatever is still broken is repaired now."""
        world = self._world
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._down.clear()
        world.lost_answers = 0.0
        world.weather.spike = world.weather.double = 0.0
        for source, target in sorted(world.weather.blocked):
            world.weather.unblock(source, target)
        for process in world.loop.processes:
            if process.alive:
                process.fuse = None
                process.on_fuse = lambda: None
                while process.paused:
                    process.resume()
        for node in world.coordinators:
            node.crash_at_commit = None
        await self._repair_store()
        await self._start_all()
        if self._random.random() < 0.5:
            await self._set_clock_back()
        self._set_clock_forward()

    async def _set_clock_back(self) -> None:
        """It was an hour ahead until now. Nothing else is wrong: retries must not wait for that hour."""
        self._note("clock", "*", SET_BACK_SECONDS)
        self._note("set_back", "*", SET_BACK_SECONDS)
        self._world.clock.jump(-HOUR)
        await asyncio.sleep(SET_BACK_SECONDS)

    def _set_clock_forward(self) -> None:
        """Times that a person gave to a clock that was ahead would keep everybody waiting for an hour."""
        world, clock = self._world, self._world.clock
        furthest = max([clock.furthest, *(node.clock.furthest for node in world.coordinators)])
        if clock.offset != furthest:
            self._note("clock", "*")
            clock.jump(furthest - clock.offset)

    async def _repair_store(self) -> None:
        world = self._world
        disk = world.disk
        disk.full, disk.failing, disk.slow = 0, 0, 0.0
        world.bus.loss = 0.0
        if world.database is not None:
            world.database.lose_before.clear()
            world.database.lose_after.clear()
            await world.database.ensure_up()

    async def _start_all(self) -> None:
        for node in self._world.coordinators:
            if not node.up:
                await node.start()
        for worker in self._world.workers:
            if not worker.up:
                worker.start()
        self._tasks = [self._world.loop.create_task(self._keep_up())]

    async def _keep_up(self) -> None:
        """A service manager: what ended by itself is started again."""
        while True:
            await asyncio.sleep(1.0)
            for worker in self._world.workers:
                if not worker.up and worker.name not in self._down:
                    worker.start()

    def _note(self, kind: str, who: str, seconds: float = 0.0) -> None:
        now = self._world.loop.time()
        self._world.faults.append(Fault(kind, who, now, now + seconds))
        self._world.trace("fate", f"{kind} {who} {seconds:.3f}")

    def _outage(self, began: float, *, alone: bool = False) -> None:
        """No heartbeat could be stored until now; `alone` if that is so only where there is one coordinator. Upkeep notices
        a pause beyond three seconds, and an error at once; what is shorter is within what a lease bears."""
        now = self._world.loop.time()
        short_pause = any(
            fault.kind == "coordinator_pause" and fault.begins < now < fault.ends
            for fault in self._world.faults
        )
        if (
            now - began > NOTICED_SECONDS
            and not short_pause
            and not (alone and len(self._world.coordinators) > 1)
        ):
            self._world.outages.append(Outage(began, now))

    def _lasts(self, low: float, high: float) -> float:
        """A duration that is over before the load is."""
        left = max(0.01, self._until - self._world.loop.time() - 0.1)
        return min(self._random.uniform(low, high), left)

    def _short_or_long(self) -> float:
        """Either within a lease or clearly beyond it."""
        lease = self._world.lease
        if self._random.random() < 0.5:
            return self._lasts(0.05, lease * 0.8)
        return self._lasts(lease * 1.1, lease * 2.5)

    # ── whom ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _worker(self) -> WorkerNode | None:
        up = [worker for worker in self._world.workers if worker.up]
        busy = [worker for worker in up if worker.busy]
        found = busy if busy and self._random.random() < 0.8 else up
        return self._random.choice(found) if found else None

    def _coordinator(self) -> CoordinatorNode | None:
        up = [node for node in self._world.coordinators if node.up and node.name not in self._down]
        return self._random.choice(up) if up else None

    def _connection(self) -> tuple[WorkerNode, NetConnection] | None:
        worker = self._worker()
        open_ = [] if worker is None else [line for line in worker.connections if line.open]
        return (worker, self._random.choice(open_)) if worker is not None and open_ else None

    # ── processes ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def coordinator_crash(self) -> None:
        """At any await: after so many more of its callbacks, or a few after its next commit."""
        node = self._coordinator()
        if node is None or node.process is None:
            return
        steps = self._random.randint(0, 8)
        if self._random.random() < 0.5:
            node.crash_at_commit = steps
        else:
            node.process.fuse = steps * 5
        self._down.add(node.name)
        process = node.process
        for _ in range(200):
            if node.process is not process:
                break
            await asyncio.sleep(0.01)
        node.crash()
        down = self._short_or_long() if self._random.random() < 0.3 else self._lasts(0.05, 2.0)
        self._note("coordinator_crash", "*", down)
        began = self._world.loop.time()
        await asyncio.sleep(down)
        await node.start()
        self._outage(began, alone=True)
        self._down.discard(node.name)

    async def coordinator_pause(self) -> None:
        node = self._coordinator()
        if node is not None and node.process is not None:
            await self._pause([node.process], "coordinator_pause", "*")

    async def worker_crash(self) -> None:
        worker = self._worker()
        if worker is None or worker.process is None:
            return
        self._down.add(worker.name)
        down = self._lasts(0.05, 10.0)
        self._note("worker_crash", worker.name, down)
        if self._random.random() < 0.25:
            worker.vanish()
        else:
            worker.process.fuse = self._random.randint(0, 30)
            await asyncio.sleep(0.3)
            worker.crash()
        await asyncio.sleep(down)
        self._back(worker)

    def _back(self, worker: WorkerNode) -> None:
        self._down.discard(worker.name)
        if not worker.up:
            worker.start()

    async def worker_restart(self) -> None:
        """A deploy: the worker drains, leaves, and another one of the same name comes."""
        worker = self._worker()
        if worker is None or worker.supervisor is None:
            return
        self._down.add(worker.name)
        self._note("worker_restart", worker.name, 0.0)
        worker.supervisor.drain()
        process = worker.process
        for _ in range(400):
            if worker.process is not process:
                break
            await asyncio.sleep(0.05)
        await asyncio.sleep(self._lasts(0.01, 3.0))
        self._back(worker)

    async def worker_pause(self) -> None:
        """SIGSTOP of the supervisor, or the whole machine stands still."""
        worker = self._worker()
        if worker is None or worker.process is None:
            return
        alone = self._random.random() < 0.5
        await self._pause([worker.process] if alone else worker.processes(), "pause", worker.name)

    async def _pause(self, processes: list[Process], kind: str, who: str) -> None:
        seconds = self._short_or_long()
        self._note(kind, who, seconds)
        began = self._world.loop.time()
        for process in processes:
            process.pause()
        await asyncio.sleep(seconds)
        for process in processes:
            process.resume()
        # One that was killed meanwhile has a successor, which may have been there for long.
        if kind == "coordinator_pause" and all(process.alive for process in processes):
            self._outage(began, alone=True)

    # ── the network ────────────────────────────────────────────────────────────────────────────────────────────────

    async def cut(self) -> None:
        """Nothing arrives, one way or both, for a while; then all of it does, or the connection is reset."""
        worker = self._worker()
        if worker is None:
            return
        both = [
            way
            for node in self._world.coordinators
            for way in ((worker.name, node.name), (node.name, worker.name))
        ]
        ways = self._random.choice([both, both[:2], both[0::2], both[1::2]])
        seconds = self._short_or_long()
        self._note("cut", worker.name, seconds)
        for way in ways:
            self._world.weather.block(*way)
        await asyncio.sleep(seconds)
        if self._random.random() < 0.3:
            for connection in worker.connections:
                connection.reset()
        for way in ways:
            self._world.weather.unblock(*way)

    async def reset(self) -> None:
        found = self._connection()
        if found is not None:
            self._note("reset", found[0].name)
            found[1].reset()

    async def half_close(self) -> None:
        found = self._connection()
        if found is not None:
            worker, connection = found
            side = self._random.choice(["worker", "worker", "coordinator"])
            seconds = self._lasts(0.05, self._world.lease * 2.5)
            self._note("half_close", worker.name, seconds)
            connection.hold(side, seconds)
            await asyncio.sleep(self._random.uniform(0.0, min(seconds, 2.0)))
            connection.leave_half_open(side)

    async def late_report(self) -> None:
        """What a worker says stays in a buffer on the way, and it cannot come back: its report arrives when it has been
        given up, and its job may run elsewhere."""
        found = self._connection()
        if found is None:
            return
        worker, connection = found
        began, lease = self._world.loop.time(), self._world.lease
        seconds = self._lasts(lease * 1.15, lease * 2.2)
        self._note("late_report", worker.name, seconds)
        connection.hold("worker", seconds)
        for _ in range(20):
            await asyncio.sleep(lease / 40)
            if self._ended_since(began, worker):
                await asyncio.sleep(0.1)
                break
        connection.leave_half_open("worker")
        ways = [(worker.name, node.name) for node in self._world.coordinators]
        for way in ways:
            self._world.weather.block(*way)
        await asyncio.sleep(max(0.0, began + seconds - self._world.loop.time()))
        for way in ways:
            self._world.weather.unblock(*way)

    def _ended_since(self, began: float, worker: WorkerNode) -> bool:
        """Whether a job of this worker has come to its end since then."""
        recent = takewhile(lambda effect: effect.at >= began, reversed(self._world.effects))
        return any(effect.what == "end" and effect.worker == worker.name for effect in recent)

    async def lost_acks(self) -> None:
        """What a worker says is heard and stored, and it is not told; it says it again on its next connection."""
        worker = self._worker()
        if worker is None:
            return
        ways = [(node.name, worker.name) for node in self._world.coordinators]
        seconds = self._lasts(0.2, self._world.lease * 0.8)
        self._note("lost_acks", worker.name, seconds)
        for way in ways:
            self._world.weather.block(*way)
        await asyncio.sleep(seconds)
        for connection in worker.connections:
            connection.reset()
        for way in ways:
            self._world.weather.unblock(*way)

    async def late_answers(self) -> None:
        """What a worker is told comes late, and by then nothing that it says comes through any more."""
        worker = self._worker()
        if worker is None:
            return
        lease = self._world.lease
        heard, silent = self._lasts(lease * 0.25, lease * 0.5), self._lasts(lease * 0.3, lease * 0.5)
        cut = self._lasts(lease * 0.8, lease * 1.8)
        self._note("late_answers", worker.name, heard + silent + cut)
        for node in self._world.coordinators:
            self._world.weather.block(node.name, worker.name)
        await asyncio.sleep(heard)
        for node in self._world.coordinators:
            self._world.weather.block(worker.name, node.name)
        await asyncio.sleep(silent)
        for node in self._world.coordinators:
            self._world.weather.unblock(node.name, worker.name)
        await asyncio.sleep(cut)
        for node in self._world.coordinators:
            self._world.weather.unblock(worker.name, node.name)

    async def forget(self) -> None:
        found = self._connection()
        if found is not None:
            self._note("forget", found[0].name, self._world.lease * 2)
            found[1].forget()

    async def slow_network(self) -> None:
        seconds = self._lasts(1.0, 10.0)
        self._note("slow_network", "*", seconds)
        self._world.weather.spike = self._random.uniform(0.05, 0.5)
        await asyncio.sleep(seconds)
        self._world.weather.spike = 0.0

    async def doubled_frames(self) -> None:
        """Some of what is said arrives twice, one right behind the other."""
        seconds = self._lasts(2.0, 10.0)
        self._note("doubled_frames", "*", seconds)
        self._world.weather.double = self._random.uniform(0.1, 0.6)
        await asyncio.sleep(seconds)
        self._world.weather.double = 0.0

    # ── the store and the clocks ───────────────────────────────────────────────────────────────────────────────────

    async def disk_full(self) -> None:
        disk = self._world.disk
        seconds = self._short_or_long()
        self._note("disk_full", "*", seconds)
        began = self._world.loop.time()
        disk.full += 1
        await asyncio.sleep(seconds)
        disk.full -= 1
        self._world.unwritable.append(Outage(began, self._world.loop.time()))
        self._outage(began)

    async def commit_fails(self) -> None:
        self._note("commit_fails", "*", 1.0)
        self._world.disk.failing = self._random.randint(1, 6)

    async def slow_disk(self) -> None:
        disk = self._world.disk
        seconds = self._lasts(1.0, 8.0)
        self._note("slow_disk", "*", seconds)
        disk.slow = self._random.choice([0.05, 0.5, 2.0])
        await asyncio.sleep(seconds)
        disk.slow = 0.0

    async def clock_jump(self) -> None:
        """Somebody sets a clock by up to an hour, and later sets it right again, or not."""
        own = self._random.choice(self._world.coordinators).clock
        clock = self._world.clock if self._random.random() < 0.7 else own
        jump = self._random.choice([HOUR, -HOUR, self._random.uniform(-60.0, 60.0)])
        seconds = self._lasts(0.5, 8.0)
        self._note("clock", "*", seconds)
        if self._world.database is not None:
            self._note("skew", "*", FOR_EVER)
        clock.jump(jump)
        await asyncio.sleep(seconds)
        if self._random.random() < 0.5:
            self._note("clock", "*")
            clock.jump(-jump)

    async def commit_unknown(self) -> None:
        """The connection to the database breaks now and then after the commit."""
        database = self._world.database
        assert database is not None
        host = self._random.choice(self._world.coordinators).name
        seconds = self._lasts(0.5, 5.0)
        self._note("commit_unknown", "*", seconds)
        database.lose_after[host] = self._random.choice([0.1, 0.4])
        await asyncio.sleep(seconds)
        database.lose_after.pop(host, None)

    async def database_unreachable(self) -> None:
        database = self._world.database
        assert database is not None
        host = self._random.choice(self._world.coordinators).name
        seconds = self._short_or_long()
        self._note("database_unreachable", "*", seconds)
        database.lose_before[host] = self._random.choice([0.3, 1.0])
        await asyncio.sleep(seconds)
        database.lose_before.pop(host, None)

    async def bus_cut(self) -> None:
        """Notifications between coordinators are lost, some or all of them."""
        seconds = self._lasts(2.0, 15.0)
        self._note("bus_cut", "*", seconds)
        self._world.bus.loss = self._random.choice([0.3, 1.0])
        await asyncio.sleep(seconds)
        self._world.bus.loss = 0.0

    async def database_crash(self) -> None:
        database = self._world.database
        if database is None or not database.up:
            return
        seconds = self._lasts(0.1, 4.0)
        self._note("database_crash", "*", seconds)
        began = self._world.loop.time()
        database.crash()
        await asyncio.sleep(seconds)
        await database.ensure_up()
        self._outage(began)


KINDS: Final[dict[str, Callable[[Fate], Awaitable[None]]]] = {
    fault.__name__: fault
    for fault in (
        Fate.coordinator_crash,
        Fate.coordinator_pause,
        Fate.worker_crash,
        Fate.worker_restart,
        Fate.worker_pause,
        Fate.cut,
        Fate.reset,
        Fate.half_close,
        Fate.late_report,
        Fate.lost_acks,
        Fate.late_answers,
        Fate.forget,
        Fate.slow_network,
        Fate.doubled_frames,
        Fate.disk_full,
        Fate.commit_fails,
        Fate.slow_disk,
        Fate.clock_jump,
        Fate.commit_unknown,
        Fate.database_unreachable,
        Fate.database_crash,
        Fate.bus_cut,
    )
}
