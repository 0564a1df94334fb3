"""Finds and ends processes that a job started and whose parent has ended.

A worker adopts the orphans among its descendants (it is a subreaper): a process that left its job's process group and
session, and whose own parent ended, becomes a child of the worker and not of init.

Each process carries two marks of the child of the worker that it descends from. One is a variable in its environment, which
it loses when it is started with an empty one. The other is a number, kept as the soft limit on file locks, which every
process inherits across `fork`, `exec` and `setsid`. Linux has ignored that limit since 2.4.25, so it can carry the number. A
process loses it only by setting that limit itself.
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
    """The number that all processes of one child carry. The numbers of one worker differ only in their lowest bits."""

    def __init__(self, worker_mark: str, count: int) -> None:
        digest = hashlib.sha256(worker_mark.encode()).digest()
        self.family: Final = int.from_bytes(digest[:_FAMILY_BYTES], "big") | 1
        self.number: Final = self.family << _COUNT_BITS | count % (1 << _COUNT_BITS)


@contextlib.contextmanager
def tagged(tag: Tag) -> Iterator[None]:
    """Give the tag to processes that are started inside the block."""
    before = resource.getrlimit(_RLIMIT_LOCKS)
    try:
        resource.setrlimit(_RLIMIT_LOCKS, (tag.number, before[1]))
    except (OSError, ValueError):  # the hard limit is below the number: the variable is the only mark
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(_RLIMIT_LOCKS, before)


def adopt_orphans() -> None:
    """Make orphaned descendants of this process its children from now on."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans(mark: bytes, tag: Tag) -> None:
    """Kill every adopted process that carries the mark or the tag, and the orphans that it leaves in turn."""
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
    """Return whether the process descends from the child with these marks. The environment is read only if the number is
    not one of this worker's."""
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
