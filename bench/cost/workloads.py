"""The table of workloads. A new one is a row in `WORKLOADS` and a function that does the work.

The function gets a `Stage`: a system with a warm worker, and which jobs are to be run on it. It returns when all of them are
completed. Only stable outside interfaces may be used, since older revisions are measured with the same table.
"""

import time
from collections.abc import Callable
from typing import Final

import msgspec

from bench.cost.sdk import SdkProducer
from bench.generator import Load
from bench.processes import BenchFailed, generate
from bench.system import System

QUEUE: Final = "default"
BATCH: Final = 100
_FILL: Final = 1_000
_LIMIT_SECONDS: Final = 180.0


class Stage(msgspec.Struct, frozen=True):
    """`before`: jobs that this system has completed so far, which is also the number of the next job."""

    system: System
    jobs: int
    before: int
    sdk: SdkProducer | None = None
    """For workloads with `uses_sdk`."""

    def load(self, connections: int, batch: int = 0) -> int:
        """Submit the jobs; when the first request was sent, by the monotonic clock in ns."""
        size = batch or 1
        path = "/jobs/batch" if batch else "/jobs"
        load = Load(self.system.port, self.jobs // size, connections, path, batch, first=self.before)
        loaded = generate(load)
        if loaded.accepted * size != self.jobs:
            raise BenchFailed(f"{self.jobs:,} jobs were answered with {loaded.statuses}")
        return loaded.started_ns

    def wait(self) -> int:
        """Wait until all are completed; when that was."""
        return self.system.wait_for_completed(self.before + self.jobs, _LIMIT_SECONDS)


class Workload(msgspec.Struct, frozen=True):
    name: str
    about: str
    jobs: int
    quick_jobs: int
    work: Callable[[Stage], float]
    """Does what is measured; the seconds that it took."""
    prepare: Callable[[Stage], None] = lambda stage: None
    """What comes before and is not measured."""
    counts_only: bool = False
    """Whether only its counts are compared with another revision's: it waits more than it works, so time says little."""
    finish: Callable[[Stage], object] = lambda stage: None
    """What comes afterwards and is not measured, so that all jobs are completed."""
    uses_sdk: bool = False
    """Whether jobs come from a program that uses the Python SDK, which is measured too."""


def _singles(stage: Stage) -> float:
    started_ns = stage.load(connections=64)
    return (stage.wait() - started_ns) / 1e9


def _batches(stage: Stage) -> float:
    started_ns = stage.load(connections=8, batch=BATCH)
    return (stage.wait() - started_ns) / 1e9


def _pause(stage: Stage) -> None:
    stage.system.client.json("POST", f"/queues/{QUEUE}/pause")


def _queue_up(stage: Stage) -> None:
    _pause(stage)
    stage.load(connections=2, batch=min(stage.jobs, _FILL))


def _drain(stage: Stage) -> float:
    started_ns = time.monotonic_ns()
    stage.system.client.json("POST", f"/queues/{QUEUE}/resume")
    return (stage.wait() - started_ns) / 1e9


def _one_by_one(stage: Stage) -> float:
    started_ns = time.monotonic_ns()
    for number in range(stage.before, stage.before + stage.jobs):
        stage.system.run_one(b'{"type":"echo","payload":{"n":%d}}' % number)
    return (stage.wait() - started_ns) / 1e9


def _submit_batches(stage: Stage) -> float:
    """One connection, nothing that runs: the same transactions and calls each time."""
    started_ns = time.monotonic_ns()
    for first in range(stage.before, stage.before + stage.jobs, BATCH):
        jobs = [{"type": "echo", "payload": {"n": number}} for number in range(first, first + BATCH)]
        stage.system.client.json("POST", "/jobs/batch", msgspec.json.encode({"jobs": jobs}))
    return (time.monotonic_ns() - started_ns) / 1e9


def _by_sdk(stage: Stage) -> float:
    """One after the other, nothing that runs: what a submit takes in the program and in the coordinator."""
    assert stage.sdk is not None
    started_ns = time.monotonic_ns()
    stage.sdk.submit(stage.before, stage.jobs)
    return (time.monotonic_ns() - started_ns) / 1e9


SINGLES: Final = Workload("singles", "one job per request, 64 connections", 5_000, 300, _singles)
BATCHES: Final = Workload("batches", "100 jobs per request, 8 connections", 30_000, 1_000, _batches)
DRAIN: Final = Workload("drain", "jobs queued before, worked off", 30_000, 1_000, _drain, _queue_up)
ONE_BY_ONE: Final = Workload(
    "one by one", "a job is submitted when the last is completed", 200, 100, _one_by_one, counts_only=True
)
SUBMIT: Final = Workload(
    "submit",
    "100 jobs per request, one connection, to a queue that is paused",
    5_000,
    1_000,
    _submit_batches,
    _pause,
    counts_only=True,
    finish=_drain,
)
BY_SDK: Final = Workload(
    "sdk",
    "jobs submitted one after the other through the Python SDK, to a queue that is paused",
    1_000,
    200,
    _by_sdk,
    _pause,
    finish=_drain,
    uses_sdk=True,
)

WORKLOADS: Final = (ONE_BY_ONE, SUBMIT, BY_SDK, SINGLES, BATCHES, DRAIN)
"""In the order in which they run: those with exact counts first, while the database is small."""
COUNTS_ONLY: Final = frozenset(workload.name for workload in WORKLOADS if workload.counts_only)
