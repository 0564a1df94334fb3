"""Processes whose parent is gone, though somebody of ours started them.

A worker adopts the orphans among its descendants (Linux calls it a subreaper): a process that left its job's process
group and session, and whose own parent ended, becomes a child of the worker instead of disappearing. Each carries the
mark of the child process it descends from in its environment, so the worker can end exactly those whose job has
ended.
"""

import contextlib
import ctypes
import os
import signal
from collections.abc import Collection
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36
_SWEEPS: Final = 8


def adopt_orphans() -> None:
    """From here on, orphaned descendants of this process become its children."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans(mark: bytes) -> None:
    """End every adopted process that carries this mark, and what it leaves behind in turn."""
    for _ in range(_SWEEPS):
        found = [pid for pid in _own_children() if _carries(pid, mark)]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.waitpid(pid, 0)


def reap_orphans(known: Collection[int]) -> None:
    """Collect adopted processes that ended by themselves; `known` are those that somebody else waits for."""
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


def _carries(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False
