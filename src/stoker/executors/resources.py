"""What one job used: CPU seconds and peak memory of its process, and the limits it runs under."""

import contextlib
import os
import resource
from typing import Final

_RESET_PEAK: Final = b"5"
_KB: Final = 1024
_SLACK_BYTES: Final = 16 * 1024 * 1024


class Meter:
    """Measures job after job in a process that lives longer than they do."""

    def __init__(self) -> None:
        self._reset_fd: int | None = None
        with contextlib.suppress(OSError):  # a kernel without it: peaks are then those of the process
            self._reset_fd = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
        self._started = 0.0

    def start(self) -> None:
        if self._reset_fd is not None:
            with contextlib.suppress(OSError):
                os.write(self._reset_fd, _RESET_PEAK)
        self._started = _cpu_seconds()[0]

    def stop(self) -> tuple[int, int]:
        """CPU microseconds since `start`, and the peak memory in kB."""
        seconds, peak_kb = _cpu_seconds()
        return max(0, int((seconds - self._started) * 1_000_000)), peak_kb


def _cpu_seconds() -> tuple[float, int]:
    own = resource.getrusage(resource.RUSAGE_SELF)
    waited_for = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = own.ru_utime + own.ru_stime + waited_for.ru_utime + waited_for.ru_stime
    return total, own.ru_maxrss


class MemoryLimit:
    """Lets one job allocate at most so much more than the process has now: then Python raises `MemoryError`."""

    def __init__(self, memory_mb: int | None) -> None:
        self._memory_mb = memory_mb

    def __enter__(self) -> None:
        if self._memory_mb is not None:
            limit = self._memory_mb * _KB * _KB + _SLACK_BYTES + _data_bytes()
            _limit_data(limit)

    def __exit__(self, *_: object) -> None:
        if self._memory_mb is not None:
            _limit_data(None)


def _limit_data(limit: int | None) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = hard if limit is None or (hard != resource.RLIM_INFINITY and hard < limit) else limit
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_bytes() -> int:
    """The private memory of this process, as RLIMIT_DATA counts it."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")


def group_rss_kb(pid: int) -> int:
    """Memory in use by a process and everything it started, in kB; 0 when it is gone."""
    total = _rss_kb(pid)
    for child in _children(pid):
        total += group_rss_kb(child)
    return total


def _rss_kb(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // _KB
    except (OSError, IndexError):
        return 0


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []
