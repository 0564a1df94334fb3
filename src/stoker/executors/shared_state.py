"""A few words of memory that a supervisor and a child share, so that each can see the other without a message.

The child writes which job it is running and since when; the supervisor reads that at any time, however busy the child
is, and so knows the real start of every job without a message per job. The supervisor writes a range of indexes to
skip: jobs that it takes back although they stand in the child's pipe already.

No lock is needed. The child writes `running` before it looks at the range and declines what is in it; the supervisor
writes the range first and looks at `running` a tick later. What lies behind the job it finds there will be declined
for sure; for anything before, the child's own word follows.
"""

import contextlib
import mmap
import os
import struct
from typing import Final

from stoker.system import SYSTEM

_LAYOUT: Final = struct.Struct("<qqdqqq")  # running, busy, started, skip_from, skip_to, cancel
_RUNNING: Final = struct.Struct("<qqd")
_SKIP: Final = struct.Struct("<qq")
_SKIP_OFFSET: Final = 24
_CANCEL: Final = struct.Struct("<q")
_CANCEL_OFFSET: Final = 40
_BUSY: Final = struct.Struct("<q")
SIZE: Final = 4096
NOTHING: Final = -1
_LATEST: Final = 1e15
"""The latest time that is believed: the supervisor must not calculate with what a broken child wrote."""


class SharedState:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._memory = mmap.mmap(fd, SIZE)

    @classmethod
    def create(cls) -> tuple["SharedState", int]:
        """Return a new shared state and the file descriptor by which the child opens it."""
        fd = SYSTEM.create_shared_memory(SIZE)
        try:
            shared_state = cls(fd)
        except OSError:  # no descriptor is left for the mapping
            os.close(fd)
            raise
        _LAYOUT.pack_into(shared_state._memory, 0, NOTHING, 0, 0.0, 0, 0, NOTHING)
        return shared_state, fd

    @classmethod
    def private(cls) -> "SharedState":
        """Return a shared state for a child that is a thread of this process."""
        shared_state = cls.__new__(cls)
        shared_state._fd = NOTHING
        shared_state._memory = mmap.mmap(-1, SIZE)
        _LAYOUT.pack_into(shared_state._memory, 0, NOTHING, 0, 0.0, 0, 0, NOTHING)
        return shared_state

    # The child's side.

    def seal(self) -> None:
        """Allow changes only through the two mappings that exist, so that a task which writes into every descriptor that it
        finds does not touch the shared state."""
        SYSTEM.seal_shared_memory(self._fd)

    def for_a_copy(self) -> "SharedState":
        """Give up this shared state in a forked copy of the child. Return one that cannot be written to and that still tells
        whether the job was cancelled."""
        copy = SharedState.__new__(SharedState)
        try:
            copy._memory = mmap.mmap(self._fd, SIZE, prot=mmap.PROT_READ)
        except (OSError, ValueError):
            copy._memory = mmap.mmap(-1, SIZE)
            _LAYOUT.pack_into(copy._memory, 0, NOTHING, 0, 0.0, 0, 0, NOTHING)
        with contextlib.suppress(OSError):
            os.close(self._fd)
        self.close()
        return copy

    def start(self, index: int, now: float) -> bool:
        """Mark a job as running. Return False when it was taken back and must not run."""
        _RUNNING.pack_into(self._memory, 0, index, 1, now)
        skip_from, skip_to = _SKIP.unpack_from(self._memory, _SKIP_OFFSET)
        if skip_from <= index < skip_to:
            _RUNNING.pack_into(self._memory, 0, index, 0, now)
            return False
        return True

    def stop(self) -> None:
        _BUSY.pack_into(self._memory, 8, 0)

    def cancelled(self, index: int) -> bool:
        """Return whether the supervisor asked this job to end."""
        (wish,) = _CANCEL.unpack_from(self._memory, _CANCEL_OFFSET)
        return bool(wish == index)

    # The supervisor's side.

    def running(self) -> tuple[int, bool, float]:
        """Return the index of the last job that was started, whether it still runs, and since when."""
        index, busy, started = _RUNNING.unpack_from(self._memory, 0)
        return index, bool(busy), started if 0.0 <= started < _LATEST else 0.0

    def skip(self, first: int, end: int) -> None:
        _SKIP.pack_into(self._memory, _SKIP_OFFSET, first, end)

    def cancel(self, index: int) -> None:
        _CANCEL.pack_into(self._memory, _CANCEL_OFFSET, index)

    def close(self) -> None:
        self._memory.close()
