"""What Linux does better: sealed memory, the parent-death signal, adopted orphans, resource limits, CPU affinity."""

import _socket
import contextlib
import fcntl
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from stoker.system import linux_orphans
from stoker.system.portable import GUARDIAN, Portable

_PR_SET_PDEATHSIG: Final = 1
_F_SEAL_FUTURE_WRITE: Final = 0x0010
_RESET_PEAK: Final = b"5"
_KB: Final = 1024
_LONG_SECONDS: Final = 0.001
_NOTABLE_KB: Final = 1024


class LinuxMeter:
    """Measures the jobs of a process, one after the other, usually with one system call for each.

    Between jobs the process does next to nothing, so a job's CPU time is counted from the end of the one before it. The peak
    is reset only after a job that raised it, and once more after the next. The CPU time of finished child processes is read
    only after a job that was long enough to have waited for one.
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
        """Return the CPU microseconds and the peak memory in kB of the job that just ended."""
        own = resource.getrusage(resource.RUSAGE_SELF)
        used = own.ru_utime + own.ru_stime
        cpu = used - self._own
        self._own = used
        if ran_seconds > _LONG_SECONDS:
            cpu += self._of_children()
        peak_kb = own.ru_maxrss
        notable = peak_kb > self._usual_kb + _NOTABLE_KB
        if notable or self._again:
            # Once more after the next job: memory of this one may be freed only then.
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


class Linux(Portable):
    """The implementation for Linux."""

    name = "linux"
    lifeline_descriptors = 0

    # ── sockets ────────────────────────────────────────────────────────────────────────────────────────────────────

    def set_timeout(self, connected: socket.socket, seconds: float) -> None:
        # The kernel's own timeout, where Python's costs a poll before each read and write. TLS and gevent read otherwise.
        connected.settimeout(seconds)
        if type(connected).recv is not _socket.socket.recv:
            return
        duration = struct.pack("@ll", *divmod(max(1, round(seconds * 1e6)), 1_000_000))
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, duration)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, duration)
            connected.settimeout(None)

    # ── files ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def address_space_is_limited(self) -> bool:
        return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY

    def read_start(self, fd: int, size: int) -> bytes:
        return os.pread(fd, size, 0)

    def lock_database(self, fd: int) -> bool:
        """Lock the inode with `flock`, which is independent of SQLite's `fcntl` locks."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def lock_holder(self, path: Path) -> int | None:
        """Find the process in `/proc/locks`: `3: FLOCK  ADVISORY  WRITE 812 08:01:1311 0 EOF`."""
        with contextlib.suppress(OSError, ValueError):
            found = path.stat()
            wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
            for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
                fields = line.split()
                if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5] == wanted and int(fields[4]) > 0:
                    return int(fields[4])
        return None

    # ── workers ────────────────────────────────────────────────────────────────────────────────────────────────────

    def available_cpus(self) -> int:
        """Return the CPUs of this process's affinity; in a container they may be fewer than the machine has."""
        return max(1, len(os.sched_getaffinity(0)))

    def pinnable_cpus(self) -> list[int]:
        return sorted(os.sched_getaffinity(0))

    def pin(self, cpus: Collection[int] | None) -> None:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, cpus or range(os.cpu_count() or 1))

    def create_shared_memory(self, size: int) -> int:
        fd = os.memfd_create("stoker-shared-state", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        except OSError:
            os.close(fd)
            raise
        return fd

    def seal_shared_memory(self, fd: int) -> None:
        with contextlib.suppress(OSError):  # a kernel before 5.1
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL)

    def lifeline(self) -> tuple[str, tuple[int, ...]]:
        return str(os.getpid()), ()

    def end_with_parent(self, lifeline: str, number: int | None = None) -> None:
        """Have the kernel send the signal."""
        import ctypes

        signal_number = signal.SIGKILL if number is None else number
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)
        if os.getppid() != int(lifeline):
            os._exit(1)

    def guardian_argv(self, variable: str, mark: str) -> list[str]:
        """Return the command, without site-packages (`-S`): it must start fast, and needs only the standard library."""
        family = str(linux_orphans.Tag(mark, 0).family)
        return [sys.executable, "-I", "-S", str(GUARDIAN), variable, family]

    def marked(self, mark: str, count: int) -> AbstractContextManager[None]:
        return linux_orphans.tagged(linux_orphans.Tag(mark, count))

    def adopt_orphans(self) -> None:
        linux_orphans.adopt_orphans()

    def end_orphans(self, variable: str, mark: str, count: int) -> None:
        linux_orphans.end_orphans(variable.encode(), linux_orphans.Tag(mark, count))

    def reap_orphans(self, known: Collection[int]) -> None:
        linux_orphans.reap_orphans(known)

    # ── memory and CPU time ────────────────────────────────────────────────────────────────────────────────────────

    def meter(self) -> LinuxMeter:
        return LinuxMeter()

    def limit_own_memory(self, more_bytes: int | None) -> None:
        limit = None if more_bytes is None else more_bytes + _data_bytes()
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        soft = hard if limit is None or (hard != resource.RLIM_INFINITY and hard < limit) else limit
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))

    def limit_memory(self, pid: int, limit_bytes: int) -> None:
        with contextlib.suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_DATA, (limit_bytes, limit_bytes))

    def group_memory_kb(self, pid: int) -> int:
        total = _rss_kb(pid)
        for child in _children(pid):
            total += self.group_memory_kb(child)
        return total


def _data_bytes() -> int:
    """Return the private memory of this process, as RLIMIT_DATA counts it."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")


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
