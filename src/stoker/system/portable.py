"""What every system can do, in plain Python: clients and coordinators anywhere, workers on POSIX.

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
from collections.abc import Callable, Collection, Coroutine, Iterable
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
    """What a process used."""

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
    """Measures the jobs of one thread. Its memory cannot be told from that of the others."""

    def __init__(self) -> None:
        self._cpu_ns = time.thread_time_ns()

    def stop(self, ran_seconds: float) -> tuple[int, int | None]:
        now = time.thread_time_ns()
        used, self._cpu_ns = now - self._cpu_ns, now
        return used // 1000, None


class PortableMeter:
    """Measures job after job in a process that lives longer than they do. The peak of memory cannot be set back here, so
    it is that of the process since its start."""

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
        """Run the main function of a coordinator: on uvloop where it is installed, else on asyncio's own loop."""
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
        """Call this in every forked copy of this process; without fork there is none."""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=call)

    # ── files and sockets ──────────────────────────────────────────────────────────────────────────────────────────

    def open_private(self, path: Path, flags: int) -> int:
        """Open a file for bytes, which only its owner may read if it is made now. No child inherits the descriptor."""
        return os.open(path, flags | _BINARY, PRIVATE_FILE)

    def hide_from_others(self, path: Path) -> None:
        """Take away what others may do with it. What belongs to another user stays as that user made it. Windows has no
        such modes: there a file has the access list of its folder."""
        with contextlib.suppress(FileNotFoundError, PermissionError):
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & _OTHERS and os.name == "posix":
                path.chmod(mode & ~_OTHERS)

    def sync_folder(self, folder: Path) -> None:
        """Make the names in a folder durable; Windows cannot be asked for it."""
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
        """Lock a file that exists for this alone, and is made if it is not there; None when another process has it."""
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
        """Lock an open database file, if that does not get into the way of SQLite's own locks; elsewhere than on Linux it
        does. Return whether no other process has it locked."""
        return True

    def lock_holder(self, path: Path) -> int | None:
        """Return the process that has locked the file, where the system tells."""
        return None

    def prepare_listener(self, listener: socket.socket) -> None:
        """Let a coordinator listen again right after another ended on this port, and never beside one. On Windows,
        SO_REUSEADDR would let two processes have one port."""
        exclusive = getattr(socket, "SO_EXCLUSIVEADDRUSE", None)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR if exclusive is None else exclusive, 1)

    @property
    def address_space_is_limited(self) -> bool:
        """Whether this process may map only so much."""
        return False

    # ── workers ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def worker_problem(self) -> str | None:
        """Why no worker can run here; None where one can."""
        return None if hasattr(os, "fork") and hasattr(os, "wait4") else NO_WORKERS

    def available_cpus(self) -> int:
        """Return how many CPUs this process may use."""
        return max(1, os.cpu_count() or 1)

    def pinnable_cpus(self) -> list[int]:
        """Return the CPUs to which jobs can be bound; none where the system has no such calls."""
        return []

    def pin(self, cpus: Collection[int] | None) -> None:
        """Bind this process to these CPUs; None sets it free."""

    def create_shared_memory(self, size: int) -> int:
        """Return a descriptor of zeroed memory that a child can map."""
        import tempfile

        fd, path = tempfile.mkstemp(prefix="stoker-")
        try:
            os.unlink(path)
            os.ftruncate(fd, size)
            # What a task writes into every descriptor it finds goes behind the memory that is mapped.
            os.lseek(fd, 0, os.SEEK_END)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def seal_shared_memory(self, fd: int) -> None:
        """Let only the mappings that exist change it, where the system can."""

    def lifeline(self) -> tuple[str, tuple[int, ...]]:
        """Return what a child needs to notice the death of this process: a word for `end_with_parent`, and the descriptors
        that it must inherit."""
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
        """Return how the guardian is started: after us it ends what has this variable (`NAME=value`) in its environment, or
        carries this mark."""
        return [sys.executable, "-I", str(GUARDIAN), variable]

    def marked(self, mark: str, count: int) -> AbstractContextManager[None]:
        """What this process starts meanwhile carries a mark that it cannot lose, where the system has one."""
        return contextlib.nullcontext()

    def adopt_orphans(self) -> None:
        """From here on, orphaned descendants of this process become its children, where the system can."""

    def end_orphans(self, variable: str, mark: str, count: int) -> None:
        """End every process that descends from the child with this variable (`NAME=value`) in its environment, or with
        this mark."""
        for _ in range(_SWEEPS):  # what was forking while we looked is found the next time
            found = with_variable(variable)
            for process in found:
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGKILL)
            if not found:
                return

    def reap_orphans(self, known: Collection[int]) -> None:
        """Collect adopted processes that ended by themselves; `known` are children that other code waits for."""

    def signal_group(self, leader: int, number: int) -> None:
        """Send a signal to a process group; it may be gone."""
        with contextlib.suppress(OSError):
            os.killpg(leader, number)

    def kill_group(self, leader: int) -> None:
        self.signal_group(leader, signal.SIGKILL)

    def wait(self, pid: int, *, block: bool) -> tuple[int, Usage | None] | None:
        """Collect a child. Return its exit code, as `subprocess` counts, and what it used; None while it runs."""
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

    def raise_file_limit(self, wanted: int) -> int:
        """Raise the soft limit on open files to what is wanted, as far as the hard one allows. Return what it is then."""
        import resource

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
        """Return what measures the jobs of this process."""
        return PortableMeter()

    def limit_own_memory(self, more_bytes: int | None) -> None:
        """Let this process allocate so much more than it has now, then `MemoryError`; None lifts the limit. Where the
        system has no such limit, the supervisor watches the job from outside (`group_memory_kb`)."""

    def limit_memory(self, pid: int, limit_bytes: int) -> None:
        """The same for a child that was just started."""

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
    """Let SQLite lock the file as a database of its own: it knows how on every system. Nothing is written to it."""
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
"""By process, both ends of the pipe whose writing end only that process has."""


def _lifeline() -> int:
    """Return the reading end of this process's pipe, made at the first call."""
    me = os.getpid()
    if me not in _lifelines:
        _lifelines[me] = os.pipe()
    return _lifelines[me][0]


def _await_parent(parent: int, fd: int | None, number: int) -> None:
    """Wait until the parent is gone. The end of the pipe tells it at once; a task may have closed our end, so it is the
    parent's id that counts."""
    if fd is not None:
        with contextlib.suppress(OSError):
            os.read(fd, 1)
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_SECONDS)
    os.kill(os.getpid(), number)


# ── processes and what they use ────────────────────────────────────────────────────────────────────────────────────


def _used() -> Usage:
    """Return what this process and the children that it waited for used so far."""
    import resource

    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Usage(_usage_of(own).cpu_us + _usage_of(children).cpu_us, _usage_of(own).peak_kb)


def _usage_of(usage: Any) -> Usage:
    """`ru_maxrss` is in bytes on macOS, in kB elsewhere."""
    unit = _KB if sys.platform == "darwin" else 1
    return Usage(int((usage.ru_utime + usage.ru_stime) * 1_000_000), int(usage.ru_maxrss) // unit)
