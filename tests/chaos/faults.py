"""What is done to a system, one function for each kind of fault. Each comes back when the fault is over.

`who` in a record is the worker that is hit, or `*` where it may be felt everywhere. A record of kind `pause` excuses two
attempts that overlap; `clock` excuses a delay that was not kept. Both are given only where the promises allow it.
"""

import random
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from tests.chaos import clocks
from tests.chaos.clients import Crowd
from tests.chaos.load import large
from tests.chaos.stage import LEASE_SECONDS, SqliteStage, Stage, send, tree
from tests.checkers.history import Death, Fault, Outage, Violation
from tests.support.proxy import Proxy

HOUR: Final = 3600.0
BREATH_SECONDS: Final = LEASE_SECONDS + 2.5
"""Long enough for a lease to end and for its jobs to be taken back."""
RUSH_JOBS: Final = 12
RUSH_SECONDS: Final = 120.0
REST_SECONDS: Final = 2.0
"""For everybody else, so that some work is done between two faults."""


class Scene(NamedTuple):
    """One fault: its kind in words, what it hits, and what it does."""

    kind: str
    hits: str
    play: Callable[[], None]


class Card(NamedTuple):
    """A scene that waits for its turn, and what dealt it."""

    kind: Callable[[], Scene]
    scene: Scene


def first_free(parts: Iterable[str], free_at: Mapping[str, float], now: float) -> int | None:
    """The place of the first card whose part of the system is free. Those before it keep their places, so they are not
    passed over for ever; None when all have to wait."""
    return next((place for place, part in enumerate(parts) if free_at.get(part, 0.0) <= now), None)


class Director:
    """Chooses faults, plays them, and writes them down as they were."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage = stage
        self._dice = random.Random(seed)
        self._deck: list[Card] = []
        self._free_at: dict[str, float] = {}
        self._lock = threading.Lock()
        self.played: list[Fault] = []
        """Every fault by its kind in words; `stage.faults` has them as the checkers know them."""
        self.kinds: set[str] = set()
        """Everything that there is to play, in words."""
        self.skipped = self._skipped()
        self._kinds = self._all_kinds()
        self._deal()

    def _all_kinds(self) -> list[Callable[[], Scene]]:
        kinds = [
            self._kill_coordinator,
            self._keep_coordinator_away,
            self._stop_coordinator,
            self._block_coordinator,
            self._replace_coordinator,
            *[self._kill_worker] * 4,
            *[self._stop_worker] * 3,
            *[self._block_worker] * 2,
            self._replace_worker,
            self._cut_doors,
            self._close_door,
        ]
        if clocks.library() is not None:
            kinds += [self._jump_worker, self._jump_coordinator]
        kinds.append(self._rush_of_large_payloads)
        if self._stage.disk is not None:
            kinds.append(self._fill_disk)
        if isinstance(self._stage, SqliteStage):
            kinds.append(self._second_coordinator)
        if self._stage.postgres is not None:
            kinds += [self._kill_postgres, self._stop_postgres, self._restart_postgres, self._cut_store]
            kinds += [self._close_store, self._cut_commits, self._make_read_only]
        if self._stage.redis is not None:
            kinds += [self._kill_redis, self._stop_redis, self._flush_redis, self._cut_redis]
        return kinds

    def _skipped(self) -> list[str]:
        return [
            *([] if clocks.library() else ["clock jumps (there is no C compiler)"]),
            *([] if self._stage.disk else ["disk full (a file system of its own takes root)"]),
        ]

    # ── playing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def play_one(self) -> bool:
        """Play the first fault of the deck whose part of the system is free, if there is one."""
        scene = self._take()
        if scene is None:
            return False
        part = self._part(scene.hits)
        begins = time.monotonic()
        try:
            scene.play()
        finally:
            ends = time.monotonic()
            self.played.append(Fault(scene.kind, scene.hits, begins, ends))
            with self._lock:
                self._free_at[part] = ends + (BREATH_SECONDS if part == "centre" else REST_SECONDS)
        return True

    def _take(self) -> Scene | None:
        """Out of the deck, and its part is taken with it."""
        with self._lock:
            place = self._first_free()
            if place is None:
                self._deal()
                place = self._first_free()
            if place is None:
                return None
            scene = self._deck.pop(place).scene
            self._free_at[self._part(scene.hits)] = float("inf")
            return scene

    def _first_free(self) -> int | None:
        parts = [self._part(card.scene.hits) for card in self._deck]
        return first_free(parts, self._free_at, time.monotonic())

    def _deal(self) -> None:
        """Behind the cards that wait come those that were played, in another order."""
        missing = list((Counter(self._kinds) - Counter(card.kind for card in self._deck)).elements())
        self._dice.shuffle(missing)
        self._deck += [Card(kind, kind()) for kind in missing]
        self.kinds |= {card.scene.kind for card in self._deck}

    def _part(self, hits: str) -> str:
        """What is hit by one fault at a time. Everything goes through the store, and through a coordinator that is the only
        one; that gets some time between two faults, or nothing would ever run."""
        alone = len(self._stage.ports) == 1
        if hits == "store" or (alone and hits.startswith(("c", "door"))):
            return "centre"
        return hits

    def _note(self, kind: str, who: str, begins: float, ends: float | None = None) -> None:
        self._stage.faults.append(Fault(kind, who, begins, time.monotonic() if ends is None else ends))

    def _coordinator(self) -> int:
        return self._dice.randrange(len(self._stage.ports))

    def _worker(self) -> int:
        return self._dice.randrange(self._stage.worker_count)

    def _seconds(self, low: float, high: float) -> float:
        return self._dice.uniform(low, high)

    # ── coordinators ───────────────────────────────────────────────────────────────────────────────────────────────

    def _kill_coordinator(self) -> Scene:
        return self._killer("coordinator: SIGKILL", self._seconds(0, 1))

    def _keep_coordinator_away(self) -> Scene:
        """For longer than a lease: those who could not reach it must not be given up when it is back."""
        return self._killer("coordinator: SIGKILL, away beyond a lease", LEASE_SECONDS + self._seconds(1, 2))

    def _killer(self, kind: str, away: float) -> Scene:
        index = self._coordinator()

        def play() -> None:
            begins = time.monotonic()
            self._stage.coordinators[index].kill()
            self._be_without(away)
            self._stage.restart_coordinator(index)
            self._note("coordinator killed", "*", begins)

        return Scene(kind, f"c{index}", play)

    def _replace_coordinator(self) -> Scene:
        index = self._coordinator()

        def play() -> None:
            begins = time.monotonic()
            self._stage.coordinators[index].terminate()
            self._stage.coordinators[index].exit_code(within=30)
            self._be_without(0.0)
            self._stage.restart_coordinator(index)
            self._note("coordinator replaced", "*", begins)

        return Scene("coordinator: SIGTERM", f"c{index}", play)

    def _be_without(self, seconds: float) -> None:
        """A coordinator is gone. If it was the only one, nobody stores a heartbeat until another is started."""
        begins = time.monotonic()
        time.sleep(seconds)
        if len(self._stage.ports) == 1:
            self._stage.outages.append(Outage(begins, time.monotonic()))

    def _stop_coordinator(self) -> Scene:
        index, seconds = self._coordinator(), self._seconds(2, LEASE_SECONDS + 1)
        play = self._stopper(
            "coordinator stopped", "*", lambda: {self._stage.coordinators[index].pid}, seconds
        )
        return Scene("coordinator: SIGSTOP", f"c{index}", play)

    def _block_coordinator(self) -> Scene:
        index, seconds = self._coordinator(), self._seconds(0.2, 1)
        play = self._stopper(
            "coordinator blocked", "*", lambda: {self._stage.coordinators[index].pid}, seconds
        )
        return Scene("coordinator: loop blocked", f"c{index}", play)

    def _jump_coordinator(self) -> Scene:
        """Where the store is SQLite, its clock is the coordinator's: there it only goes forward, for what was to happen in a
        second would otherwise have to wait for an hour. On PostgreSQL the coordinator's clock means nothing."""
        index = self._coordinator()
        clock = self._stage.clocks[f"c{index}"]
        shared = self._stage.postgres is not None
        offset = self._dice.choice([HOUR, -HOUR, 0.0])

        def play() -> None:
            begins = time.monotonic()
            clock.set(offset if shared else clock.offset + HOUR)
            time.sleep(0.2)
            self._note("clock set" if shared else "clock", "*", begins)

        return Scene("coordinator: clock set", f"c{index}", play)

    # ── workers ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _kill_worker(self) -> Scene:
        index, away = self._worker(), self._seconds(0, 1)

        def play() -> None:
            begins = time.monotonic()
            worker = self._stage.workers[index]
            worker.kill()
            killed_at = time.monotonic()
            sessions = {event["session"] for event in worker.events("connected")}
            self._stage.dead += [Death(session, killed_at) for session in sessions]
            time.sleep(away)
            self._stage.restart_worker(index)
            self._note("worker killed", f"w{index}", begins)

        return Scene("worker: SIGKILL", f"w{index}", play)

    def _replace_worker(self) -> Scene:
        """As at a deploy; what does not end within a second is handed back."""
        index = self._worker()

        def play() -> None:
            begins = time.monotonic()
            self._stage.workers[index].terminate()
            self._stage.workers[index].exit_code(within=60)
            self._stage.restart_worker(index)
            self._note("worker replaced", f"w{index}", begins)

        return Scene("worker: SIGTERM", f"w{index}", play)

    def _stop_worker(self) -> Scene:
        """The whole machine, or its supervisor alone; sometimes for longer than its lease."""
        index, seconds = self._worker(), self._seconds(1, LEASE_SECONDS + 3)
        whole = self._dice.random() < 0.7

        def pids() -> set[int]:
            pid = self._stage.workers[index].pid
            return tree(pid) if whole else {pid}

        return Scene("worker: SIGSTOP", f"w{index}", self._stopper("pause", f"w{index}", pids, seconds))

    def _block_worker(self) -> Scene:
        index, seconds = self._worker(), self._seconds(0.2, 1)
        play = self._stopper("pause", f"w{index}", lambda: {self._stage.workers[index].pid}, seconds)
        return Scene("worker: loop blocked", f"w{index}", play)

    def _jump_worker(self) -> Scene:
        index, offset = self._worker(), self._dice.choice([HOUR, -HOUR, 0.0])

        def play() -> None:
            begins = time.monotonic()
            self._stage.clocks[f"w{index}"].set(offset)
            time.sleep(0.2)
            self._note("clock set", f"w{index}", begins)

        return Scene("worker: clock set", f"w{index}", play)

    def _stopper(
        self, kind: str, who: str, pids: Callable[[], set[int]], seconds: float
    ) -> Callable[[], None]:
        def play() -> None:
            begins = time.monotonic()
            stopped = pids()
            for pid in stopped:
                send(pid, signal.SIGSTOP)
            time.sleep(seconds)
            for pid in stopped:
                send(pid, signal.SIGCONT)
            self._note(kind, who, begins)

        return play

    # ── connections ────────────────────────────────────────────────────────────────────────────────────────────────

    def _cut_doors(self) -> Scene:
        index = self._coordinator()

        def play() -> None:
            begins = time.monotonic()
            self._stage.doors[index].cut()
            self._note("cut", "*", begins)

        return Scene("connections cut: workers, clients", f"door{index}", play)

    def _close_door(self) -> Scene:
        index, seconds = self._coordinator(), self._seconds(1, 4)
        return Scene(
            "network away: workers, clients",
            f"door{index}",
            self._closer(self._stage.doors[index], seconds),
        )

    def _cut_store(self) -> Scene:
        index = self._coordinator()

        def play() -> None:
            begins = time.monotonic()
            self._stage.store_doors[index].cut()
            self._note("cut", "*", begins)

        return Scene("connections cut: PostgreSQL", f"store{index}", play)

    def _close_store(self) -> Scene:
        index, seconds = self._coordinator(), self._seconds(1, 4)
        return Scene(
            "network away: PostgreSQL",
            f"store{index}",
            self._closer(self._stage.store_doors[index], seconds),
        )

    def _closer(self, door: Proxy, seconds: float) -> Callable[[], None]:
        def play() -> None:
            begins = time.monotonic()
            door.refusing = True
            door.cut()
            time.sleep(seconds)
            door.refusing = False
            self._note("cut", "*", begins)

        return play

    def _cut_commits(self) -> Scene:
        index, seconds = self._coordinator(), self._seconds(1, 3)
        door = self._stage.store_doors[index]

        def play() -> None:
            begins = time.monotonic()
            door.cut_every = 3
            time.sleep(seconds)
            door.cut_every = 0
            self._note("cut", "*", begins)

        return Scene("connections cut: after COMMIT", f"store{index}", play)

    # ── PostgreSQL, Redis, the disk ────────────────────────────────────────────────────────────────────────────────

    def _fill_disk(self) -> Scene:
        seconds = self._seconds(1, 2.5)

        def play() -> None:
            assert self._stage.disk is not None
            begins = time.monotonic()
            self._stage.disk.fill()
            time.sleep(seconds)
            self._stage.disk.clear()
            if self._stage.postgres is not None:
                self._ensure_postgres()
            self._note("store: disk full", "*", begins)

        return Scene("disk full", "store", play)

    def _second_coordinator(self) -> Scene:
        """Somebody starts another coordinator on the same file by another name, or after tidying the lock file away."""
        stage = self._stage
        assert isinstance(stage, SqliteStage)
        way = self._dice.choice(["symlink", "hard link", "lock file deleted"])

        def play() -> None:
            file = stage.file
            if way == "lock file deleted":
                file.with_name(f"{file.name}.lock").unlink(missing_ok=True)
            else:
                file = file.with_name(f"{uuid.uuid4().hex}.db")
                (file.symlink_to if way == "symlink" else file.hardlink_to)(stage.file)
            if stage.try_second_coordinator(file) is None:
                text = f"a second coordinator began to serve ({way})"
                stage.findings.append(Violation("one_coordinator_per_file", "-", text))
            if file != stage.file:
                file.unlink()

        return Scene("second coordinator on the same file", "c0", play)

    def _rush_of_large_payloads(self) -> Scene:
        """More bytes at once than a coordinator may hold in memory."""

        def play() -> None:
            ports = [door.port for door in self._stage.doors]
            crowd = Crowd(ports, RUSH_JOBS, clients=6, spec=large, name=f"rush-{uuid.uuid4().hex[:8]}-")
            self._stage.rushes.append(crowd)
            crowd.join(RUSH_SECONDS)

        return Scene("rush of payloads of 4 MB", "load", play)

    def _ensure_postgres(self) -> None:
        """A server that could not write its log gives up, and its service manager starts it again."""
        postgres = self._stage.postgres
        assert postgres is not None
        time.sleep(0.5)
        if not _is_up(postgres.pid):
            postgres.kill()
            postgres.start()

    def _kill_postgres(self) -> Scene:
        away = self._seconds(0, 1)

        def play() -> None:
            assert self._stage.postgres is not None
            begins = time.monotonic()
            self._stage.postgres.kill()
            time.sleep(away)
            self._stage.postgres.start()
            self._note("store: killed", "*", begins)

        return Scene("PostgreSQL: SIGKILL", "store", play)

    def _make_read_only(self) -> Scene:
        """As a standby is, or a primary whose administrator wants quiet: it answers, and nothing can be stored. The
        connections are closed, or they stay open and are read-only from one moment to the next."""
        seconds, closing = self._seconds(5.5, 7.5), self._dice.random() < 0.5

        def play() -> None:
            postgres = self._stage.postgres
            assert postgres is not None
            begins = time.monotonic()
            postgres.psql("ALTER SYSTEM SET default_transaction_read_only = on")
            postgres.psql("SELECT pg_reload_conf()")
            if closing:
                postgres.psql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'chaos'"
                )
            unwritable_from = time.monotonic()
            time.sleep(seconds)
            self._stage.unwritable.append(Outage(unwritable_from, time.monotonic()))
            postgres.psql("ALTER SYSTEM RESET default_transaction_read_only")
            postgres.psql("SELECT pg_reload_conf()")
            self._note("store: read-only", "*", begins)

        return Scene("PostgreSQL: read-only", "store", play)

    def _restart_postgres(self) -> Scene:
        def play() -> None:
            assert self._stage.postgres is not None
            begins = time.monotonic()
            self._stage.postgres.stop()
            self._stage.postgres.start()
            self._note("store: restarted", "*", begins)

        return Scene("PostgreSQL: restart", "store", play)

    def _stop_postgres(self) -> Scene:
        assert self._stage.postgres is not None
        postgres, seconds = self._stage.postgres, self._seconds(0.5, 3)
        play = self._stopper("store: stopped", "*", lambda: tree(postgres.pid), seconds)
        return Scene("PostgreSQL: SIGSTOP", "store", play)

    def _kill_redis(self) -> Scene:
        away = self._seconds(0, 2)

        def play() -> None:
            assert self._stage.redis is not None
            begins = time.monotonic()
            self._stage.redis.kill()
            time.sleep(away)
            self._stage.redis.start()
            self._note("redis", "redis", begins)

        return Scene("Redis: SIGKILL", "redis", play)

    def _stop_redis(self) -> Scene:
        assert self._stage.redis is not None
        redis, seconds = self._stage.redis, self._seconds(0.5, 4)
        play = self._stopper("redis", "redis", lambda: {redis.pid}, seconds)
        return Scene("Redis: SIGSTOP", "redis", play)

    def _flush_redis(self) -> Scene:
        def play() -> None:
            assert self._stage.redis is not None
            begins = time.monotonic()
            self._stage.redis.command("FLUSHALL")
            self._note("redis", "redis", begins)

        return Scene("Redis: FLUSHALL", "redis", play)

    def _cut_redis(self) -> Scene:
        seconds = self._seconds(0, 3)
        door: Proxy = self._stage.redis_door  # type: ignore[attr-defined]
        return Scene("connections cut: Redis", "redis", self._closer(door, seconds))


def _is_up(pid: int) -> bool:
    return bool(tree(pid) - {pid})
