"""A whole Stoker in one thread and in virtual time, made from a seed: clients, coordinators, workers, network, store.

Two phases. In the first there is load and faults happen (`tests.sim.faults`); in the second, the quiet one, all faults
end and everything has to finish. Then the records of the run (`tests.checkers.history.History`) go to the checkers.

Every source of chance is a generator of its own, named and made from the seed, so that one thing more or less here does
not change what chance brings there. The trace has a line for everything that happens; equal seeds give equal traces.
"""

import asyncio
import contextvars
import gc
import hashlib
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, MutableMapping
from pathlib import Path
from random import Random
from typing import Any, Final

import apsw
import msgspec
import structlog

from stoker.coordinator.assembly import Coordinator
from stoker.coordinator.webhooks import ReceiverAnswer as WebhookAnswer
from stoker.domain import extras
from stoker.domain.retry_rules import delay_bounds
from stoker.executors.runner_contract import RunnerContract
from stoker.logs.log import JobLog
from stoker.settings import Settings, load
from stoker.store.base import Store
from stoker.testing.loop import OWNER, SimLoop, Spinning, Stalled
from stoker.testing.net import Weather
from stoker.worker.connection import Dialer
from stoker.worker.supervisor import Supervisor
from tests.checkers.history import (
    Ack,
    Change,
    Death,
    Delivery,
    Effect,
    Fault,
    History,
    KeyClash,
    Op,
    Outage,
    Ready,
    Rules,
    Start,
    StoredAttempt,
    StoredJob,
    Told,
    Violation,
)
from tests.checkers.invariants import FINAL, check
from tests.sim.clients import Client, Order
from tests.sim.crowds import flood, oversize
from tests.sim.disk import Database, Disk, SimClock
from tests.sim.faults import Fate
from tests.sim.limit_client import LimitClient
from tests.sim.machine import ERROR, Deed
from tests.sim.meter import BOUNDS, Meter
from tests.sim.nodes import CoordinatorNode, NoLogs, SimulatedBuses, WorkerNode
from tests.sim.ticking import Ticking, expected_ticks, fired_ticks, is_over
from tests.sim.watcher import Watcher

LEASE_SECONDS: Final = 4.0
LOAD_SECONDS: Final = 30.0
QUIET_SECONDS: Final = 600.0
STILL_SECONDS: Final = 60.0
"""If nothing changes for so long in the quiet phase, nothing will."""
BACKOFF_CAP: Final = 4.0


class Result(msgspec.Struct):
    """What became of one seed."""

    seed: int
    hash: str
    lines: list[str]
    history: History
    violations: list[Violation]
    void: str | None
    seconds: float
    steps: int
    events: Counter[str]

    @property
    def ok(self) -> bool:
        return not self.violations


class World:
    def __init__(self, seed: int, folder: Path) -> None:
        self.seed = seed
        self.loop = SimLoop()
        self.lines: list[str] = []
        self.events: Counter[str] = Counter()
        self.ops: list[Op] = []
        self.effects: list[Effect] = []
        self.journal: list[Change] = []
        self._unfinished: set[str] = set()
        self._moved_at = 0.0
        self.acks: list[Ack] = []
        self.reports: list[Told] = []
        self.outages: list[Outage] = []
        self.unwritable: list[Outage] = []
        self.readies: list[Ready] = []
        self.deaths: list[Death] = []
        self.faults: list[Fault] = []
        self.meter = Meter()
        self.edited: dict[str, int] = {}
        """The number of the last edit of each job that a client was told of."""
        self.edits_in_doubt: set[tuple[str, int]] = set()
        """Edits whose answer was lost: each may take effect at any later time."""
        self.key_clashes: list[KeyClash] = []
        self.starts: list[Start] = []
        self.lost_answers = 0.0
        self.lease = LEASE_SECONDS
        self.quiet_from: float | None = None
        self._job_count = 0
        self.chance = self.random("world")
        self.any_type = self.random("any type").random() < 0.4
        """Whether the first worker takes any type, and clients ask for one that nobody names."""
        self.ticking = Ticking(self)
        self.weather = Weather(self.loop)
        self._path = folder / "stoker.db"
        self.clock = SimClock(self.loop)
        """The store's clock, which is the only one that judges."""
        self.disk = Disk(self.random("disk"))
        self.database: Database | None = None
        """A store that coordinators share; None when the one coordinator has it embedded."""
        self.bus = SimulatedBuses(self)
        self._eye: apsw.Connection | None = None
        self.coordinators: list[CoordinatorNode] = []
        self.workers: list[WorkerNode] = []
        self.clients: list[Client] = []
        self.problems: list[str] = []
        self.sealed = False

    def random(self, name: str) -> Random:
        """A source of chance of its own for whoever is called so."""
        return Random(f"{self.seed}/{name}")

    # ── what is seen ───────────────────────────────────────────────────────────────────────────────────────────────

    def trace(self, who: str, what: str) -> None:
        if self.sealed:
            return
        self.lines.append(f"{self.loop.time():11.6f} {who:<8} {what}")

    def effect(self, effect: Effect) -> None:
        self.effects.append(effect)
        end = f" {effect.kind}" if effect.kind else ""
        self.trace(effect.run, f"{effect.what} {effect.job}/{effect.claim}{end}")

    def committed(self, changes: list[Change]) -> None:
        self.journal += changes
        for change in changes:
            if change.new in FINAL:
                self._unfinished.discard(change.job)
            else:
                self._unfinished.add(change.job)
            self.trace("store", f"{change.job}/{change.claim} {change.old} -> {change.new}")
        if changes:
            self._moved_at = self.loop.time()
            self._look_at_limits(changes)
            for node in self.coordinators:
                node.burn()

    def _look_at_limits(self, changes: list[Change]) -> None:
        """See, at a commit, who holds the unique keys, and what was claimed of jobs with an expiry or edits."""
        now, db = self.loop.time(), self._reader()
        for key, ids in db.execute(_HOLDERS):
            jobs = ids.split(",")
            if len(jobs) > 1:
                self.key_clashes.append(KeyClash(now, key, jobs))
        for change in changes:
            if change.new == "running" and change.old != "running":
                for attempt, claimed_at, expires_at, edit in db.execute(_CLAIMED, (change.job,)):
                    if expires_at is not None or edit or change.job in self.edited:
                        in_doubt = (change.job, int(edit or 0)) in self.edits_in_doubt
                        told = 0 if in_doubt else self.edited.get(change.job, 0)
                        self.starts.append(
                            Start(now, change.job, attempt, claimed_at, expires_at, int(edit or 0), told)
                        )

    def log(self, _: Any, level: str, event: MutableMapping[str, Any]) -> Any:
        """Where the log lines of all processes go."""
        owner = OWNER.get()
        name = str(event.pop("event"))
        event.pop("exc_info", None)
        self.events[name] += 1
        if level == "critical":
            self.problems.append(f"{name} {event}")
        more = " ".join(f"{key}={value}" for key, value in event.items())
        self.trace(owner.name if owner is not None else "?", f"log {name} {more}")
        raise structlog.DropEvent

    # ── making things ──────────────────────────────────────────────────────────────────────────────────────────────

    def new_job_id(self) -> str:
        self._job_count += 1
        return f"j{self._job_count:04d}"

    def new_coordinator(
        self, node: CoordinatorNode, store: Store, job_log: JobLog, spread: Callable[[], float]
    ) -> Coordinator:
        ids = iter(range(1, 1_000_000))
        coordinator = Coordinator(
            coordinator_settings(),
            store,
            node.clock,
            job_log,
            NoLogs(),
            bus=self.bus.of(node) if store.shared else None,
            new_id=lambda: f"{node.name}-{next(ids)}",
            spread=spread,
        )
        coordinator._dispatch.bounds = BOUNDS
        assert coordinator._webhooks is not None
        coordinator._webhooks._post = self._receive
        coordinator._webhooks._resolve = _public
        coordinator.schedules._new_id = (
            self.new_job_id
        )  # an id is used once, however often a coordinator starts
        return coordinator

    async def _receive(
        self, target: Any, address: str, body: bytes, headers: dict[str, str]
    ) -> WebhookAnswer:
        """The receiver of webhooks takes a moment."""
        await asyncio.sleep(0.05)
        return WebhookAnswer(204)

    def new_supervisor(
        self,
        settings: Settings,
        dialer: Dialer,
        machine: Any,
        new_id: Callable[[], str],
        runner: RunnerContract | None = None,
    ) -> Supervisor:
        return Supervisor(settings, dialer, machine, new_id=new_id, version="0", runner=runner)

    async def _build(self) -> None:
        chance = self.chance
        count = 1
        if chance.random() < 0.6:
            self.database = Database(
                self.loop, self.weather, self._path, self.disk, self.clock, self.committed
            )
            await self.database.start()
            count = chance.choice([1, 2, 2, 3])
        for number in range(1, count + 1):
            clock = self.clock if self.database is None else SimClock(self.loop)
            self.coordinators.append(CoordinatorNode(self, f"c{number}", clock, self.disk, self._path))
        for node in self.coordinators:
            await node.start()
        for number in range(1, chance.randint(2, 4) + 1):
            any_type = self.any_type and number == 1
            self.workers.append(WorkerNode(self, f"w{number}", chance.randint(1, 3), any_type=any_type))
        for worker in self.workers:
            worker.start()
        self.clients = [Client(self, f"k{number}") for number in (1, 2)]
        self.clients.append(LimitClient(self, "k3"))

    # ── the run ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def main(self) -> None:
        await self._build()
        kind = "remote" if self.database is not None else "embedded"
        threads = [worker.threads for worker in self.workers]
        self.trace("world", f"store={kind} coordinators={len(self.coordinators)} threads={threads}")
        until = self.loop.time() + LOAD_SECONDS
        fate = Fate(self, until)
        for client in self.clients:
            client.start(client.work(until, self.chance.uniform(0.4, 1.8)))
        self.ticking.start(self.clients[0])
        Watcher(self).start()
        await fate.run()
        await fate.end()
        self.quiet_from = self.loop.time()
        self.trace("world", "quiet from here on")
        await self._quiet(self.quiet_from + QUIET_SECONDS)

    async def _quiet(self, until: float) -> None:
        """Long jobs that nothing disturbs, one that only this worker may run for each of them, so that nobody is forgotten;
        and a client that cancels what would never end by itself."""
        last = self.clients[0]
        for worker in self.workers:
            deed = Deed(f"calm-{worker.name}", self.lease * 2.2)
            order = Order(deed, key=f"key-calm-{worker.name}", max_attempts=2, labels={"host": worker.name})
            last.start(last.submit([order]))
        chance = self.random("quiet")
        if chance.random() < 0.3:
            flood(last, chance.choice(self.workers).name)
        if chance.random() < 0.3:
            last.start(oversize(last))
        while self.loop.time() < min(until, self._moved_at + STILL_SECONDS):
            await asyncio.sleep(0.5)
            for id in self._endless():
                last.start(last.cancel(id))
            busy = any(client.busy for client in self.clients) or not is_over(self._reader())
            if not busy and not self._unfinished:
                return

    def _endless(self) -> list[str]:
        """Running jobs that will never end unless somebody cancels them, and nobody did."""
        rows: list[tuple[Any, ...]] = self._reader().execute(_UNCANCELLED).fetchall()
        return [id for id, payload in rows if msgspec.json.decode(payload, type=Deed).then == "hang"]

    def _reader(self) -> apsw.Connection:
        """An eye on the store that no process of the simulation knows of."""
        if self._eye is None:
            self._eye = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READONLY)
        return self._eye

    # ── after the run ──────────────────────────────────────────────────────────────────────────────────────────────

    def history(self) -> History:
        db = self._reader()
        jobs = [_stored_job(row) for row in db.execute(_JOBS)]
        attempts = [_stored_attempt(row) for row in db.execute(_ATTEMPTS)]
        counts: Counter[str] = Counter()
        for status, count in db.execute("SELECT status, count FROM counts WHERE queue <> 'stoker-webhooks'"):
            counts[status] += count
        return History(
            Rules(2.0, BACKOFF_CAP, 0.3, lease=self.lease, kill_slack=2.5),
            self.ops,
            self.effects,
            self.journal,
            self.acks,
            self.reports,
            jobs,
            attempts,
            dict(counts),
            self.faults,
            self.outages,
            self.unwritable,
            self.readies,
            self.deaths,
            expected_ticks(db),
            fired_ticks(db),
            quiet_from=self.quiet_from,
            ended=self.loop.time(),
            bytes=self.meter.seen(),
            deliveries=[_delivery(row) for row in db.execute(_DELIVERIES)],
            key_clashes=self.key_clashes,
            starts=self.starts,
        )

    def close(self) -> None:
        self.sealed = True
        for node in self.coordinators:
            node.crash()
        if self.database is not None and self.database.store is not None:
            self.database.crash()
        if self._eye is not None:
            self._eye.close()
        self.loop.close()


_UNCANCELLED = """
SELECT id, payload FROM jobs WHERE status = 'running' AND timeout_sec IS NULL AND cancel_requested_at IS NULL
  AND queue <> 'stoker-webhooks'
"""
_JOBS = """
SELECT id, payload, status, claim_id, attempt, max_attempts, crashes, result, timeout_sec, rank, labels, thread_demand,
    status = 'cancelled' AND CAST(error AS TEXT) LIKE '%"expired"%', extras
FROM jobs WHERE queue <> 'stoker-webhooks' ORDER BY seq
"""
_DELIVERIES = "SELECT payload, status FROM jobs WHERE queue = 'stoker-webhooks' ORDER BY seq"
_HOLDERS = """
SELECT json_extract(extras, '$.unique_key') AS key, group_concat(id) FROM jobs
WHERE extras IS NOT NULL AND key IS NOT NULL AND status IN ('blocked', 'scheduled', 'queued', 'running')
    AND (claim_id = 0 OR json_extract(extras, '$.unique_until') IS NULL)
GROUP BY key
"""
_CLAIMED = """
SELECT attempt, claimed_at, json_extract(extras, '$.expires_at'), json_extract(metadata, '$.edit') FROM jobs
WHERE id = ? AND claimed_at IS NOT NULL
"""
_ATTEMPTS = """
SELECT jobs.id, a.claim_id, a.attempt, a.kind, a.charged, a.worker_id, a.retry_delay_us
FROM attempts AS a JOIN jobs ON jobs.seq = a.seq WHERE jobs.queue <> 'stoker-webhooks' ORDER BY a.seq, a.claim_id
"""


def _stored_job(row: tuple[Any, ...]) -> StoredJob:
    *fields, result, timeout, rank, labels, demand, expired, text = row
    id, payload, status, claim, attempt, max_attempts, crashes = fields
    marker = msgspec.json.decode(payload, type=Deed).marker
    value = None if result is None else bytes(result).decode()
    place = None if labels is None or demand > 1 else msgspec.json.decode(labels).get("host")
    used = extras.decode(text)
    rules = used.retry
    return StoredJob(
        id,
        marker,
        status,
        claim,
        attempt,
        max_attempts,
        crashes,
        value,
        timeout,
        rank,
        place,
        bool(expired),
        None if rules is None else [delay_bounds(rules, retry) for retry in range(1, max_attempts + 1)],
        rules is not None and ERROR in rules.never,
        used.snoozes,
        used.notify_url is not None,
    )


def _delivery(row: tuple[Any, ...]) -> Delivery:
    payload, status = row
    told = msgspec.json.decode(payload)["body"]["data"]
    return Delivery(told["id"], told["status"], status)


async def _public(host: str, port: int) -> list[str]:
    return ["93.184.216.34"]


def _stored_attempt(row: tuple[Any, ...]) -> StoredAttempt:
    id, claim, attempt, kind, charged, worker, delay_us = row
    delay = None if delay_us is None else delay_us / 1_000_000
    return StoredAttempt(id, claim, attempt, kind, bool(charged), worker, delay)


def coordinator_settings() -> Settings:
    return load(
        {},
        {
            "worker_heartbeat_timeout_sec": LEASE_SECONDS,
            "retry_backoff_cap_sec": BACKOFF_CAP,
            "log_level": "info",
            "webhook_hosts": ("hooks.example.com",),
            "webhook_secret": "whsec_" + "c2ltdWxhdGVk" * 3,
        },
    )


def run(seed: int, *, keep_lines: bool = True) -> Result:
    """Run one seed from nothing to its verdict."""
    folder = Path(tempfile.mkdtemp(prefix="stoker-sim-", dir=_memory()))
    config = structlog.get_config()
    was_enabled = gc.isenabled()
    gc.disable()
    world = World(seed, folder)
    structlog.configure(
        processors=[world.log],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        cache_logger_on_first_use=False,
    )
    try:
        _run_to_the_end(world)
        return _judge(world, keep_lines=keep_lines)
    finally:
        world.close()
        structlog.configure(**config)
        shutil.rmtree(folder, ignore_errors=True)
        if was_enabled:
            gc.enable()


def _run_to_the_end(world: World) -> None:
    try:
        # In a context of its own: what the caller's holds is no part of the run.
        contextvars.Context().run(world.loop.run_until_complete, world.main())
    except (Spinning, Stalled) as error:
        world.problems.append(f"{type(error).__name__}: {error}")
        world.trace("world", str(error))
    except Exception as error:  # noqa: BLE001 - whatever it is, the seed that brings it about is told
        world.problems.append(f"{type(error).__name__}: {error}")
        world.trace("world", traceback.format_exc())


def _judge(world: World, *, keep_lines: bool) -> Result:
    seconds = world.loop.time()
    history = world.history()
    violations = check(history)
    violations += [Violation("no_loop_dies", None, text) for text in world.problems + world.loop.errors]
    digest = hashlib.sha256("\n".join(world.lines).encode()).hexdigest()[:16]
    void = None
    if not any(attempt.kind == "lost" for attempt in history.attempts):
        void = "no lease expired"
    lines = world.lines if keep_lines else []
    return Result(
        world.seed, digest, lines, history, violations, void, seconds, world.loop.steps, world.events
    )


def _memory() -> str | None:
    """A folder in memory where there is one: the simulation syncs often, and means none of it."""
    shm = Path("/dev/shm")
    return str(shm) if shm.is_dir() else None
