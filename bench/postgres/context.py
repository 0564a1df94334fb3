"""What every part of the benchmark on PostgreSQL is given: a server on a real disk, and a new database for each round."""

import itertools
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench.context import Run
from bench.postgres.database import Database
from bench.processes import BenchFailed, output_of
from tests.support.servers import Postgres

STOKER: Final = "Stoker"
PGQUEUER: Final = "pgqueuer"
PROCRASTINATE: Final = "Procrastinate"

_SHOWN: Final = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers")
_MUST_BE_ON: Final = ("fsync", "synchronous_commit", "full_page_writes")
_IN_MEMORY: Final = {"tmpfs", "ramfs"}
_PACKAGES: Final = ("pgqueuer", "asyncpg", "procrastinate", "psycopg")


class Amounts(msgspec.Struct, frozen=True):
    """Jobs for each. The slower a system, the fewer: a rate needs seconds, not a number."""

    stoker: int
    pgqueuer: int
    procrastinate: int

    def of(self, name: str) -> int:
        return {STOKER: self.stoker, PGQUEUER: self.pgqueuer, PROCRASTINATE: self.procrastinate}[name]


class Sizes(msgspec.Struct, frozen=True):
    """How much of everything."""

    rounds: int = 3
    producers: int = 64
    singles: Amounts = Amounts(20_000, 5_000, 2_000)
    batch_producers: int = 4
    batch: int = 100
    batched: Amounts = Amounts(100_000, 100_000, 2_000)
    idle_submits: int = 300
    idle_gap_seconds: float = 0.02
    shared: int = 60_000
    """Jobs of each round with one coordinator and with two."""
    warm_up: int = 2_000
    """Jobs before the first window of a new database: it is compared with one on processes that have long been running."""
    window: int = 20_000
    filled: int = 500_000
    """Jobs that have gone through a database before it is measured again."""
    fill_step: int = 60_000


QUICK = Sizes(
    rounds=1,
    singles=Amounts(300, 200, 100),
    batched=Amounts(2_000, 2_000, 200),
    idle_submits=20,
    shared=2_000,
    warm_up=200,
    window=1_000,
    filled=5_000,
    fill_step=2_000,
)
"""For a smoke run: everything happens, nothing can be concluded."""


class Place(msgspec.Struct, frozen=True):
    """A new, empty database, and a folder for logs."""

    url: str
    folder: Path


class Context(Run):
    def __init__(self, folder: Path, sizes: Sizes, server: Postgres, peer_python: str) -> None:
        super().__init__(folder)
        self.sizes = sizes
        self._server = server
        self._peer_python = peer_python
        self._numbers = itertools.count(1)

    @contextmanager
    def place(self, name: str) -> Iterator[Place]:
        """Everything that an earlier round left to be written is on the disk when this one begins."""
        label = f"{name.lower()}-{next(self._numbers)}"
        folder = self.folder / label
        folder.mkdir()
        url = self._server.create_database(label)
        self._server.psql("CHECKPOINT")
        yield Place(url, folder)
        self._server.psql(f'DROP DATABASE "{label}" WITH (FORCE)')
        shutil.rmtree(folder)

    def facts(self) -> dict[str, str]:
        with Database(self._server.url) as database:
            settings = {name: str(database.value(f"SHOW {name}")) for name in _SHOWN}
        disk = _filesystem(self.folder)
        if disk in _IN_MEMORY or any(settings[name] != "on" for name in _MUST_BE_ON):
            raise BenchFailed(f"this would measure a database that forgets: {settings} on {disk}; see --dir")
        shown = ", ".join(f"{name} {value}" for name, value in settings.items())
        return {**super().facts(), "postgresql": f"{shown}, on {disk}", "peers": self._peers()}

    def _peers(self) -> str:
        code = (
            "import importlib.metadata as m\n"
            f"for name in {_PACKAGES!r}:\n"
            "  try: print(name, m.version(name))\n"
            "  except m.PackageNotFoundError: print(name, 'not installed')"
        )
        said = output_of([self._peer_python, "-c", code], "the peers' interpreter", 30.0)
        return ", ".join(said.decode().splitlines())


def _filesystem(folder: Path) -> str:
    """The type of the file system that a folder is on, as far as the system tells."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return f"{sys.platform}'s file system"
    best = ("", "unknown")
    for line in mounts.read_text().splitlines():
        _, point, kind = line.split()[:3]
        if os.path.commonpath([point, folder.resolve()]) == point and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]
