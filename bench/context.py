"""What every part of the benchmark is given."""

import sys
import time
from pathlib import Path

import msgspec

from bench.facts import facts


class Sizes(msgspec.Struct, frozen=True):
    """How much of everything."""

    rounds: int = 3
    connections: int = 64
    bare_requests: int = 30_000
    singles: int = 20_000
    batches: int = 1_000
    batch: int = 100
    batch_connections: int = 8
    drained: int = 20_000
    backlog: int = 1_000_000
    preload_batch: int = 10_000
    idle_submits: int = 500
    idle_gap_seconds: float = 0.005
    few_finished: int = 1_000
    many_finished: int = 1_000_000
    reads: int = 50
    unserved: int = 100_000
    echoes: int = 20
    warm_jobs: int = 20_000
    cold_jobs: int = 300


QUICK = Sizes(
    rounds=1,
    bare_requests=500,
    singles=300,
    batches=10,
    drained=300,
    backlog=3_000,
    preload_batch=300,
    idle_submits=20,
    few_finished=100,
    many_finished=2_000,
    reads=5,
    unserved=1_000,
    echoes=3,
    warm_jobs=320,
    cold_jobs=5,
)
"""For a smoke run: everything happens, nothing can be concluded."""


class Run:
    """One run of a suite, whatever it measures."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes: list[str] = []
        self._started = time.monotonic()

    def facts(self) -> dict[str, str]:
        """What a reader must know to make sense of the figures."""
        return facts(self.folder)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def progress(self, text: str) -> None:
        """Print a line of progress on stderr; stdout is for the result."""
        print(f"[{self.seconds:5.0f} s] {text}", file=sys.stderr, flush=True)


class Context(Run):
    def __init__(self, folder: Path, sizes: Sizes) -> None:
        super().__init__(folder)
        self.sizes = sizes
