"""How many system calls processes make. Two ways, because the better one is not allowed everywhere.

`KernelCounter` has the kernel count (`perf_event_open` on the tracepoint `raw_syscalls:sys_enter`). That costs well under a
microsecond a call, so that it can run beside the clock, and there is nothing to install. It needs root, or CAP_PERFMON and a
tracefs that may be read.

`StraceCounter` needs no privilege beyond tracing one's own processes, but stops a process twice at every call. A loaded
coordinator then commits more jobs at once, so such counts are taken in a pass of their own and compare only with each other.

Either counts the threads and processes that a counted one starts meanwhile as the same role.

How often a thread waits depends on which was quicker: a busy machine has more waits and wake-ups for the same work. So the
calls that work are counted apart from those that only wait (`WAITS`).
"""

import ctypes
import fcntl
import functools
import os
import platform
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final, Protocol

import msgspec

from bench.cost.roles import Role
from bench.processes import BenchFailed


class Calls(msgspec.Struct, frozen=True):
    total: int
    working: int
    """Those that do not just wait."""


Read = Callable[[], Mapping[str, Calls]]
"""The calls of each role since counting began. May be used once."""

WAITS: Final = {
    "futex": (202, 98),
    "epoll_wait": (232, None),
    "epoll_pwait": (281, 22),
    "epoll_pwait2": (441, 441),
    "io_uring_enter": (426, 426),
    "poll": (7, None),
    "ppoll": (271, 73),
    "select": (23, None),
    "pselect6": (270, 72),
    "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115),
    "wait4": (61, 260),
    "waitid": (247, 95),
    "sched_yield": (24, 124),
    "restart_syscall": (219, 128),
}
"""Their numbers on x86-64 and on 64-bit ARM. The event loop uses io_uring to learn what is ready."""

_MACHINES: Final = ("x86_64", "aarch64")
_PERF_EVENT_OPEN: Final = (298, 241)
_TRACEPOINT_TYPE: Final = 2
_INHERIT: Final = 1 << 1
_CLOSE_ON_EXEC: Final = 8
_SET_FILTER: Final = 0x40082406
_ATTRIBUTES: Final = struct.Struct("=IIQQQQQIIQ")
_EVENT: Final = Path("events/raw_syscalls/sys_enter/id")
_TRACING: Final = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
_ATTACH_SECONDS: Final = 20.0


class Counter(Protocol):
    @property
    def name(self) -> str:
        """What it is, for the reader."""

    @property
    def disturbs(self) -> bool:
        """Whether what it counts runs much slower, so that time must be taken without it."""

    def counting(self, roles: Sequence[Role]) -> AbstractContextManager[Read]: ...


class KernelCounter:
    name = "counted by the kernel"
    disturbs = False

    @contextmanager
    def counting(self, roles: Sequence[Role]) -> Iterator[Read]:
        with ExitStack() as stack:
            events: dict[str, list[tuple[int, int]]] = {}
            for role in roles:
                events[role.name] = [_open_events(thread, stack) for thread in _threads(role.pids())]
            yield lambda: {name: _sum(pairs) for name, pairs in events.items()}


def _open_events(thread: int, stack: ExitStack) -> tuple[int, int]:
    """One that counts all calls of a thread, and one that counts those that work."""
    total, working = _open_event(thread), _open_event(thread)
    stack.callback(os.close, total)
    stack.callback(os.close, working)
    fcntl.ioctl(working, _SET_FILTER, _filter())
    return total, working


@functools.cache
def _filter() -> bytes:
    place = _MACHINES.index(platform.machine())
    numbers = [number for numbers in WAITS.values() if (number := numbers[place]) is not None]
    return b" && ".join(b"id != %d" % number for number in numbers) + b"\0"


def _sum(pairs: Sequence[tuple[int, int]]) -> Calls:
    return Calls(sum(_value(total) for total, _ in pairs), sum(_value(working) for _, working in pairs))


def _threads(pids: Sequence[int]) -> list[int]:
    return [int(thread) for pid in pids for thread in os.listdir(f"/proc/{pid}/task")]


def _value(event: int) -> int:
    return int.from_bytes(os.read(event, 8), "little")


@functools.cache
def _event_id() -> int:
    for place in _TRACING:
        if (place / _EVENT).exists():
            return int((place / _EVENT).read_text())
    raise OSError("there is no tracefs")


def _open_event(thread: int) -> int:
    size = _ATTRIBUTES.size
    packed = _ATTRIBUTES.pack(_TRACEPOINT_TYPE, size, _event_id(), 0, 0, 0, _INHERIT, 0, 0, 0)
    attributes = ctypes.create_string_buffer(packed, size)
    libc = ctypes.CDLL(None, use_errno=True)
    number = _PERF_EVENT_OPEN[_MACHINES.index(platform.machine())]
    event = int(libc.syscall(number, attributes, thread, -1, -1, _CLOSE_ON_EXEC))
    if event < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return event


class StraceCounter:
    name = "counted by strace, in a pass of their own"
    disturbs = True

    @contextmanager
    def counting(self, roles: Sequence[Role]) -> Iterator[Read]:
        with tempfile.TemporaryDirectory(prefix="stoker-cost-") as folder, ExitStack() as stack:
            tracers = {}
            for place, role in enumerate(roles):
                tracer = _Strace(Path(folder) / str(place), role.pids())
                stack.callback(tracer.end)
                tracers[role.name] = tracer
            for tracer in tracers.values():
                tracer.wait_until_attached()
            yield lambda: {name: tracer.calls() for name, tracer in tracers.items()}


class _Strace:
    """One strace on the processes of one role; its summary is read when it has let go of them."""

    def __init__(self, output: Path, pids: Sequence[int]) -> None:
        self._output = output
        self._pids = pids
        argv = ["strace", "-c", "-f", "-qq", "-U", "name,calls", "-o", str(output)]
        argv += [word for pid in pids for word in ("-p", str(pid))]
        self._process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def wait_until_attached(self) -> None:
        deadline = time.monotonic() + _ATTACH_SECONDS
        while not all(map(_is_traced, _threads(self._pids))):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise BenchFailed("strace may not trace what was started; see `kernel.yama.ptrace_scope`")
            time.sleep(0.005)

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()

    def calls(self) -> Calls:
        self.end()
        return strace_calls(self._output.read_text())


def strace_calls(summary: str) -> Calls:
    """The calls in a table of `strace -c -U name,calls`. A process that made none leaves it empty."""
    rows = [line.split() for line in summary.splitlines()]
    counts = {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit() and row[0] != "total"}
    return Calls(sum(counts.values()), sum(count for name, count in counts.items() if name not in WAITS))


def _is_traced(thread: int) -> bool:
    status = Path(f"/proc/{thread}/status").read_text()
    return "\nTracerPid:\t0\n" not in status


def find_counter() -> Counter | None:
    """The best way to count that works here; None where there is none."""
    try:
        os.close(_open_event(os.getpid()))
        return KernelCounter()
    except (OSError, ValueError):
        return StraceCounter() if shutil.which("strace") and _may_trace() else None


def _may_trace() -> bool:
    with subprocess.Popen(["sleep", "60"]) as child:  # noqa: S607 - as found in PATH
        try:
            with StraceCounter().counting([Role("child", child.pid)]) as read:
                read()
            return True
        except BenchFailed:
            return False
        finally:
            child.kill()


HOW_TO_COUNT: Final = (
    "not available: needs the Debian package strace, or root and a kernel with tracepoints of system calls"
)
