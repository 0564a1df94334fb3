"""Several coordinators and workers on one store, as processes, any of which can be ended and started again."""

import shutil
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.checkers.history import Effect
from tests.e2e.system import Server, System, Worker, eventually, free_port

CHAOS_APP: Final = "chaos_app:app"
HEARTBEAT_TIMEOUT_SEC: Final = 8.0
_effect: Final = msgspec.json.Decoder(Effect)


class Fleet(System):
    """`coordinators[i]` always stands on the same port; `workers[i]` always has the same name."""

    def __init__(
        self, folder: Path, database: str | None, *, coordinators: int = 3, **settings: object
    ) -> None:
        super().__init__(folder, database)
        shutil.copy(Path(__file__).with_name("app.py"), folder / "chaos_app.py")
        self.effects_path = folder / "effects.jsonl"
        self.settings: dict[str, Any] = {
            "WORKER_HEARTBEAT_TIMEOUT_SEC": HEARTBEAT_TIMEOUT_SEC,
            "STOKER_RETRY_BACKOFF_BASE_SEC": 1,
            **settings,
        }
        self.ports = [free_port() for _ in range(coordinators)]
        self.coordinators: list[Server] = []
        self.workers: list[Worker] = []
        self._numbering = threading.Lock()

    def _log(self, kind: str) -> Path:
        with self._numbering:  # coordinators are started side by side
            return super()._log(kind)

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    # ── starting and starting again ────────────────────────────────────────────────────────────────────────────────

    def start_all(self, workers: int = 4, threads: int = 2) -> None:
        with ThreadPoolExecutor(len(self.ports)) as side_by_side:
            self.coordinators = list(side_by_side.map(lambda port: self._coordinator(port), self.ports))
        self.workers = [self._member(index, threads) for index in range(workers)]
        self.wait_for(self.workers)

    def _coordinator(self, port: int, **more: object) -> Server:
        return self.serve(port=port, **{**self.settings, **more})

    def _member(self, index: int, threads: int = 2, **more: object) -> Worker:
        """A worker that prefers another coordinator than its neighbour, and knows them all."""
        first = index % len(self.ports)
        urls = self.urls[first:] + self.urls[:first]
        return self.begin_worker(f"w{index}", urls, "--queues", "default", threads=threads, **more)

    def begin_worker(self, name: str, urls: Iterable[str], *args: object, **more: Any) -> Worker:
        return self.start_worker(
            self.coordinators[0],
            *args,
            name=name,
            urls=urls,
            app=CHAOS_APP,
            CHAOS_WORKER=name,
            CHAOS_EFFECTS=self.effects_path,
            **more,
        )

    def wait_for(self, workers: list[Worker], within: float = 60) -> None:
        def registered() -> bool:
            for worker in workers:
                assert worker.running, f"a worker ended by itself:\n{worker.output[-4000:]}"
            return {worker.pid for worker in workers} <= {row["pid"] for row in self.any().live_workers()}

        eventually(registered, within, "workers to register")

    def any(self) -> Server:
        return next(server for server in self.coordinators if server.running)

    def restart_coordinator(self, index: int) -> None:
        self.coordinators[index].close()
        self.coordinators[index] = self._coordinator(self.ports[index])

    def restart_worker(self, index: int) -> None:
        self.workers[index] = self._member(index)

    # ── what became of it ──────────────────────────────────────────────────────────────────────────────────────────

    def unfinished(self) -> int:
        by_status = self.any().get("/stats")["jobs_by_status"]
        return sum(by_status[status] for status in ("queued", "running", "scheduled", "blocked"))

    def until_all_is_final(self, within: float) -> float:
        """When it was so."""
        eventually(lambda: self.unfinished() == 0, within, lambda: str(self.any().get("/stats")))
        return time.monotonic()

    def effects(self) -> list[Effect]:
        """What the jobs wrote down, in the order of their writing."""
        if not self.effects_path.exists():
            return []
        lines = self.effects_path.read_bytes().split(b"\n")
        return [_effect.decode(line) for line in lines[:-1]]
