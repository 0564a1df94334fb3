"""A memory-mapped file in which the processes of a measurement count jobs and note when each one started.

All systems are measured by this one clock: a job marks the board as the only thing it does, which takes under a microsecond
and no system call. Standard library only, because it is imported in the environments of all peers.
"""

import fcntl
import mmap
import os
import threading
import time
from pathlib import Path
from typing import Final

SLOTS: Final = 1_024
"""Places for counters: one for each thread that runs jobs, and one for each producer. Each is written by its owner alone."""
PRODUCERS: Final = 64
JOBS: Final = 4_000_000
"""Numbers that jobs may have. The file is sparse, so unused ones cost nothing."""

_WORD: Final = 8
_NEXT_SLOT: Final = 0
_FIRST_DONE: Final = PRODUCERS
_STARTS: Final = SLOTS


class Board:
    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), (SLOTS + JOBS) * _WORD)).cast("q")
        self._own = threading.local()
        os.register_at_fork(after_in_child=self._forget_slots)

    @classmethod
    def create(cls, path: Path) -> "Board":
        with path.open("wb") as file:
            file.truncate((SLOTS + JOBS) * _WORD)
        return cls(path)

    def _forget_slots(self) -> None:
        self._own = threading.local()

    def mark(self, number: int) -> None:
        """Count a job, and note that it started now. Called by the job itself."""
        if number >= 0:
            self._words[_STARTS + number] = time.monotonic_ns()
        try:
            slot = self._own.slot
        except AttributeError:
            slot = self._own.slot = self._new_slot()
        self._words[slot] += 1

    def _new_slot(self) -> int:
        with self._path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._words[_NEXT_SLOT] += 1
            slot = _FIRST_DONE + self._words[_NEXT_SLOT]
        if slot >= SLOTS:
            raise RuntimeError(f"more than {SLOTS - _FIRST_DONE - 1} threads ran jobs")
        return slot

    def done(self) -> int:
        """How many jobs have been marked since the board was made."""
        used = self._words[_NEXT_SLOT]
        return sum(self._words[_FIRST_DONE + 1 : _FIRST_DONE + 1 + used])

    def note_submitted(self, producer: int, number: int) -> None:
        """Say how many jobs this producer has submitted so far. `producer` counts from 1."""
        self._words[producer] = number

    def submitted_by(self, producer: int) -> int:
        return self._words[producer]

    def submitted(self) -> int:
        return sum(self._words[1:PRODUCERS])

    def started_ns(self, number: int) -> int:
        """When this job started, by the monotonic clock; 0 while it has not."""
        return self._words[_STARTS + number]

    def starts(self, first: int, jobs: int) -> list[int]:
        return self._words[_STARTS + first : _STARTS + first + jobs].tolist()
