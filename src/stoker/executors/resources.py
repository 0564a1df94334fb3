"""What one job used: CPU seconds and peak memory of its process, and the limits it runs under."""

import contextlib
import os
import resource
from typing import Final

_RESET_PEAK: Final = b"5"
_KB: Final = 1024
_LONG_SECONDS: Final = 0.001
_NOTABLE_KB: Final = 1024
_SLACK_BYTES: Final = 16 * 1024 * 1024


class Meter:
    """Measures job after job in a process that lives longer than they do, with one look at the counters per job.

    Between jobs the process does next to nothing, so a job's CPU time is counted from the end of the one before it.
    The peak is set back only after a job that raised it; what finished children used is read only after a job that
    was long enough to have waited for one.
    """

    def __init__(self) -> None:
        self._reset_fd: int | None = None
        with contextlib.suppress(OSError):  # a kernel without it: peaks are then those of the process
            self._reset_fd = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
        self._own = 0.0
        self._children = 0.0
        self._usual_kb = 0
        self._again = False
        self.stop(1.0)

    def stop(self, ran_seconds: float) -> tuple[int, int]:
        """The CPU microseconds and the peak memory in kB of the job that just ended."""
        own = resource.getrusage(resource.RUSAGE_SELF)
        used = own.ru_utime + own.ru_stime
        cpu = used - self._own
        self._own = used
        if ran_seconds > _LONG_SECONDS:
            cpu += self._of_children()
        peak_kb = own.ru_maxrss
        notable = peak_kb > self._usual_kb + _NOTABLE_KB
        if notable or self._again:
            # Once more after the next job: what this one leaves behind may be freed only then.
            self._again = notable
            self._set_back()
        return max(0, int(cpu * 1_000_000)), peak_kb

    def _of_children(self) -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = usage.ru_utime + usage.ru_stime
        more, self._children = used - self._children, used
        return more

    def _set_back(self) -> None:
        if self._reset_fd is not None:
            with contextlib.suppress(OSError):
                os.write(self._reset_fd, _RESET_PEAK)
        self._usual_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


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
