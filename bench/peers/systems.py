"""The table of systems that are compared: how each is installed and run, and why so.

A new one is a row here and a driver in `drivers/`. The settings are the best that we know for a machine with two cores and
jobs that do nothing; docs/benchmarks.md shows them with their reasons.
"""

from typing import Final

import msgspec

REDIS: Final = "redis"
POSTGRES: Final = "postgres"
FILE: Final = "file"
STOKER_SQLITE: Final = "stoker-sqlite"
STOKER_POSTGRES: Final = "stoker-postgres"

_HIREDIS: Final = "hiredis==3.5.0"
_UVLOOP: Final = "uvloop==0.23.0"
_DRIVERS: Final = "bench.peers.drivers"


class PeerSystem(msgspec.Struct, frozen=True):
    key: str
    title: str
    driver: str
    """The module in `drivers/`."""
    keeps: str
    """Where jobs are kept: one of the names above."""
    durable: bool
    """Whether a job that was accepted survives power loss."""
    settings: str
    reason: str
    requirements: tuple[str, ...] = ()
    """What is installed into its environment; nothing for this tree's own."""
    worker: tuple[str, ...] = ()
    """What follows the interpreter in the command of a worker; `{url}` and `{number}` are filled in."""
    worker_processes: int = 1
    """How often that command is started."""
    installs: bool = False
    """Whether the driver's `install` must make tables first."""

    @property
    def is_stoker(self) -> bool:
        return self.keeps in (STOKER_SQLITE, STOKER_POSTGRES)


def _driver_verb(driver: str) -> tuple[str, ...]:
    return ("-m", _DRIVERS, driver, "work")


_STOKER_SETTINGS: Final = (
    "`stoker serve`, `stoker worker --threads 2 --app …`, defaults; `submit`, `submit_async`, `submit_many`"
)

STOKER: Final = PeerSystem(
    "stoker-sqlite",
    "Stoker, SQLite",
    "stoker",
    STOKER_SQLITE,
    True,
    _STOKER_SETTINGS,
    "What a user gets: `synchronous=FULL`, results kept, one worker with a thread for each core.",
)
STOKER_ON_POSTGRES: Final = PeerSystem(
    "stoker-postgres",
    "Stoker, PostgreSQL",
    "stoker",
    STOKER_POSTGRES,
    True,
    _STOKER_SETTINGS,
    "The same on PostgreSQL, with `synchronous_commit=on`.",
)
HUEY_SQLITE: Final = PeerSystem(
    "huey-sqlite",
    "Huey + SQLite",
    "huey",
    FILE,
    True,
    "WAL, `fsync=True` (`synchronous=FULL`), `results=False`; `huey_consumer -k process -w 2 -d 0.001 -m 0.005 -n`",
    "Durable as Stoker is. It polls: 1 to 5 ms is quick without keeping a core busy. In a trial two processes started jobs "
    "sooner than two threads, at the same rate and CPU time; one thread was slower.",
    ("huey==3.5.4",),
    (
        *("-m", "huey.bin.huey_consumer", f"{_DRIVERS}.huey.huey", "-k", "process", "-w", "2"),
        *("-d", "0.001", "-m", "0.005", "-b", "1.05", "-n", "-q"),
    ),
)
HUEY_REDIS: Final = PeerSystem(
    "huey-redis",
    "Huey + Redis",
    "huey",
    REDIS,
    False,
    "blocking reads, `results=False`, hiredis; `huey_consumer -k process -w 2 -n`",
    "Blocking reads need no polling. In a trial two processes were a little quicker than two threads.",
    ("huey==3.5.4", "redis==8.1.0", _HIREDIS),
    ("-m", "huey.bin.huey_consumer", f"{_DRIVERS}.huey.huey", "-k", "process", "-w", "2", "-n", "-q"),
)
CELERY: Final = PeerSystem(
    "celery",
    "Celery + Redis",
    "celery",
    REDIS,
    False,
    "`task_ignore_result`, prefetch 100, early acknowledgement, no events, gossip, mingle or remote control, hiredis; "
    "two workers with `--pool solo`",
    "No result backend, since no peer keeps results here. A prefetch of 100 saves round trips for short tasks. In a trial "
    "two solo workers were quicker and took less CPU time than one with two threads, and that than two preforked processes.",
    ("celery[redis]==5.7.0", _HIREDIS),
    (
        *("-m", "celery", "-A", f"{_DRIVERS}.celery", "worker", "--pool", "solo", "-n", "{number}@%h"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING"),
    ),
    worker_processes=2,
)
DRAMATIQ: Final = PeerSystem(
    "dramatiq",
    "Dramatiq + Redis",
    "dramatiq",
    REDIS,
    False,
    "default middleware, hiredis; `dramatiq --processes 2 --threads 4`",
    "Its defaults with a process for each core; four threads each overlap the acknowledgements.",
    ("dramatiq[redis]==2.2.1", _HIREDIS),
    ("-m", "dramatiq", f"{_DRIVERS}.dramatiq", "--processes", "2", "--threads", "4"),
)
RQ: Final = PeerSystem(
    "rq",
    "RQ",
    "rq",
    REDIS,
    False,
    "`SimpleWorker`, two processes, `result_ttl=0`, hiredis",
    "`SimpleWorker` runs jobs in the worker itself: the default forks for every job.",
    ("rq==2.12.0", _HIREDIS),
    ("-m", "rq.cli", "worker", "--worker-class", "rq.SimpleWorker", "--quiet", "--url", "{url}"),
    worker_processes=2,
)
TASKIQ: Final = PeerSystem(
    "taskiq",
    "Taskiq + Redis",
    "taskiq",
    REDIS,
    False,
    "`ListQueueBroker`, no result backend, uvloop, hiredis; `taskiq worker --workers 2`",
    "Lists are the quickest of its Redis brokers; they do not acknowledge.",
    ("taskiq==0.13.0", "taskiq-redis==1.2.4", _UVLOOP, _HIREDIS),
    ("-m", "taskiq", "worker", f"{_DRIVERS}.taskiq:broker", "--workers", "2", "--log-level", "WARNING"),
)
ARQ: Final = PeerSystem(
    "arq",
    "arq",
    "arq",
    REDIS,
    False,
    "`poll_delay=0.005`, `max_jobs=100`, `keep_result=0`, uvloop, hiredis; two worker processes",
    "It polls, by default every 0.5 s, and at most `max_jobs` jobs are taken each time.",
    ("arq==0.28.0", _UVLOOP, _HIREDIS),
    ("-m", "arq", f"{_DRIVERS}.arq.WorkerSettings"),
    worker_processes=2,
)
SAQ: Final = PeerSystem(
    "saq",
    "SAQ + Redis",
    "saq",
    REDIS,
    False,
    "`concurrency=100`, `ttl=-1` (no results), uvloop, hiredis; two worker processes",
    "It reads by blocking; many coroutines overlap their round trips.",
    ("saq[redis,hiredis]==0.26.4", "typing-extensions>=4.12", _UVLOOP),
    ("-m", "saq", f"{_DRIVERS}.saq.settings", "--quiet"),
    worker_processes=2,
)
PROCRASTINATE: Final = PeerSystem(
    "procrastinate",
    "Procrastinate, PostgreSQL",
    "procrastinate",
    POSTGRES,
    True,
    "psycopg (binary), uvloop; two worker processes with `concurrency=4` and 5 connections; producers over a pool of 10",
    "From trials with 1 to 4 processes, concurrency 2 to 20 and 2 to 5 connections.",
    ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9", _UVLOOP),
    _driver_verb("procrastinate"),
    worker_processes=2,
    installs=True,
)
PGQUEUER: Final = PeerSystem(
    "pgqueuer",
    "pgqueuer, PostgreSQL",
    "pgqueuer",
    POSTGRES,
    True,
    "asyncpg, uvloop, `optimize_autovacuum`, durable tables; two worker processes with `batch_size=200` and 3 connections; "
    "producers over a pool of 10",
    "As its guide to performance says, and the terms of `make bench-postgres`.",
    ("pgqueuer==1.6.0", "asyncpg==0.32.0", _UVLOOP),
    _driver_verb("pgqueuer"),
    worker_processes=2,
    installs=True,
)

SYSTEMS: Final = (
    STOKER,
    HUEY_SQLITE,
    STOKER_ON_POSTGRES,
    PGQUEUER,
    PROCRASTINATE,
    HUEY_REDIS,
    DRAMATIQ,
    TASKIQ,
    SAQ,
    CELERY,
    ARQ,
    RQ,
)
"""In the order of the tables: durable ones first."""
BY_KEY: Final = {system.key: system for system in SYSTEMS}
