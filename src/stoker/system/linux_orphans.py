"""Processes whose parent is gone and that a job of ours started: how they are found and ended.

A worker adopts the orphans among its descendants (Linux calls it a subreaper): a process that left its job's process
group and session, and whose own parent ended, becomes a child of the worker instead of disappearing.

Each process carries two marks of the child process that it descends from. One is a variable in its environment, which is
gone when it is started with an empty one. The other is a number: the soft limit on file locks, which every process
inherits across `fork`, `exec` and `setsid`. The kernel has ignored that limit since Linux 2.4.25, so the number means
nothing else. A process loses it only by setting that limit itself.
"""

import contextlib
import hashlib
import os
import resource
import signal
from collections.abc import Collection, Iterator
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36
_RLIMIT_LOCKS: Final = 10
_SWEEPS: Final = 8
_COUNT_BITS: Final = 20
_FAMILY_BYTES: Final = 5


class Tag:
    """The number that all processes of one child carry. Those of one worker differ in their last bits alone."""

    def __init__(self, worker_mark: str, count: int) -> None:
        digest = hashlib.sha256(worker_mark.encode()).digest()
        self.family: Final = int.from_bytes(digest[:_FAMILY_BYTES], "big") | 1
        self.number: Final = self.family << _COUNT_BITS | count % (1 << _COUNT_BITS)


@contextlib.contextmanager
def tagged(tag: Tag) -> Iterator[None]:
    """What this process starts meanwhile carries the tag."""
    before = resource.getrlimit(_RLIMIT_LOCKS)
    try:
        resource.setrlimit(_RLIMIT_LOCKS, (tag.number, before[1]))
    except (OSError, ValueError):  # the limit is lower than that here: the environment has to do
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(_RLIMIT_LOCKS, before)


def adopt_orphans() -> None:
    """From here on, orphaned descendants of this process become its children."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans(mark: bytes, tag: Tag) -> None:
    """End every adopted process that carries the mark or the tag, and what it leaves behind in turn."""
    for _ in range(_SWEEPS):
        found = [pid for pid in _own_children() if _belongs(pid, mark, tag)]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.waitpid(pid, 0)


def reap_orphans(known: Collection[int]) -> None:
    """Collect adopted processes that ended by themselves; `known` are children that other code waits for."""
    for pid in _own_children():
        if pid not in known:
            with contextlib.suppress(OSError):
                os.waitpid(pid, os.WNOHANG)


def _own_children() -> list[int]:
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def _belongs(pid: int, mark: bytes, tag: Tag) -> bool:
    """Whether the process descends from the child with these marks. Most carry the number of another child of ours, and
    need no second look."""
    number = _number(pid)
    return number == tag.number if number >> _COUNT_BITS == tag.family else _carries(pid, mark)


def _number(pid: int) -> int:
    """Return the soft limit on file locks of a process; 0 when it has none."""
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:
            limits = file.read()
    except OSError:
        return 0
    (word,) = limits.partition(b"Max file locks")[2].split(None, 1)[:1] or [b""]
    return int(word) if word.isdigit() else 0


def _carries(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False
