"""What a chaos run plays on: processes with proxies between them, clocks that can be set, a disk that can be filled."""

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.chaos.books import Books, PostgresBooks, SqliteBooks
from tests.chaos.clients import Crowd
from tests.chaos.clocks import Clock
from tests.chaos.fleet import Fleet
from tests.chaos.memory import MemoryWatcher
from tests.chaos.tap import Ears
from tests.chaos.watching import Watcher
from tests.checkers.history import Death, Fault, Outage, Violation
from tests.e2e.system import Server, Worker, descendants, free_port
from tests.support.proxy import Proxy
from tests.support.servers import Postgres, Redis

LEASE_SECONDS: Final = 5.0
THREADS: Final = 5
DISK_MB: Final = 2048
YEARS: Final = 10 * 365 * 86_400

SETTINGS: Final[dict[str, object]] = {
    "WORKER_HEARTBEAT_TIMEOUT_SEC": LEASE_SECONDS,
    "STOKER_RETRY_BACKOFF_BASE_SEC": 1,
    # Clocks are set forward by hours: nothing may be thrown away for its age.
    "STOKER_RETENTION_COMPLETED_SEC": YEARS,
    "STOKER_RETENTION_FAILED_SEC": YEARS,
    "IDEMPOTENCY_TTL_SEC": YEARS,
    "STOKER_LOG_LEVEL": "warning",
}


class Stage(Fleet):
    """A fleet whose connections all go through proxies. `names` of coordinators are c0, c1, …, of workers w0, w1, …"""

    def __init__(
        self, folder: Path, database: str, *, coordinators: int, workers: int, **settings: object
    ) -> None:
        super().__init__(folder, database, coordinators=coordinators, **{**SETTINGS, **settings})
        self.ears = Ears()
        self.doors = [Proxy(port, listen=self.ears.listen) for port in self.ports]
        """In front of each coordinator: for workers and clients."""
        self.clocks = {
            name: Clock(folder / f"{name}.clock")
            for name in [f"c{index}" for index in range(coordinators)]
            + [f"w{index}" for index in range(workers)]
        }
        self.store_doors: list[Proxy] = []
        """Between each coordinator and the store, where there is a connection."""
        self.faults: list[Fault] = []
        self.outages: list[Outage] = []
        self.unwritable: list[Outage] = []
        self.dead: list[Death] = []
        """The sessions of workers that were killed, and when."""
        self.worker_count = workers
        self.books: Books
        self.postgres: Postgres | None = None
        self.redis: Redis | None = None
        self.disk: Disk | None = None
        self.watcher = Watcher(self.effects_path)
        self.memory = MemoryWatcher(self._coordinator_pids)
        self.rushes: list[Crowd] = []
        """Crowds of clients that faults sent, beside the steady load."""
        self.findings: list[Violation] = []
        """What faults themselves saw to be wrong."""

    def _coordinator_pids(self) -> list[int]:
        return [server.pid for server in self.coordinators if server.running]

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{door.port}" for door in self.doors]

    def store_of(self, index: int) -> str:
        """The URL by which this coordinator knows the store."""
        return self.database

    # ── starting ───────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self) -> None:
        self.start_all(self.worker_count, THREADS)
        self.books.watch()

    def _coordinator(self, port: int, **more: object) -> Server:
        index = self.ports.index(port)
        clock = self.clocks[f"c{index}"].environment
        return self.serve("--database", self.store_of(index), port=port, **{**self.settings, **clock, **more})

    def _member(self, index: int, threads: int = THREADS, **more: object) -> Worker:
        return super()._member(index, threads, **self.clocks[f"w{index}"].environment, **more)

    def restart_coordinator(self, index: int) -> None:
        """As a service manager would: again and again, until it stays up (its store may be away)."""
        self.coordinators[index].close()
        while True:
            try:
                self.coordinators[index] = self._coordinator(self.ports[index])
                return
            except AssertionError:
                time.sleep(0.2)

    def revive(self) -> None:
        """After the last fault: everything that should be up is up, and nothing stands still."""
        for program in (*self.coordinators, *self.workers):
            if program.running:
                for pid in tree(program.pid):
                    send(pid, signal.SIGCONT)
        for index, server in enumerate(self.coordinators):
            if not server.running:
                self.restart_coordinator(index)
        for index, worker in enumerate(self.workers):
            if not worker.running:
                self.restart_worker(index)
        self.wait_for(self.workers)

    def close(self) -> None:
        for program in (*self.coordinators, *self.workers):
            for pid in tree(program.pid):
                send(pid, signal.SIGCONT)
        super().close()
        for door in (*self.doors, *self.store_doors):
            door.close()
        self.watcher.stop()
        self.memory.stop()


class PostgresStage(Stage):
    def __init__(self, folder: Path, postgres: Postgres, redis: Redis) -> None:
        url = postgres.create_database("chaos")
        self.redis_door = Proxy(redis.port)
        super().__init__(
            folder, url, coordinators=3, workers=4, REDIS_URL=f"redis://127.0.0.1:{self.redis_door.port}/0"
        )
        self.store_doors = [Proxy(postgres.port) for _ in self.ports]
        self.postgres = postgres
        self.redis = redis
        self.books = PostgresBooks(url)

    def store_of(self, index: int) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.store_doors[index].port}/chaos"

    def close(self) -> None:
        super().close()
        self.redis_door.close()


class SqliteStage(Stage):
    def __init__(self, folder: Path, disk: "Disk | None") -> None:
        place = folder if disk is None else disk.path
        super().__init__(folder, f"sqlite:///{place / 'stoker.db'}", coordinators=1, workers=4)
        self.disk = disk
        self.file = place / "stoker.db"
        self.books = SqliteBooks(self.file)

    def try_second_coordinator(self, file: Path) -> str | None:
        """Start a coordinator on another name of the database; return what it said when it refused, None when it went on to
        serve (and end it then)."""
        second = self.start("serve", "--port", free_port(), "--database", f"sqlite:///{file}")
        try:
            second.exit_code(within=30)
        except AssertionError:
            second.kill()
            return None
        return second.output


# ── processes and disks ────────────────────────────────────────────────────────────────────────────────────────────


def tree(pid: int) -> set[int]:
    return {pid} | descendants(pid)


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Disk:
    """A small file system of its own that can be filled and emptied."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"
        self._lock = threading.Lock()

    def fill(self) -> None:
        with self._lock, self._ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            block = bytes(1024 * 1024)
            while True:
                file.write(block)

    def clear(self) -> None:
        with self._lock:
            self._ballast.unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[Disk | None]:
    """A file system in memory, or None where that may not be mounted (it takes root)."""
    path.mkdir(parents=True, exist_ok=True)
    argv: list[Any] = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=0755", "chaos", path]
    if os.geteuid() != 0 or subprocess.run(argv, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "-l", path], check=False)


@contextlib.contextmanager
def stage(store: str) -> Iterator[Stage]:
    """Everything for a run on this store, and nothing of it afterwards."""
    with tempfile.TemporaryDirectory(prefix="stoker-chaos-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        make = _on_sqlite if store == "sqlite" else _on_postgres
        with make(folder) as made:
            made.open()
            yield made


@contextlib.contextmanager
def _on_sqlite(folder: Path) -> Iterator[Stage]:
    with small_disk(folder / "disk") as disk, SqliteStage(folder / "system", disk) as made:
        yield made


@contextlib.contextmanager
def _on_postgres(folder: Path) -> Iterator[Stage]:
    with small_disk(folder / "pg") as disk:
        postgres = Postgres(folder / "pg").start()
        redis = Redis(folder / "redis").start()
        try:
            with PostgresStage(folder / "system", postgres, redis) as made:
                made.disk = disk
                yield made
        finally:
            redis.kill()
            postgres.kill()
