"""A Python child's line to its supervisor: results, output and progress, gathered and sent together.

The line belongs to one process. A task may call `os.fork()`, and the copy inherits the pipe and the shared state; `at_fork`
takes both away from it before any other code runs there. What a copy prints goes to the process's plain stdout and
stderr, which the supervisor reads as output of the job that runs; its results go nowhere.
"""

import contextlib
import os
import select
import signal
import threading
import time
from typing import Final

from stoker.domain.retry import Kind
from stoker.domain.retry_rules import ErrorNote
from stoker.executors import capture
from stoker.executors.leaving import leave_copy, terminate
from stoker.executors.pipe import OutcomeBatch, Printed, Progressed, pack
from stoker.executors.shared_state import SharedState
from stoker.system import SYSTEM
from stoker.wire.frames import Stream

SHORT_SECONDS: Final = 0.001
LATE_SECONDS: Final = 0.005
OUTPUT_BYTES: Final = 32 * 1024
STDOUT: Final = 1
STDERR: Final = 2


class SupervisorLine:
    """Sends what this process says to its supervisor, in order, from any thread."""

    def __init__(self, fd: int, shared_state: SharedState) -> None:
        self.fd = fd
        self.shared_state = shared_state
        self.saw_cancel = False
        self._lock = threading.RLock()
        self._dirty = threading.Event()
        self._results = OutcomeBatch()
        self._oldest = 0.0
        """When the first of the results that wait ended."""
        self.has_results = False
        self._output: list[Printed] = []
        self._output_bytes = 0
        self._written: dict[int, int] = {}
        self._progress: dict[int, Progressed] = {}
        self._unwritten: dict[int, bytearray] = {}
        """Output of a copy, by descriptor."""
        self._pid = os.getpid()
        self.forked = False
        """Whether this process is a forked copy of the child, which must not speak for it."""
        SYSTEM.after_fork_in_child(lambda: self._after_fork())
        threading.Thread(target=self._flush_late, name="stoker-line", daemon=True).start()

    def check_owner(self) -> None:
        """Leave if this is a copy, also one that a library forked without telling Python."""
        if os.getpid() != self._pid:
            leave_copy()

    def _after_fork(self) -> None:
        """Runs in a forked copy before anything else: let go of what belongs to the child."""
        self._lock = threading.RLock()  # the thread that holds the old one does not exist here
        self._unwritten = {}
        if self.forked:
            return  # a copy of a copy
        self.forked = True
        self._dirty = threading.Event()
        self._results, self.has_results = OutcomeBatch(), False
        self._output, self._output_bytes = [], 0
        self._progress = {}
        self.shared_state = self.shared_state.for_a_copy()
        with contextlib.suppress(OSError):
            os.close(self.fd)
        self.fd = -1
        with contextlib.suppress(ValueError):
            if signal.getsignal(signal.SIGTERM) is terminate:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def send(self, data: bytes) -> None:
        self.check_owner()
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.fd, view) :]
            except BlockingIOError:  # an async child shares this socket with its event loop
                select.select([], [self.fd], [])

    def ended(
        self,
        index: int,
        kind: Kind,
        result: bytes | None,
        error: bytes | None,
        started: float,
        finished: float,
        cpu_us: int | None = None,
        peak_kb: int | None = None,
        note: ErrorNote | None = None,
    ) -> None:
        """Keep how a job ended until `flush`, which the caller sees to. Send it now if an earlier one has waited long."""
        with self._lock:
            self._results.add(index, kind, result, error, started, finished, cpu_us, peak_kb, note)
            if self._written:
                self._written.pop(index, None)
            if not self.has_results:
                self.has_results, self._oldest = True, finished
        if finished - self._oldest > SHORT_SECONDS:
            self.flush()

    def flush_late(self) -> None:
        """Have a thread send what waits if this one does not come to it, because the next job turns out long."""
        if not self._dirty.is_set():
            self._dirty.set()

    def printed(self, index: int, stream: Stream, data: bytes) -> None:
        """Take what a job wrote. Without data it is a flush, which only a copy has to be told."""
        if self.forked:
            self._print_in_a_copy(STDOUT if stream == "stdout" else STDERR, data)
            return
        with self._lock:
            written = self._written.get(index, 0)
            data = data[: max(0, capture.LIMIT - written)]
            if not data:
                return
            self._written[index] = written + len(data)
            last = self._output[-1] if self._output else None
            if last is not None and last.index == index and last.stream == stream:
                self._output[-1] = Printed(index, stream, last.data + data)
            else:
                self._output.append(Printed(index, stream, data))
            self._output_bytes += len(data)
            full = self._output_bytes >= OUTPUT_BYTES
        if full:
            self.flush()
        else:
            self._dirty.set()

    def _print_in_a_copy(self, fd: int, data: bytes) -> None:
        """Write whole lines, so that those of several processes do not mix."""
        waiting = self._unwritten.setdefault(fd, bytearray())
        waiting += data
        end = len(waiting) if not data or len(waiting) > OUTPUT_BYTES else waiting.rfind(b"\n") + 1
        if end:
            write_all(fd, bytes(waiting[:end]))
            del waiting[:end]

    def progress(self, index: int, done: float, total: float | None, message: str | None) -> None:
        if self.forked:
            return
        with self._lock:
            self._progress[index] = Progressed(index, done, total, message)
        self._dirty.set()

    def cancelled(self, index: int) -> bool:
        if self.shared_state.cancelled(index):
            self.saw_cancel = True
            return True
        return False

    def flush(self) -> None:
        """Send everything that waits, output before the results that end it. Leave if this is a copy."""
        with self._lock:
            data = b""
            if self._dirty.is_set():
                self._dirty.clear()
            if self._output or self._progress:
                data = b"".join([*map(pack, self._output), *map(pack, self._progress.values())])
                self._output, self._output_bytes, self._progress = [], 0, {}
            if self.has_results:
                data += pack(self._results)
                self._results, self.has_results = OutcomeBatch(), False
            self.send(data)

    def _flush_late(self) -> None:
        while True:
            self._dirty.wait()
            time.sleep(LATE_SECONDS)
            with contextlib.suppress(OSError):  # the supervisor is gone, and so are we in a moment
                self.flush()


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
