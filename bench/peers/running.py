"""One system while it is measured: its server or broker, its workers, its producers, and what they use."""

import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.cost.roles import Role
from bench.peers import drivers
from bench.peers.board import JOBS, Board
from bench.peers.drivers import kit
from bench.peers.systems import FILE, POSTGRES, REDIS, STOKER_POSTGRES, PeerSystem
from bench.processes import START_SECONDS, BenchFailed, Process, environment, output_of, tethered
from bench.processes import python as python_command
from bench.system import System
from tests.support.servers import Postgres, Redis, memory_folder

FOUR: Final = "four"
FOUR_PROCESSES: Final = 4
RATES: Final = (kit.SEQUENTIAL, FOUR, kit.ASYNCIO, kit.THREADS, kit.BULK)
MEASURES: Final = (kit.IDLE, *RATES)
"""In the order in which they are taken: the idle system first, what fills the database most last."""

_NUMBERS: Final = JOBS // (len(MEASURES) + 2)
"""Of jobs, for each measurement of one system."""
_WARM_JOBS: Final = 200
_WARM_LIMIT_SECONDS: Final = 30.0
_DRAIN_SECONDS: Final = 30.0
_SETTLE_SECONDS: Final = 0.1
"""Acknowledgements of the last jobs still belong to a measurement's CPU time."""


class Sample(msgspec.Struct, frozen=True):
    """What one measurement found."""

    jobs: int
    seconds: float
    """From just before the first submit until the last job started."""
    cpu_us: float
    """Of all processes, for each job."""
    wrong: int
    """Jobs that were lost or ran twice."""
    waits_ms: Sequence[float] = ()
    """Of `idle`: from just before the submit until the job's code ran."""

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds


class Servers:
    """What systems keep their jobs in. PostgreSQL is shared, with a new database for each; the rest is new each time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._postgres: Postgres | None = None
        self._numbers = itertools.count(1)

    def postgres(self) -> Postgres:
        if self._postgres is None:
            self._folder.chmod(0o755)  # the server may have to run as another user
            self._postgres = Postgres(self._folder / "pg")
            self._postgres.start()
        return self._postgres

    def stop(self) -> None:
        if self._postgres is not None:
            self._postgres.stop()

    @contextmanager
    def database(self) -> Iterator[str]:
        """A new database; a checkpoint first, so that nothing is left over from the system before."""
        server = self.postgres()
        name = f"peer-{next(self._numbers)}"
        url = server.create_database(name)
        server.psql("CHECKPOINT")
        yield url
        server.psql(f'DROP DATABASE "{name}" WITH (FORCE)')


class ProducerProcess:
    """A driver that submits jobs: one order, one answer."""

    def __init__(self, command: Sequence[str], output: Path, variables: Mapping[str, str]) -> None:
        self._output = output
        self._answers = b""
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                tethered(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env={**environment(), **variables},
                cwd=output.parent,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def order(self, order: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self, seconds: float) -> dict[str, Any]:
        """Wait for the next answer. Raises BenchFailed if it is an error, or does not come."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + seconds
        while b"\n" not in self._answers:
            ready, _, _ = select.select([descriptor], [], [], max(deadline - time.monotonic(), 0))
            data = os.read(descriptor, 1 << 20) if ready else b""
            if not data:
                raise BenchFailed(
                    f"a producer gave no answer: {self._output.read_text(errors='replace')[-500:]}"
                )
            self._answers += data
        line, _, self._answers = self._answers.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BenchFailed(f"a producer failed: {answer['error']}")
        return answer

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class Running:
    """A system that is ready to be measured."""

    def __init__(
        self,
        board: Board,
        roles: Sequence[Role],
        workers: Sequence[Process],
        producers: Sequence[ProducerProcess],
    ) -> None:
        self._board = board
        self._roles = roles
        self._workers = workers
        self._producers = producers
        self._next = 0

    def warm_up(self) -> None:
        """Run some jobs: the first ones pay for imports, connections and prepared statements."""
        for producer in self._producers:
            producer.answer(START_SECONDS)  # ready
        for measure in (kit.SEQUENTIAL, kit.ASYNCIO, kit.THREADS):
            self._run(measure, [0], 0.2, _WARM_JOBS, _WARM_LIMIT_SECONDS)
        for place in range(1, len(self._producers)):
            self._run(kit.SEQUENTIAL, [place], 0.1, 20, _WARM_LIMIT_SECONDS)

    def measure(self, measure: str, seconds: float) -> Sample | None:
        """Measure for about so long; None when the system has no call for it."""
        chosen = range(FOUR_PROCESSES) if measure == FOUR else range(1)
        name = kit.SEQUENTIAL if measure == FOUR else measure
        return self._run(name, list(chosen), seconds, _NUMBERS, _DRAIN_SECONDS)

    def _run(
        self, measure: str, chosen: Sequence[int], seconds: float, limit: int, drain_seconds: float
    ) -> Sample | None:
        done_before = self._board.done()
        cpu_before = self._cpu_ns()
        each = limit // len(chosen)
        firsts = [self._next + place * each for place in range(len(chosen))]
        self._next += limit
        for producer, first in zip(chosen, firsts, strict=True):
            order = {
                "measure": measure,
                "producer": producer + 1,
                "first": first,
                "limit": each,
                "seconds": seconds,
            }
            self._producers[producer].order(order)
        answers = [self._producers[producer].answer(seconds + drain_seconds) for producer in chosen]
        if any("none" in answer for answer in answers):
            return None
        jobs = sum(answer["submitted"] for answer in answers)
        self._wait(done_before + jobs, drain_seconds)
        time.sleep(_SETTLE_SECONDS)
        cpu_ns = self._cpu_ns() - cpu_before + sum(answer["cpu_ns"] for answer in answers)
        starts = [
            started
            for first, answer in zip(firsts, answers, strict=True)
            for started in self._board.starts(first, answer["submitted"])
        ]
        seen = sum(started > 0 for started in starts)
        ran = self._board.done() - done_before
        return Sample(
            jobs,
            (max(starts) - min(answer["started_ns"] for answer in answers)) / 1e9,
            cpu_ns / 1e3 / jobs,
            (jobs - seen) + (ran - seen),
            [wait / 1e6 for answer in answers for wait in answer["waits_ns"]],
        )

    def keep(self, level: int, before: int, seconds: float) -> float:
        """Keep so many jobs queued; the rate at which they run. `before`: jobs that were queued when the system was new."""
        order = {"measure": kit.KEEP, "producer": 1, "first": self._next, "level": level}
        self._producers[0].order({**order, "before": before, "seconds": seconds})
        answer = self._producers[0].answer(seconds + _DRAIN_SECONDS)
        self._next += answer["submitted"]
        return float(answer["ran"] / (answer["ended_ns"] - answer["started_ns"]) * 1e9)

    def wait_until_still(self, seconds: float = 0.3) -> None:
        """Wait until no job has run for so long."""
        done = -1
        while done != self._board.done():
            done = self._board.done()
            time.sleep(seconds)

    def _wait(self, done: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._board.done() < done:
            if any(worker.has_ended for worker in self._workers):
                raise BenchFailed("a worker ended: " + self._workers[0].last_output()[-500:])
            if time.monotonic() > deadline:
                missing = done - self._board.done()
                raise BenchFailed(
                    f"{missing:,} jobs had not run {seconds:g} s after the last submit: "
                    + self._workers[0].last_output()[-500:]
                )
            time.sleep(0.01)

    def _cpu_ns(self) -> int:
        return sum(role.cpu_ns() for role in self._roles)

    def peak_mb(self) -> float:
        """The highest resident memory of each process of the system and of one producer, added up."""
        pids = [pid for role in self._roles for pid in role.pids()]
        return sum(map(_peak_kb, [*pids, self._producers[0].pid])) / 1024


def _peak_kb(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    lines = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0].split()[1]) if lines else 0


@contextmanager
def running(
    system: PeerSystem, servers: Servers, folder: Path, python: str, producers: int = FOUR_PROCESSES
) -> Iterator[Running]:
    """Start everything that the system needs, warm it up, and end it afterwards."""
    with _place(folder) as (board, variables, stack):
        if system.is_stoker:
            database = stack.enter_context(servers.database()) if system.keeps == STOKER_POSTGRES else ""
            stoker = stack.enter_context(System(folder / "stoker", url=database))
            started = _with_worker(stoker, variables)
            if database:
                started.roles.append(Role("PostgreSQL", servers.postgres().pid))
        else:
            started = _peer(system, servers, folder, python, variables, stack)
        command = [python, "-m", drivers.__name__, system.driver]
        live = _with_producers(board, started, folder, command, variables, producers, stack)
        yield live


@contextmanager
def stoker_running(
    folder: Path, variables: Mapping[str, str], prepare: Callable[[Path], object] | None = None
) -> Iterator[tuple[Running, System]]:
    """Start Stoker on SQLite for a growth curve. `prepare` may fill the folder of its database first."""
    with _place(folder) as (board, place_variables, stack):
        if prepare is not None:
            prepare(folder / "stoker")
        system = stack.enter_context(System(folder / "stoker"))
        known = {**place_variables, **variables}
        started = _with_worker(system, known)
        command = python_command(drivers.__name__, "stoker", "growing")
        yield _with_producers(board, started, folder, command, known, 1, stack), system


@contextmanager
def _place(folder: Path) -> Iterator[tuple[Board, dict[str, str], ExitStack]]:
    """A folder and a board; the stack ends what was started, before both are removed."""
    folder.mkdir(parents=True)
    board_file = (memory_folder() or folder) / f"stoker-bench-{os.getpid()}-{folder.name}.board"
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(board_file.unlink, missing_ok=True)
        yield Board.create(board_file), {"BENCH_BOARD": str(board_file)}, stack


class Started(msgspec.Struct, frozen=True):
    """A system without producers."""

    url: str
    roles: list[Role]
    workers: list[Process]


def _with_producers(
    board: Board,
    started: Started,
    folder: Path,
    command: Sequence[str],
    variables: Mapping[str, str],
    number: int,
    stack: ExitStack,
) -> Running:
    known = {**variables, "BENCH_URL": started.url}
    made: list[ProducerProcess] = []
    for place in range(number):
        made.append(ProducerProcess(command, folder / f"producer-{place}.log", known))
        stack.callback(made[-1].stop)
    live = Running(board, started.roles, started.workers, made)
    live.warm_up()
    return live


def _with_worker(system: System, variables: Mapping[str, str]) -> Started:
    url = f"http://127.0.0.1:{system.port}"
    options = ["--app", f"{drivers.__name__}.stoker:app"]
    worker = system.start_worker(options=options, variables={**variables, "BENCH_URL": url})
    roles = [Role("coordinator", system.coordinator.pid), Role("worker", worker.pid)]
    return Started(url, roles, [worker])


def _peer(
    system: PeerSystem,
    servers: Servers,
    folder: Path,
    python: str,
    variables: Mapping[str, str],
    stack: ExitStack,
) -> Started:
    url, roles = _KEEPERS[system.keeps](servers, folder, stack)
    known = {**variables, "BENCH_URL": url}
    if system.installs:
        command = ["env", *(f"{name}={value}" for name, value in known.items())]
        command += [python, "-m", drivers.__name__, system.driver, "install"]
        output_of(command, f"installing the tables of {system.title}", START_SECONDS)
    workers: list[Process] = []
    for number in range(system.worker_processes):
        command = [python, *(word.format(url=url, number=number) for word in system.worker)]
        workers.append(Process(command, folder / f"worker-{number}.log", known))
        stack.callback(workers[-1].kill)
        roles.append(Role("worker", workers[-1].pid))
    return Started(url, roles, workers)


def _redis(servers: Servers, folder: Path, stack: ExitStack) -> tuple[str, list[Role]]:
    server = Redis(folder / "redis")
    stack.callback(server.stop)
    server.start()
    return server.url, [Role("Redis", server.pid)]


def _on_postgres(servers: Servers, folder: Path, stack: ExitStack) -> tuple[str, list[Role]]:
    return stack.enter_context(servers.database()), [Role("PostgreSQL", servers.postgres().pid)]


def _file(servers: Servers, folder: Path, stack: ExitStack) -> tuple[str, list[Role]]:
    return f"sqlite:///{folder / 'queue.db'}", []


_KEEPERS: Final[dict[str, Callable[[Servers, Path, ExitStack], tuple[str, list[Role]]]]] = {
    REDIS: _redis,
    POSTGRES: _on_postgres,
    FILE: _file,
}
