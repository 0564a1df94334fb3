"""The processes of a system by what they do, and the CPU time that each kind has used so far.

The kernel's clock of a process (`clock_getcpuclockid`) counts nanoseconds of all its threads, ended ones included, and
every user may read it. A process that has ended and was waited for is found in its parent's account, in ticks of 10 ms.
"""

import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

import msgspec

COORDINATOR: Final = "coordinator"
SUPERVISOR: Final = "worker supervisor"
CHILDREN: Final = "worker children"
POSTGRES: Final = "PostgreSQL"

_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PARENT, _REAPED_USER, _REAPED_SYSTEM = 1, 13, 14
"""Places in /proc/PID/stat, counted from the state, which follows the name."""
_SCHEDULED: Final = 2
"""The kind of a process clock that counts what the scheduler gave it: CPUCLOCK_SCHED of the kernel."""


class Role(msgspec.Struct, frozen=True):
    """A process (`own`), those that it started and they in turn (`below`), or both."""

    name: str
    root: int
    own: bool = True
    below: bool = True

    def pids(self) -> list[int]:
        found = [self.root] if self.own else []
        return found + (descendants(self.root) if self.below else [])

    def cpu_ns(self) -> int:
        """User and system time until now, including processes below that came and went."""
        pids = self.pids()
        parents = {*pids, self.root} if self.below else set()
        return sum(map(_clock_ns, pids)) + sum(map(_reaped_ns, parents))


def worker_roles(pid: int) -> list[Role]:
    return [Role(SUPERVISOR, pid, below=False), Role(CHILDREN, pid, own=False)]


def descendants(root: int) -> list[int]:
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(int(entry))):
            children[int(stat[_PARENT])].append(int(entry))
    found: list[int] = []
    level = children[root]
    while level:
        found += level
        level = [child for pid in level for child in children[pid]]
    return found


def _stat(pid: int) -> list[str]:
    """The fields after the name, or nothing when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _clock_ns(pid: int) -> int:
    try:
        return time.clock_gettime_ns((~pid << 3) | _SCHEDULED)
    except OSError:  # it has ended, and its parent has its time
        return 0


def _reaped_ns(pid: int) -> int:
    stat = _stat(pid)
    return (int(stat[_REAPED_USER]) + int(stat[_REAPED_SYSTEM])) * _TICK_NS if stat else 0
