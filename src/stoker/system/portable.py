"""The implementation in plain Python: clients and coordinators on any system, workers on POSIX.

Modules that some systems do not have are imported where they are used.
"""

import contextlib
import os
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from stoker.system.guardian import with_variable

T = TypeVar("T")

PRIVATE_FILE: Final = 0o600
GUARDIAN: Final = Path(__file__).with_name("guardian.py")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_BINARY: Final[int] = getattr(os, "O_BINARY", 0)
_KB: Final = 1024
_PARENT_POLL_SECONDS: Final = 0.2
_SWEEPS: Final = 8

NO_WORKERS: Final = (
    "workers do not run on this system. On Windows, run them in WSL or in a container and point them at the "
    "coordinator: stoker worker --url http://HOST:8080. `stoker serve` and all client commands work here "
    "(docs/portability.md)"
)


class Usage(NamedTuple):
    """The CPU time and peak memory of a process."""

    cpu_us: int
    peak_kb: int


class Lock:
    """A lock on a file, held until `release`."""

    def __init__(self, release: Callable[[], None]) -> None:
        self.release: Final = release


class Meter(Protocol):
    """Measures the jobs of a process, one after the other."""

    def stop(self, ran_seconds: float) -> tuple[int, int | None]:
        """Return the CPU microseconds and the peak memory in kB, None where that is not known, of the job that just
        ended."""
        ...


class ThreadMeter:
    """Measures the jobs of one thread. Memory cannot be measured for a single thread."""

    def __init__(self) -> None:
        self._cpu_ns = time.thread_time_ns()

    def stop(self, ran_seconds: float) -> tuple[int, int | None]:
        now = time.thread_time_ns()
        used, self._cpu_ns = now - self._cpu_ns, now
        return used // 1000, None


class PortableMeter:
    """Measures the jobs of a process, one after the other. The peak of memory cannot be reset here, so it is that of the
    process since its start."""

    def __init__(self) -> None:
        self._cpu_us = _used().cpu_us

    def stop(self, ran_seconds: float) -> tuple[int, int]:
        used = _used()
        cpu_us, self._cpu_us = used.cpu_us - self._cpu_us, used.cpu_us
        return max(0, cpu_us), used.peak_kb


class Portable:
    """The implementation for every system but Linux."""

    name = "portable"
    lifeline_descriptors = 2
    """How many descriptors `lifeline` keeps open."""

    # ── event loop and signals ─────────────────────────────────────────────────────────────────────────────────────

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run the main function of a coordinator or worker: on uvloop where it is installed, else on asyncio's own loop."""
        return _runner()(main)

    def on_signals(self, numbers: Iterable[int], handle: Callable[[], None]) -> None:
        """Call `handle` on the running loop at each of these signals."""
        import asyncio

        loop = asyncio.get_running_loop()

        def in_loop(*_: object) -> None:
            loop.call_soon_threadsafe(handle)

        for number in numbers:
            try:
                loop.add_signal_handler(number, handle)
            except NotImplementedError:  # the loop of Windows
                signal.signal(number, in_loop)

    def after_fork_in_child(self, call: Callable[[], None]) -> None:
        """Call this in every forked child of this process; on Windows there are none."""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=call)

    # ── files and sockets ──────────────────────────────────────────────────────────────────────────────────────────

    def open_private(self, path: Path, flags: int) -> int:
        """Open a file for bytes. If it is created, only its owner may read it. No child inherits the descriptor."""
        return os.open(path, flags | _BINARY, PRIVATE_FILE)

    def hide_from_others(self, path: Path) -> None:
        """Remove the permissions of group and others. A file of another user is left alone, and so is any file on Windows,
        where it has the access list of its folder."""
        with contextlib.suppress(FileNotFoundError, PermissionError):
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & _OTHERS and os.name == "posix":
                path.chmod(mode & ~_OTHERS)

    def sync_folder(self, folder: Path) -> None:
        """Sync a folder, so that the names in it are durable. Windows has no such call."""
        if not hasattr(os, "O_DIRECTORY"):
            return
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def read_start(self, fd: int, size: int) -> bytes:
        """Return the first bytes of an open file."""
        os.lseek(fd, 0, os.SEEK_SET)
        return os.read(fd, size)

    def lock_file(self, path: Path) -> Lock | None:
        """Lock a lock file, created if needed. Return None when another process has it locked."""
        try:
            import fcntl
        except ImportError:
            return _sqlite_lock(path)
        fd = self.open_private(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return Lock(lambda: os.close(fd))

    def lock_database(self, fd: int) -> bool:
        """Lock an open database file and return whether no other process has it locked. Only Linux does: elsewhere the lock
        would interfere with SQLite's own."""
        return True

    def lock_holder(self, path: Path) -> int | None:
        """Return the id of the process that has locked the file; None where the system does not tell."""
        return None

    def prepare_listener(self, listener: socket.socket) -> None:
        """Let a coordinator listen on a port right after another one ended there, but never beside it. On Windows
        SO_REUSEADDR would let two processes share the port."""
        exclusive = getattr(socket, "SO_EXCLUSIVEADDRUSE", None)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR if exclusive is None else exclusive, 1)

    def set_timeout(self, connected: socket.socket, seconds: float) -> None:
        """Bound each read and write of a blocking socket. Beyond it they raise `TimeoutError` or `BlockingIOError`."""
        connected.settimeout(seconds)

    @property
    def address_space_is_limited(self) -> bool:
        """Return whether the address space of this process is limited."""
        return False

    # ── workers ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def worker_problem(self) -> str | None:
        """Return why no worker can run on this system; None if one can."""
        return None if hasattr(os, "fork") and hasattr(os, "wait4") else NO_WORKERS

    def available_cpus(self) -> int:
        """Return how many CPUs this process may use."""
        return max(1, os.cpu_count() or 1)

    def pinnable_cpus(self) -> list[int]:
        """Return the CPUs to which jobs can be bound; none where the system has no such calls."""
        return []

    def pin(self, cpus: Collection[int] | None) -> None:
        """Bind this process to these CPUs; None allows all."""

    def create_shared_memory(self, size: int) -> int:
        """Return a descriptor of zeroed memory that a child can map."""
        import tempfile

        fd, path = tempfile.mkstemp(prefix="stoker-")
        try:
            os.unlink(path)
            os.ftruncate(fd, size)
            # A task that writes to every descriptor it finds then writes behind the mapped memory.
            os.lseek(fd, 0, os.SEEK_END)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def seal_shared_memory(self, fd: int) -> None:
        """Allow writes only through existing mappings, where the system can."""

    def lifeline(self) -> tuple[str, tuple[int, ...]]:
        """Return what a child needs to notice the death of this process: the argument of `end_with_parent`, and the
        descriptors that it must inherit."""
        reading = _lifeline()
        return f"{os.getpid()}:{reading}", (reading,)

    def end_with_parent(self, lifeline: str, number: int | None = None) -> None:
        """Send this process a signal (SIGKILL by default) when its parent ends, and end now if that already happened."""
        parent, _, fd = lifeline.partition(":")
        if os.getppid() != int(parent):
            os._exit(1)
        signal_number = signal.SIGKILL if number is None else number
        if fd:
            with contextlib.suppress(OSError):
                os.set_inheritable(int(fd), False)
        waiting = (int(parent), int(fd) if fd else None, signal_number)
        threading.Thread(target=_await_parent, args=waiting, name="stoker-parent", daemon=True).start()

    def guardian_argv(self, variable: str, mark: str) -> list[str]:
        """Return the command of the guardian. After this process it kills processes that have this variable (`NAME=value`)
        in their environment, or carry this mark."""
        return [sys.executable, "-I", str(GUARDIAN), variable]

    def marked(self, mark: str, count: int) -> AbstractContextManager[None]:
        """Give processes that are started inside the block a mark that they cannot lose, where the system has one."""
        return contextlib.nullcontext()

    def adopt_orphans(self) -> None:
        """Make orphaned descendants of this process its children from now on, where the system can."""

    def end_orphans(self, variable: str, mark: str, count: int) -> None:
        """Kill every process that has this variable (`NAME=value`) in its environment, or carries this mark."""
        for _ in range(_SWEEPS):  # a process that forked during one sweep is found by the next
            found = with_variable(variable)
            for process in found:
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGKILL)
            if not found:
                return

    def reap_orphans(self, known: Collection[int]) -> None:
        """Collect adopted processes that ended by themselves; `known` are children that other code waits for."""

    def signal_group(self, leader: int, number: int) -> None:
        """Send a signal to a process group, if it still exists."""
        with contextlib.suppress(OSError):
            os.killpg(leader, number)

    def kill_group(self, leader: int) -> None:
        self.signal_group(leader, signal.SIGKILL)

    def wait(self, pid: int, *, block: bool) -> tuple[int, Usage | None] | None:
        """Reap a child. Return its exit code, negative for a signal, and what it used; None while it runs."""
        try:
            found, status, usage = os.wait4(pid, 0 if block else os.WNOHANG)
        except ChildProcessError:
            return 0, None
        return None if found == 0 else (os.waitstatus_to_exitcode(status), _usage_of(usage))

    def waiting_bytes(self, fd: int) -> int:
        """Return how many bytes can be read from a pipe or socket now."""
        import fcntl
        import termios

        count = bytearray(4)
        fcntl.ioctl(fd, termios.FIONREAD, count)
        return int.from_bytes(count, sys.byteorder)

    def input_poll(self, fds: Sequence[int]) -> Callable[[float], Sequence[object]]:
        """Return a function that waits at most so many milliseconds and tells which of the pipes have something to read, or
        have ended."""
        import select

        poll = select.poll()
        for fd in fds:
            poll.register(fd, select.POLLIN)
        return poll.poll

    def raise_file_limit(self, wanted: int) -> int:
        """Raise the soft limit on open files to `wanted`, as far as the hard limit allows. Return the new soft limit."""
        try:
            import resource
        except ImportError:  # no such limit
            return wanted

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY:
            return wanted
        if soft < wanted:
            new = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            with contextlib.suppress(
                OSError, ValueError
            ):  # macOS has a lower limit of its own beside the hard one
                resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, new), hard))
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    # ── memory and CPU time ────────────────────────────────────────────────────────────────────────────────────────

    def meter(self) -> Meter:
        """Return a meter for the jobs of this process."""
        return PortableMeter()

    def limit_own_memory(self, more_bytes: int | None) -> None:
        """Let this process allocate `more_bytes` from now on, then raise `MemoryError`; None lifts the limit. Where the
        system has no such limit, the supervisor watches the job from outside (`group_memory_kb`)."""

    def limit_memory(self, pid: int, limit_bytes: int) -> None:
        """Limit the memory of a child that was just started."""

    def group_memory_kb(self, pid: int) -> int:
        """Return the memory in use by a process and everything it started, in kB; 0 when it is gone."""
        import psutil

        total = 0
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            for one in (process, *process.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    total += one.memory_info().rss // _KB
        return total


def _runner() -> Callable[[Coroutine[Any, Any, T]], T]:
    try:
        import uvloop
    except ImportError:
        import asyncio

        return asyncio.run
    return uvloop.run


# ── locks without fcntl ────────────────────────────────────────────────────────────────────────────────────────────


def _sqlite_lock(path: Path) -> Lock | None:
    """Lock the file by opening it as a SQLite database, which works on every system. Nothing is written to it."""
    import apsw

    db = apsw.Connection(str(path))
    try:
        db.execute("BEGIN EXCLUSIVE")
    except apsw.BusyError:
        db.close()
        return None
    except BaseException:
        db.close()
        raise
    return Lock(db.close)


# ── the death of the parent ────────────────────────────────────────────────────────────────────────────────────────

_lifelines: Final[dict[int, tuple[int, int]]] = {}
"""By process id, both ends of the pipe whose writing end only that process has."""


def _lifeline() -> int:
    """Return the reading end of this process's pipe, made at the first call."""
    me = os.getpid()
    if me not in _lifelines:
        _lifelines[me] = os.pipe()
    return _lifelines[me][0]


def _await_parent(parent: int, fd: int | None, number: int) -> None:
    """Wait until the parent is gone, then send the signal. The end of the pipe tells at once, but a task may have closed our
    end, so the parent's id decides."""
    if fd is not None:
        with contextlib.suppress(OSError):
            os.read(fd, 1)
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_SECONDS)
    os.kill(os.getpid(), number)


# ── processes and what they use ────────────────────────────────────────────────────────────────────────────────────


def _used() -> Usage:
    """Return the CPU time of this process and its reaped children so far, and the peak memory of this process."""
    import resource

    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Usage(_usage_of(own).cpu_us + _usage_of(children).cpu_us, _usage_of(own).peak_kb)


def _usage_of(usage: Any) -> Usage:
    """Convert a `struct_rusage`, whose `ru_maxrss` is in bytes on macOS and in kB elsewhere."""
    unit = _KB if sys.platform == "darwin" else 1
    return Usage(int((usage.ru_utime + usage.ru_stime) * 1_000_000), int(usage.ru_maxrss) // unit)
