"""A Stoker to measure: `stoker serve` and, if wanted, `stoker worker`, as real processes on a folder of their own."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from bench.http import BadResponse, Client
from bench.processes import BenchFailed, Process, free_port, python

DATABASE: Final = "stoker.db"
WORKER_THREADS: Final = 2


class Stats(msgspec.Struct, frozen=True):
    """The part of `GET /stats` that is needed here."""

    jobs_by_status: dict[str, int]

    @property
    def completed(self) -> int:
        return self.jobs_by_status["completed"]


class System:
    """Use as a context manager: on leaving, the worker and then the coordinator are stopped in good order."""

    def __init__(
        self, folder: Path, prefix: Sequence[str] = (), url: str = "", program: Sequence[str] = ()
    ) -> None:
        """`url`: the database, if it is not to be an SQLite file in the folder. `program`: `stoker`, if not this tree's."""
        folder.mkdir(parents=True, exist_ok=True)
        self.database = folder / DATABASE
        self.port = free_port()
        self._folder = folder
        self._workers: list[Process] = []
        self._program = [*(program or python("stoker"))]
        database = url or f"sqlite:///{self.database}"
        serve = ["serve", "--port", str(self.port), "--database", database]
        self.coordinator = Process([*prefix, *self._program, *serve], folder / "coordinator.log")
        self._client: Client | None = None

    def __enter__(self) -> Self:
        try:
            self.coordinator.wait_until(self._healthy, "the coordinator")
        except BaseException:
            self.coordinator.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            self._client.close()
        with ExitStack() as stack:
            stack.callback(self.coordinator.stop)
            for worker in self._workers:
                stack.callback(worker.stop)

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = Client(self.port)
        return self._client

    def _healthy(self) -> bool:
        return self.client.call("GET", "/health") == 200

    def _ready(self) -> bool:
        return self.client.call("GET", "/ready") == 200

    def start_worker(
        self,
        threads: int = WORKER_THREADS,
        *,
        name: str = "bench",
        options: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a worker and return at once. `variables` join its environment."""
        url = f"http://127.0.0.1:{self.port}"
        worker = Process(
            [*self._program, "worker", "--url", url, "--threads", str(threads), "--name", name, *options],
            self._folder / "worker.log",
            variables,
        )
        self._workers.append(worker)
        return worker

    def add_worker(self) -> Process:
        """Start the one worker and wait until it is registered."""
        worker = self.start_worker()
        worker.wait_until(self._ready, "the worker")
        return worker

    def workers(self) -> int:
        """How many workers are registered, with this coordinator or another of the same database."""
        return len(self.client.json("GET", "/workers")["workers"])

    def stats(self) -> Stats:
        return msgspec.convert(self.client.json("GET", "/stats"), Stats)

    def wait_for_completed(self, number: int, timeout_seconds: float = 120.0) -> int:
        """Wait until so many jobs are completed in the store; when that was, by the monotonic clock in ns.

        Asks seldom while much is left, because the asking is paid for by what is measured.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            done = self.stats().completed
            now = time.monotonic_ns()
            if done >= number:
                return now
            if time.monotonic() > deadline:
                raise BenchFailed(f"only {done:,} of {number:,} jobs completed in {timeout_seconds:g} s")
            time.sleep(0.1 if number - done > number // 4 else 0.02)

    def submit(self, body: bytes) -> str:
        """Submit one job; its id."""
        answer = self.client.json("POST", "/jobs", body)
        return str(answer["id"])

    def run_one(self, body: bytes) -> float:
        """Submit one job and wait for its end; the seconds it took."""
        started = time.perf_counter()
        id = self.submit(body)
        job = self.client.json("GET", f"/jobs/{id}?wait=30")
        if job["status"] != "completed":
            raise BadResponse(f"job {id} is {job['status']}, not completed")
        return time.perf_counter() - started
