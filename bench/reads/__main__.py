"""`python -m bench.reads`: build a large database, ask for everything, judge how long it took.

Every request is asked for several times, one after the other, and `/health` all the while from another thread. A request is
judged by its 95th percentile, `/health` by its 99th. A page too deep is refused with 422, which is timed like any answer.
"""

import argparse
import asyncio
import contextlib
import math
import socket
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.http import Client, request_bytes
from bench.processes import ROOT, BenchFailed
from bench.reads.asks import Ask, Known, asks
from bench.reads.build import write_postgres, write_sqlite
from bench.system import DATABASE, System
from tests.support.servers import Postgres

HEALTH_MS: Final = 20.0
HEALTH_EVERY_SECONDS: Final = 0.005
SETTLE_SECONDS: Final = 30.0
_BULK: Final = b'{"action": "cancel", "filter": {"type": "no-such-type"}}'
_SCHEDULE: Final = b'{"cron": "@yearly", "job": {"type": "no-such-type"}}'


class Timed(msgspec.Struct, frozen=True):
    """How long something took, in milliseconds."""

    what: str
    bound_ms: float
    judged: float
    """The percentile that is held to the bound."""
    took: Sequence[float]
    refused: bool = False

    def at(self, percent: float) -> float:
        ordered = sorted(self.took)
        return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]

    @property
    def missed(self) -> bool:
        return self.at(self.judged) > self.bound_ms

    def line(self) -> str:
        mark = "MISSED" if self.missed else "refused" if self.refused else ""
        shown = (statistics.median(self.took), self.at(95), self.at(99), max(self.took))
        figures = " ".join(f"{milliseconds:9.2f}" for milliseconds in shown) + f" {self.bound_ms:7.0f}"
        return f"{self.what:<90.90} {figures}  {mark}".rstrip()


class Health(threading.Thread):
    """Asks for `/health` until it is told to stop."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._client = Client(port)
        self._over = threading.Event()
        self.took: list[float] = []

    def run(self) -> None:
        while not self._over.wait(HEALTH_EVERY_SECONDS):
            started = time.perf_counter()
            self._client.call("GET", "/health")
            self.took.append((time.perf_counter() - started) * 1e3)

    def stop(self) -> None:
        self._over.set()
        self.join()
        self._client.close()


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def stored(store: str, jobs: int, folder: Path) -> Iterator[str]:
    """The URL of a full database; it is built unless an earlier run left one."""
    place = folder / f"{store}-{jobs}"
    built = place / "built"
    if store == "sqlite":
        if not built.exists():
            (place / DATABASE).unlink(missing_ok=True)
            write_sqlite(place / DATABASE, jobs, progress)
            built.touch()
        yield ""
        return
    server = Postgres(place / "server", settings={"max_wal_size": "4GB", "shared_buffers": "1GB"})
    server.start()
    try:
        if not built.exists():
            server.psql("DROP SCHEMA IF EXISTS stoker CASCADE")
            asyncio.run(write_postgres(server.url, jobs, progress))
            built.touch()
        yield server.url
    finally:
        server.stop()


def ask(client: Client, port: int, wanted: Ask) -> tuple[float, int]:
    """Milliseconds until the answer, or until the first of a stream; and the status."""
    started = time.perf_counter()
    if not wanted.stream:
        status = client.call("GET", wanted.path)
        return (time.perf_counter() - started) * 1e3, status
    with socket.create_connection(("127.0.0.1", port), 30) as link:
        link.sendall(request_bytes("GET", wanted.path))
        head = link.recv(65536)
        return (time.perf_counter() - started) * 1e3, int(head[9:12])


def known(client: Client, jobs: int) -> Known:
    """Wait until the coordinator has looked around, and learn what to ask for."""
    total = client.json("GET", "/stats")["jobs_total"]
    if total < 2 * jobs:
        raise BenchFailed(f"the coordinator sees {total:,} jobs of {2 * jobs:,}")
    deadline = time.monotonic() + SETTLE_SECONDS
    while not (finished := client.json("GET", "/jobs?status=completed&limit=1")["jobs"]):
        if time.monotonic() > deadline:
            raise BenchFailed("no completed job was found under the backlog")
        time.sleep(0.2)
    queued: Any = client.json("GET", "/jobs?status=queued&limit=1")["jobs"]
    bulk = client.json("POST", "/bulk", _BULK)["id"]
    schedule = client.json("PUT", "/schedules/reads", _SCHEDULE)["name"]
    return Known(jobs, [queued[0]["id"], finished[0]["id"]], bulk, schedule)


def measure(system: System, jobs: int, rounds: int) -> list[Timed]:
    client = system.client
    wanted = asks(known(client, jobs))
    took: dict[str, list[float]] = {item.path: [] for item in wanted}
    refused: set[str] = set()
    for item in wanted:  # what is on the disk only is read once before it counts
        ask(client, system.port, item)
    health = Health(system.port)
    health.start()
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}: {len(wanted)} requests")
        for item in wanted:
            milliseconds, status = ask(client, system.port, item)
            took[item.path].append(milliseconds)
            if status == 422:
                refused.add(item.path)
            elif not (200 <= status < 400 or item.path == "/ready"):
                raise BenchFailed(f"GET {item.path} answered {status}")
    health.stop()
    rows = [Timed(item.path, item.bound_ms, 95, took[item.path], item.path in refused) for item in wanted]
    return [Timed("/health meanwhile", HEALTH_MS, 99, health.took), *rows]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.reads", description=__doc__)
    parser.add_argument(
        "--jobs", type=int, default=5_000_000, help="jobs that are queued, and as many that are finished"
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "reads")
    parser.add_argument("--slowest", type=int, default=0, help="print only so many rows, the slowest")
    parser.add_argument("stores", nargs="*", default=["sqlite", "postgres"])
    options = parser.parse_args()
    missed = 0
    for store in options.stores:
        with (
            stored(store, options.jobs, options.folder) as url,
            System(options.folder / f"{store}-{options.jobs}", url=url) as system,
        ):
            rows = measure(system, options.jobs, options.rounds)
        missed += sum(row.missed for row in rows)
        shown = rows
        if options.slowest:
            shown = [rows[0], *sorted(rows[1:], key=lambda row: row.at(95), reverse=True)[: options.slowest]]
        print(f"\n{store}: {options.jobs:,} queued and {options.jobs:,} finished jobs")
        print(f"{'GET':<90} {'p50 ms':>9} {'p95 ms':>9} {'p99 ms':>9} {'max ms':>9} {'bound':>7}")
        for row in shown:
            print(row.line())
        print(f"{len(rows)} requests, {sum(row.missed for row in rows)} over their bound", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
