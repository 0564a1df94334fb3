"""Child processes as a supervisor sees them: start, watch, end. Nothing of a child survives its end.

Each child leads a process group and a session of its own, so that a signal reaches whatever it started. The kernel
ends it with the supervisor (parent-death signal), and the guardian ends what the kernel does not.

There are three kinds with one face (`Child`): a warm Python process, a warm native runner, and a process that lives
for one job.
"""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import structlog

from stoker.access import Access
from stoker.executors.pipe import (
    FROM_CHILD,
    CancelJob,
    ChildBatch,
    OutcomeBatch,
    Printed,
    Progressed,
    Ready,
    Unpacker,
    pack,
)
from stoker.executors.shared_state import SharedState
from stoker.logs.stream import put
from stoker.settings import without_secrets
from stoker.system import SYSTEM, Usage
from stoker.wire.frames import Stream

MARKER: Final = "STOKER_WORKER_SESSION"
CHILD_MARKER: Final = "STOKER_WORKER_CHILD"
_READ: Final = 1 << 18

SCARCE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})
"""The errors with which the system refuses another process for lack of room. They say nothing of the job."""

log = structlog.get_logger()


def advice(error: OSError) -> str:
    """Return what the system said, and what to do about it."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"{error}; raise the limit on open files (ulimit -n) or lower STOKER_WORKER_THREADS"
    return str(error)


class Guardian:
    """Starts and informs the guardian: a process that outlives a killed worker and kills what is left of its jobs
    (`stoker/system/guardian.py`)."""

    def __init__(self, session_id: str) -> None:
        self._process = subprocess.Popen(
            SYSTEM.guardian_argv(f"{MARKER}={session_id}", session_id),
            stdin=subprocess.PIPE,
            start_new_session=True,
            env={},
        )

    def watch(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._tell(f"-{group}\n")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def _tell(self, line: str) -> None:
        stdin = self._process.stdin
        if stdin is not None:
            with contextlib.suppress(OSError):  # it died; the supervisor notices and starts another
                stdin.write(line.encode())
                stdin.flush()

    def close(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)


class Callbacks:
    """The functions that a child calls with what it says, and when it starts and ends."""

    def __init__(
        self,
        *,
        ready: Callable[["Child", Ready], None],
        results: Callable[["Child", OutcomeBatch], None],
        printed: Callable[["Child", Printed], None],
        progressed: Callable[["Child", Progressed], None],
        exited: Callable[["Child"], None],
        started: Callable[["Child"], None] = lambda _: None,
    ) -> None:
        self.ready = ready
        self.results = results
        self.printed = printed
        self.progressed = progressed
        self.exited = exited
        self.started = started


class Child(ABC):
    """A child process as the pool sees it: takes jobs, each with an index, and answers through the callbacks."""

    warm = True
    """Whether it takes another job after the first."""

    has_lifespan = False
    """Whether it has a lifespan to leave: then it is ended by SIGTERM and given a moment."""

    knows_types = False
    """Whether its `Ready` names all types that this worker's Python can run."""

    _count = 0

    def __init__(self, mark: str, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self._mark = mark
        Child._count += 1
        self._number = Child._count
        self._own_mark = f"{CHILD_MARKER}={mark}-{self._number}"
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._readers: dict[int, Callable[[bytes], None]] = {}
        self._outgoing = bytearray()
        self._writing_fd: int | None = None
        self._waits_to_write = False
        self.shared_state, self._shared_state_fd = SharedState.create()
        self.ready = False
        self.ended = False
        self.jobs_taken = 0
        self.returncode: int | None = None
        self.usage: Usage | None = None

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    @abstractmethod
    def send(self, batches: list[ChildBatch]) -> None: ...

    def cancel(self, index: int) -> None:
        """Ask the job to end by itself."""
        self.shared_state.cancel(index)

    def terminate(self) -> None:
        """Ask politely: SIGTERM to the whole group."""
        if self._process is not None:
            SYSTEM.signal_group(self._process.pid, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the whole group; what the job started goes with it."""
        if self._process is not None:
            SYSTEM.kill_group(self._process.pid)

    def end(self) -> None:
        """Kill it now and wait for its end."""
        self.kill()
        self._reap(block=True)
        self._gone()

    def poll(self) -> None:
        """Notice the death of a child whose pipe stays open because a grandchild holds its other end."""
        if not self.ended and self._process is not None and self._reap(block=False):
            for fd in list(self._readers):
                self._drain(fd)
            self._gone()

    # ── starting ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _spawn(
        self,
        argv: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        pass_fds: Sequence[int],
        environ: Mapping[str, str],
    ) -> None:
        with SYSTEM.marked(self._mark, self._number):
            self._process = subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=tuple(pass_fds),
                start_new_session=True,
                env={
                    **without_secrets(os.environ),
                    **environ,
                    MARKER: self._mark,
                    CHILD_MARKER: self._own_mark.partition("=")[2],
                },
            )
        self._callbacks.started(self)

    @contextlib.contextmanager
    def _starting(self) -> Iterator[contextlib.ExitStack]:
        """Surround the start of the process: afterwards the stack closes the child's ends of all pipes, and when the start
        fails nothing stays open."""
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, self._shared_state_fd)
            try:
                yield stack
            except BaseException:
                for fd in list(self._readers):
                    self._unwatch(fd)
                self._close()
                self.shared_state.close()
                raise

    def _pipe_from_child(self, take: Callable[[bytes], None], stack: contextlib.ExitStack) -> int:
        """Make a pipe whose contents reach `take`. Return the end for the child."""
        ours, theirs = os.pipe()
        stack.callback(os.close, theirs)
        os.set_blocking(ours, False)
        self._watch(ours, take)
        return theirs

    def _watch(self, fd: int, take: Callable[[bytes], None]) -> None:
        self._readers[fd] = take
        self._loop.add_reader(fd, self._readable, fd)

    # ── reading and writing ────────────────────────────────────────────────────────────────────────────────────────

    def _readable(self, fd: int) -> None:
        if self._read(fd) != 0:
            return
        self._unwatch(fd)
        if self._ends_with(fd):
            self._reap(block=True)
            for other in list(self._readers):
                self._drain(other)
            self._gone()

    def _read(self, fd: int) -> int | None:
        """Take what can be read at once. Return its size: 0 at the end of the pipe, None when there is nothing now."""
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return None
        except OSError:
            return 0
        if data:
            try:
                self._readers[fd](data)
            except ValueError:  # DecodeError is one: what a broken child writes must not break us
                self.kill()
        return len(data)

    def _drain(self, fd: int) -> None:
        """Take what a pipe holds now. Reading until it is empty could last for ever: a job may have left a process behind
        that writes on and on."""
        left = SYSTEM.waiting_bytes(fd) if fd in self._readers else 0
        while left > 0 and fd in self._readers and (size := self._read(fd)):
            left -= size

    def _ends_with(self, fd: int) -> bool:
        """Return whether the end of this pipe means the end of the process."""
        return True

    def _write(self, fd: int, data: bytes) -> None:
        """Send without waiting; what does not fit now goes out when the pipe has room."""
        if not self._outgoing:
            try:
                data = data[os.write(fd, data) :]
            except OSError:  # the pipe is full, or its reader is gone: `_flush_out` sees which
                pass
            else:
                if not data:
                    return
        waits = bool(self._outgoing)
        self._outgoing += data
        if not waits:
            self._writing_fd = fd
            self._flush_out()

    def _flush_out(self) -> None:
        fd = self._writing_fd
        if fd is None:
            return
        try:
            while self._outgoing:
                del self._outgoing[: os.write(fd, self._outgoing)]
        except BlockingIOError:
            self._waits_to_write = True
            self._loop.add_writer(fd, self._flush_out)
            return
        except OSError:  # it is gone; the reader finds out and gives the jobs back
            self._outgoing.clear()
        if self._waits_to_write:
            self._waits_to_write = False
            self._loop.remove_writer(fd)
        self._written()

    def _written(self) -> None:  # noqa: B027 - most children have nothing to do then
        """Called when the pipe has taken what it had no room for at first."""

    # ── ending ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _reap(self, *, block: bool) -> bool:
        """Collect the exit status. Return False when the process still runs."""
        if self.returncode is not None or self._process is None:
            return True
        if block:
            self.kill()
        ended = SYSTEM.wait(self._process.pid, block=block)
        if ended is None:
            return False
        self.returncode, self.usage = ended
        self._process.returncode = self.returncode
        return True

    def _unwatch(self, fd: int) -> None:
        if self._readers.pop(fd, None) is not None:
            self._loop.remove_reader(fd)
            self._close_fd(fd)

    def _close_fd(self, fd: int) -> None:
        with contextlib.suppress(OSError):
            os.close(fd)

    def _gone(self) -> None:
        if self.ended:
            return
        self.ended = True
        if self._waits_to_write and self._writing_fd is not None:
            self._loop.remove_writer(self._writing_fd)
        self.kill()  # what it started goes with it,
        SYSTEM.end_orphans(self._own_mark, self._mark, self._number)  # also what left its group
        for fd in list(self._readers):
            self._unwatch(fd)
        self._callbacks.exited(self)
        self._close()
        self.shared_state.close()

    def _close(self) -> None:  # noqa: B027 - most children opened nothing else
        """Close what a subclass opened besides the pipes."""


class PythonChild(Child):
    """A warm Python process that runs tasks of the user's app and the built-in types."""

    knows_types = True

    def __init__(
        self,
        mark: str,
        callbacks: Callbacks,
        *,
        app: str | None,
        max_result_bytes: int,
        concurrency: int = 0,
        access: Access = Access(),  # noqa: B008 - it is frozen
    ) -> None:
        super().__init__(mark, callbacks)
        self._unpacker = Unpacker()
        self._told_garbage = False
        self._unreported: set[int] = set()
        self._concurrent = concurrency > 0
        self._fd = -1
        self._socket: socket.socket | None = None
        parent, self._lifeline = SYSTEM.lifeline()
        argv = ["--parent", parent, "--max-result", str(max_result_bytes)]
        argv += ["--concurrency", str(concurrency)]
        if app is not None:
            argv += ["--app", app]
        with self._starting() as stack:
            self._start(argv, stack)
        self._watch(self._fd, self._said)
        self._write(self._fd, pack(access))

    def _start(self, options: list[str], stack: contextlib.ExitStack) -> None:
        self._socket, theirs = socket.socketpair()
        stack.callback(theirs.close)
        self._socket.setblocking(False)
        self._fd = self._socket.fileno()
        out = self._pipe_from_child(self._stray("stdout"), stack)
        err = self._pipe_from_child(self._stray("stderr"), stack)
        self._stray_fds = tuple(self._readers)
        self._strays_wait = SYSTEM.input_poll(self._stray_fds)
        argv = [sys.executable, "-m", "stoker.executors.child", "--fd", str(theirs.fileno())]
        self._spawn(
            [*argv, "--shared-state", str(self._shared_state_fd), *options],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            pass_fds=(theirs.fileno(), self._shared_state_fd, *self._lifeline),
            environ={"PYTHONUNBUFFERED": "1"},
        )

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def send(self, batches: list[ChildBatch]) -> None:
        for batch in batches:
            self.jobs_taken += len(batch.ids)
            self._unreported.update(range(batch.first, batch.first + len(batch.ids)))
        self._write(self._fd, b"".join(map(pack, batches)))

    def cancel(self, index: int) -> None:
        if self._concurrent:
            self._write(self._fd, pack(CancelJob(index)))
        else:
            super().cancel(index)

    def _ends_with(self, fd: int) -> bool:
        return fd == self._fd

    def _close_fd(self, fd: int) -> None:
        if fd == self._fd:
            self._close()
        else:
            super()._close_fd(fd)

    def _said(self, data: bytes) -> None:
        for body in self._unpacker.feed(data):
            match message := FROM_CHILD.decode(body):
                case OutcomeBatch():
                    message.check()
                    if self._strays_wait(0):  # what these jobs wrote there is still theirs
                        for fd in self._stray_fds:
                            self._drain(fd)
                    self._unreported.difference_update(message.indexes, [one.index for one in message.others])
                    self._callbacks.results(self, message)
                case Printed():
                    self._callbacks.printed(self, message)
                case Progressed():
                    self._callbacks.progressed(self, message)
                case Ready():
                    self.ready = message.error is None
                    self.has_lifespan = message.lifespan
                    self._callbacks.ready(self, message)
        if self._unpacker.skipped and not self._told_garbage:
            self._told_garbage = True
            log.warning("child_wrote_garbage", pid=self.pid)

    def _stray(self, stream: Stream) -> Callable[[bytes], None]:
        """Return a function for output that bypassed Python's streams. It is attributed to the job that started last
        until that job is reported, and after that written to the worker's log."""

        def take(data: bytes) -> None:
            index, _, _ = self.shared_state.running()
            if index in self._unreported:
                self._callbacks.printed(self, Printed(index, stream, data))
            else:
                put(sys.stderr, data)

        return take
