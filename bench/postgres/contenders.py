"""Those who are compared: each runs jobs from the first submission to the last stored completion, in a new database."""

import time
from functools import partial
from typing import Final, Protocol

import msgspec

from bench.generator import Load
from bench.peers.script import READY, Consume, Produce, Produced
from bench.postgres.context import PGQUEUER, PROCRASTINATE, STOKER, Place
from bench.postgres.database import Database, count_wrong, started_at_us
from bench.processes import BenchFailed, Process, generate, output_of
from bench.system import System

_LIMIT_SECONDS: Final = 300.0
_POLL_SECONDS: Final = 0.05


class Work(msgspec.Struct, frozen=True):
    jobs: int
    producers: int
    batch: int = 1
    """Jobs in each submission; 1: the call for a single job."""


class Outcome(msgspec.Struct, frozen=True):
    """`wrong`: jobs that were lost, done twice, or hold a wrong result."""

    rate: float
    wrong: int


class Delays(msgspec.Struct, frozen=True):
    """Milliseconds from just before a job's submission to its start, when there is nothing else to do."""

    starts: list[float]
    wrong: int


class Contender(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def setup(self) -> str:
        """How it is configured, for the reader."""

    def end_to_end(self, place: Place, work: Work) -> Outcome: ...

    def idle(self, place: Place, jobs: int, gap_seconds: float) -> Delays: ...


class Stoker:
    name = STOKER
    setup = "one coordinator, one worker with 2 threads; HTTP from a process of its own; results stored"

    def end_to_end(self, place: Place, work: Work) -> Outcome:
        with System(place.folder, url=place.url) as system:
            system.add_worker()
            loaded = generate(load_of(work, system.port))
            accepted = loaded.accepted * work.batch
            ended_ns = system.wait_for_completed(accepted, _LIMIT_SECONDS)
        with Database(place.url) as database:
            wrong = count_wrong(database, work.jobs)
        return Outcome(accepted / (ended_ns - loaded.started_ns) * 1e9, wrong)

    def idle(self, place: Place, jobs: int, gap_seconds: float) -> Delays:
        submitted_us: list[int] = []
        with System(place.folder, url=place.url) as system:
            system.add_worker()
            for number in range(jobs):
                time.sleep(gap_seconds)
                submitted_us.append(time.time_ns() // 1_000)
                system.submit(b'{"payload":{"n":%d}}' % number)
            system.wait_for_completed(jobs)
        with Database(place.url) as database:
            times = started_at_us(database)
            wrong = count_wrong(database, jobs)
        return Delays([(times[n][1] - submitted_us[n]) / 1e3 for n in range(jobs) if n in times], wrong)


def load_of(work: Work, port: int, *more_ports: int, first: int = 0) -> Load:
    """The same work as requests to Stoker."""
    batch = 0 if work.batch == 1 else work.batch
    return Load(
        port,
        work.jobs // work.batch,
        work.producers,
        "/jobs/batch" if batch else "/jobs",
        batch,
        timeout_seconds=_LIMIT_SECONDS,
        more_ports=more_ports,
        first=first,
    )


class Tuning(msgspec.Struct, frozen=True):
    """How a peer is run; docs/benchmarks.md says what else was tried."""

    processes: int
    at_once: int
    connections: int
    """Of each consumer process."""
    producer_connections: int
    """At most; never more than there are producers."""


class Peer(msgspec.Struct, frozen=True):
    """A library, reached through its script. The queries ask its own tables."""

    name: str
    module: str
    tuning: Tuning
    python: str
    at_once_means: str
    unfinished_sql: str
    """Whether there is a job that is not done."""
    stored_sql: str
    """Completions, jobs that completed, and when the last one did, in seconds since the epoch."""

    @property
    def setup(self) -> str:
        tuning = self.tuning
        return (
            f"{tuning.processes} worker processes, {self.at_once_means} {tuning.at_once}, {tuning.connections} connections "
            f"each; producers in one process, pool of up to {tuning.producer_connections}; uvloop"
        )

    def end_to_end(self, place: Place, work: Work) -> Outcome:
        with Database(place.url) as database:
            consumers = self._start(place)
            try:
                produced = self._produce(place, work)
                self._wait(database)
            finally:
                _stop(consumers)
            return self._outcome(database, work.jobs, produced.started_ns)

    def idle(self, place: Place, jobs: int, gap_seconds: float) -> Delays:
        with Database(place.url) as database:
            consumers = self._start(place, note_starts=True)
            try:
                produced = self._produce(place, Work(jobs, 1), gap_seconds)
                self._wait(database)
            finally:
                _stop(consumers)
            wrong = self._outcome(database, jobs, produced.started_ns).wrong
        return Delays(_delays(place, produced), wrong)

    def _command(self, verb: str, order: object) -> list[str]:
        return [self.python, "-m", self.module, verb, msgspec.json.encode(order).decode()]

    def _start(self, place: Place, *, note_starts: bool = False) -> list[Process]:
        output_of(self._command("install", place.url), f"installing {self.name}", 60.0)
        tuning = self.tuning
        consumers: list[Process] = []
        try:
            for number in range(tuning.processes):
                starts = str(place.folder / f"{number}.starts") if note_starts else ""
                order = Consume(place.url, tuning.connections, tuning.at_once, starts)
                output = place.folder / f"consumer-{number}.log"
                consumers.append(Process(self._command("consume", order), output))
            for consumer in consumers:
                consumer.wait_until(partial(consumer.said, READY), f"a worker of {self.name}")
        except BaseException:
            _stop(consumers)
            raise
        return consumers

    def _produce(self, place: Place, work: Work, gap_seconds: float = 0.0) -> Produced:
        connections = min(work.producers, self.tuning.producer_connections)
        order = Produce(place.url, work.jobs, work.producers, connections, work.batch, gap_seconds)
        said = output_of(self._command("produce", order), f"submitting to {self.name}", _LIMIT_SECONDS)
        return msgspec.json.decode(said, type=Produced)

    def _wait(self, database: Database) -> None:
        deadline = time.monotonic() + _LIMIT_SECONDS
        while database.value(self.unfinished_sql):
            if time.monotonic() > deadline:
                raise BenchFailed(f"{self.name} was not done after {_LIMIT_SECONDS:g} s")
            time.sleep(_POLL_SECONDS)

    def _outcome(self, database: Database, expected: int, started_ns: int) -> Outcome:
        completions, jobs, ended = database.row(self.stored_sql)
        wrong = max(abs(expected - jobs), completions - jobs)
        return Outcome(expected / (float(ended or 0) - started_ns / 1e9), wrong)


def _stop(consumers: list[Process]) -> None:
    for consumer in consumers:
        consumer.stop()


def _delays(place: Place, produced: Produced) -> list[float]:
    started: dict[int, int] = {}
    for file in place.folder.glob("*.starts"):
        for line in file.read_text().splitlines():
            number, at_ns = map(int, line.split())
            started[number] = at_ns
    submitted = produced.submitted_ns
    return [(started[n] - submitted[n]) / 1e6 for n in range(len(submitted)) if n in started]


def peers(python: str) -> list[Peer]:
    pgqueuer = Peer(
        PGQUEUER,
        "bench.peers.pgqueuer",
        Tuning(processes=2, at_once=200, connections=3, producer_connections=10),
        python,
        "batch size",
        "SELECT EXISTS (SELECT FROM pgqueuer)",
        """
        SELECT count(*), count(DISTINCT job_id), extract(epoch FROM max(created))
        FROM pgqueuer_log WHERE status = 'successful'
        """,
    )
    procrastinate = Peer(
        PROCRASTINATE,
        "bench.peers.procrastinate",
        Tuning(processes=2, at_once=4, connections=5, producer_connections=10),
        python,
        "concurrency",
        "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))",
        """
        SELECT count(*), count(DISTINCT job_id), extract(epoch FROM max(at))
        FROM procrastinate_events WHERE type = 'succeeded'
        """,
    )
    return [pgqueuer, procrastinate]
