"""`python -m bench.large_payloads`: how much memory large payloads take, how fast they run, and who has to wait for them.

Two parts on each store. *Backlog*: many payloads of megabytes are queued while no worker is there, then one works them off.
*Bodies*: many clients send large batches at the same time to a coordinator with little address space; each answer is a 202,
or a 503 that says when to come back, and everything acknowledged completes. While each part runs, `/health` and `/stats` are
asked over and over.
"""

import argparse
import http.client
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench import limited
from bench.http import BadResponse, Client
from bench.processes import Process, python
from bench.system import System
from tests.support.servers import Postgres

MIB: Final = 1024 * 1024
LIMIT_RSS_MB: Final = 400
LIMIT_MB_PER_SEC: Final = 20.0
LIMIT_MS: Final = 200.0
ADDRESS_SPACE_MIB: Final = 1_200
BATCH_BYTES: Final = 15_000_000
BATCH_JOBS: Final = 15
SUBMITTERS: Final = 2
WORKER_THREADS: Final = 2


class Memory:
    """The peak of each process's resident memory."""

    def __init__(self, **processes: Process) -> None:
        self._processes = processes

    def peaks_mb(self) -> dict[str, float]:
        found = {name: _peak_mb(process.pid) for name, process in self._processes.items()}
        for name, process in self._processes.items():
            if name == "worker":
                found["child"] = max(map(_peak_mb, _children(process.pid)), default=0.0)
        return found


def _peak_mb(pid: int) -> float:
    """The kernel's own high-water mark, so that no peak is missed."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        return [int(child) for child in file.read().split()]


class Probe:
    """Asks for some paths over and over, on a connection of its own, and keeps the worst answer of each."""

    def __init__(self, port: int) -> None:
        self._client = Client(port)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.times_ms: dict[str, list[float]] = {"/health": [], "/stats": []}
        self.failed: str | None = None
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.02):
            for path, times in self.times_ms.items():
                began = time.perf_counter()
                try:
                    status = self._client.call("GET", path)
                except (OSError, BadResponse) as error:
                    self.failed = f"{path}: {error!r}"
                    return
                times.append((time.perf_counter() - began) * 1e3)
                if status != 200:
                    self.failed = f"{path} answered {status}"

    def stop(self) -> dict[str, list[float]]:
        self._over.set()
        self._thread.join(60)
        return self.times_ms


class Table:
    """Lines of figures, and whether each is within its limit."""

    def __init__(self) -> None:
        self.missed = False

    def line(self, name: str, value: str, limit: str, ok: bool) -> None:
        self.missed |= not ok
        say(f"  {name:<42} {value:>14}   {limit:<16} {'ok' if ok else 'MISSED'}")

    def waits(self, part: str, probe: Probe) -> None:
        for path, times in probe.stop().items():
            worst = max(times, default=0.0)
            middle = sorted(times)[len(times) // 2] if times else 0.0
            self.line(f"{part}: worst {path}", f"{worst:.0f} ms", f"< {LIMIT_MS:.0f} ms", worst < LIMIT_MS)
            say(f"    median of {len(times)}: {middle:.1f} ms")
        if probe.failed:
            self.line(f"{part}: the probe", "failed", probe.failed, False)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def a_job(size: int, number: int) -> bytes:
    text = b"%08d" % number
    return b'{"type": "size_of", "payload": {"text": "' + text + b"x" * (size - len(text)) + b'"}}'


def start_worker(system: System, folder: Path) -> Process:
    url = f"http://127.0.0.1:{system.port}"
    options = ["--url", url, "--threads", str(WORKER_THREADS), "--app", "bench.large_app:app"]
    worker = Process(python("stoker", "worker", *options), folder / "worker.log")
    worker.wait_until(lambda: system.client.call("GET", "/ready") == 200, "the worker")
    return worker


def in_threads(count: int, work: Callable[[int], None]) -> None:
    failed: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - raised by the one who waits
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def completed(system: System, number: int, seconds: float) -> int:
    """Wait until so many jobs are completed; how many are."""
    deadline = time.monotonic() + seconds
    while (done := system.stats().completed) < number and time.monotonic() < deadline:
        time.sleep(0.1)
    return done


def backlog(folder: Path, url: str, jobs: int, size: int, table: Table) -> None:
    with ExitStack() as stack:
        system = stack.enter_context(System(folder, url=url))
        probe = Probe(system.port)

        def submit(submitter: int) -> None:
            client = Client(system.port)
            for number in range(submitter, jobs, SUBMITTERS):
                while client.call("POST", "/jobs", a_job(size, number)) == 503:
                    time.sleep(0.05)

        began = time.monotonic()
        in_threads(SUBMITTERS, submit)
        seconds = time.monotonic() - began
        say(f"  submitted {jobs:,} payloads of {size / MIB:g} MiB at {jobs * size / 1e6 / seconds:.0f} MB/s")
        table.waits("submitting", probe)
        probe = Probe(system.port)
        worker = start_worker(system, folder)
        stack.callback(worker.stop)
        began = time.monotonic()
        done = completed(system, jobs, jobs * size / 1e6 / LIMIT_MB_PER_SEC * 3 + 60)
        rate = done * size / 1e6 / (time.monotonic() - began)
        table.waits("working off", probe)
        table.line("completed", f"{done:,}", f"{jobs:,}", done == jobs)
        table.line("rate", f"{rate:.1f} MB/s", f">= {LIMIT_MB_PER_SEC:g} MB/s", rate >= LIMIT_MB_PER_SEC)
        peaks = Memory(coordinator=system.coordinator, worker=worker).peaks_mb()
        for name, peak in peaks.items():
            table.line(
                f"peak memory of the {name}", f"{peak:.0f} MB", f"< {LIMIT_RSS_MB} MB", peak < LIMIT_RSS_MB
            )


def bodies(folder: Path, url: str, clients: int, rounds: int, table: Table) -> None:
    prefix = [sys.executable, limited.__file__, str(ADDRESS_SPACE_MIB)]
    answers: Counter[str] = Counter()
    batch = b'{"jobs": [' + b", ".join(a_job(BATCH_BYTES // BATCH_JOBS, n) for n in range(BATCH_JOBS)) + b"]}"
    with ExitStack() as stack:
        system = stack.enter_context(System(folder, prefix, url))
        probe = Probe(system.port)

        def send(_: int) -> None:
            for _ in range(rounds):
                deadline = time.monotonic() + 600
                while (answer := _post(system.port, batch)) != "202":
                    answers[answer] += 1
                    if answer != "503 with Retry-After" or time.monotonic() > deadline:
                        break
                    time.sleep(1)  # as the answer says
                else:
                    answers["202"] += 1

        in_threads(clients, send)
        say(
            f"  {clients} clients, {rounds} batches of {BATCH_BYTES / 1e6:g} MB each: {dict(sorted(answers.items()))}"
        )
        for path, times in probe.stop().items():
            say(f"    worst {path}: {max(times, default=0):.0f} ms")
        good = set(answers) <= {"202", "503 with Retry-After"}
        table.line(
            "answers", "/".join(sorted(a[:3] for a in answers)), "202 or 503", good and answers["202"] > 0
        )
        table.line(
            "batches acknowledged",
            f"{answers['202']}",
            f"{clients * rounds}",
            answers["202"] == clients * rounds,
        )
        worker = start_worker(system, folder)
        stack.callback(worker.stop)
        wanted = answers["202"] * BATCH_JOBS
        done = completed(system, wanted, 120)
        total = sum(system.stats().jobs_by_status.values())
        table.line(
            "acknowledged and completed", f"{done:,} of {total:,}", f"{wanted:,}", done == wanted == total
        )
        for name, peak in Memory(coordinator=system.coordinator, worker=worker).peaks_mb().items():
            say(f"    peak memory of the {name}: {peak:.0f} MB")


def _post(port: int, body: bytes) -> str:
    """The status of the answer, and whether a 503 says when to come back."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", "/jobs/batch", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        hint = " with Retry-After" if answer.getheader("Retry-After") else ""
        return f"{answer.status}{hint}"
    except (OSError, http.client.HTTPException) as error:
        return f"no answer ({type(error).__name__})"
    finally:
        connection.close()


@contextmanager
def database(store: str, folder: Path) -> Iterator[Callable[[str], str]]:
    """Makes a database of this name; "" where the coordinator makes its own file."""
    if store == "sqlite":
        yield lambda name: ""
        return
    server = Postgres(folder / "pg")
    server.start()
    try:
        yield server.create_database
    finally:
        server.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.large_payloads", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--mib", type=float, default=4.0, help="the size of each payload")
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=4, help="batches of each client")
    parser.add_argument("--store", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--part", choices=["backlog", "bodies", "both"], default="both")
    parser.add_argument(
        "--folder", help="where the databases are made (about 6 times the payloads), then removed"
    )
    options = parser.parse_args()
    table = Table()
    size = int(options.mib * MIB) - 64  # the limit is on the whole payload
    for store in ("sqlite", "postgres"):
        if options.store not in (store, "both"):
            continue
        with tempfile.TemporaryDirectory(prefix="stoker-large-", dir=options.folder) as name:
            folder = Path(name)
            os.chmod(folder, 0o755)  # noqa: S103 - the server may have to run as another user
            with database(store, folder) as made:
                if options.part != "bodies":
                    say(f"{store}, backlog")
                    backlog(folder / "backlog", made("backlog"), options.jobs, size, table)
                if options.part != "backlog":
                    say(f"{store}, bodies on {ADDRESS_SPACE_MIB:,} MiB of address space")
                    bodies(folder / "bodies", made("bodies"), options.clients, options.rounds, table)
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
