"""Child processes as a supervisor sees them: start, watch, end. Nothing of a child survives its end.

Each child leads a process group and a session of its own, so that a signal reaches whatever it started. The kernel
ends it with the supervisor (parent-death signal), and the guardian ends what the kernel does not.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from stoker.executors.board import Board
from stoker.executors.pipe import READY, RESULTS, ChildJob, ChildResult, Ready, Unpacker, pack

MARKER: Final = "STOKER_WORKER_SESSION"
_GUARDIAN: Final = Path(__file__).with_name("guardian.py")


class Guardian:
    """The process that outlives us if we are killed; see `guardian.py`."""

    def __init__(self, session_id: str) -> None:
        # Isolated and without site-packages: it must start fast and depend on nothing.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_GUARDIAN), f"{MARKER}={session_id}"],
            stdin=subprocess.PIPE,
            start_new_session=True,
            env={},
        )

    def watch(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._tell(f"-{group}\n")

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


class PythonChild:
    """One warm Python process. Jobs go in by index, results come out through the callbacks."""

    def __init__(
        self,
        *,
        app: str | None,
        session_id: str,
        max_result_bytes: int,
        on_ready: Callable[["PythonChild", Ready], None],
        on_results: Callable[["PythonChild", list[ChildResult]], None],
        on_exit: Callable[["PythonChild"], None],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._on_ready = on_ready
        self._on_results = on_results
        self._on_exit = on_exit
        self._unpacker = Unpacker()
        self._outgoing = bytearray()
        self._loop = asyncio.get_running_loop()
        self.board, board_fd = Board.create()
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        argv = [sys.executable, "-m", "stoker.executors.child", "--fd", str(theirs.fileno())]
        argv += [
            "--board",
            str(board_fd),
            "--parent",
            str(os.getpid()),
            "--max-result",
            str(max_result_bytes),
        ]
        if app is not None:
            argv += ["--app", app]
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), board_fd),
                start_new_session=True,
                env={**(os.environ if environ is None else environ), MARKER: session_id},
            )
        finally:
            theirs.close()
            os.close(board_fd)
        self.ready = False
        self.ended = False
        self._loop.add_reader(self._socket, self._readable)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def send(self, jobs: list[ChildJob]) -> None:
        data = pack(jobs)
        if self._outgoing:
            self._outgoing += data
            return
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:  # it is gone; `_readable` finds out and gives the jobs back
            return
        if sent < len(data):
            self._outgoing += data[sent:]
            self._loop.add_writer(self._socket, self._writable)

    def _writable(self) -> None:
        try:
            sent = self._socket.send(self._outgoing)
        except BlockingIOError:
            return
        except OSError:
            sent = len(self._outgoing)
        del self._outgoing[:sent]
        if not self._outgoing:
            self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        try:
            data = self._socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._closed()
            return
        try:
            for message in self._unpacker.feed(data):
                self._message(message)
        except ValueError:  # what a broken child writes into its own pipe must not break us
            self.kill()

    def _message(self, message: bytes) -> None:
        if self.ready:
            self._on_results(self, RESULTS.decode(message))
        else:
            self.ready = True
            self._on_ready(self, READY.decode(message))

    def poll(self) -> None:
        """Notice a death that the pipe did not tell, because a grandchild holds its other end."""
        if not self.ended and self._process.poll() is not None:
            while self._pending():
                self._readable()
            self._closed()

    def _pending(self) -> bool:
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def _closed(self) -> None:
        if self.ended:
            return
        self.ended = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self.kill()
        self._process.wait()
        self._on_exit(self)
        self.board.close()

    def end(self) -> None:
        """Kill it now and see it gone."""
        self.kill()
        self._process.wait()
        self._closed()

    def terminate(self) -> None:
        """Ask politely: SIGTERM to the whole group."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the whole group; what the job started goes with it."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, number)
