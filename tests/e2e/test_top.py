"""`stoker top` against a real system: once for a pipe, and live on a terminal until Ctrl-C."""

import contextlib
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator

from tests.e2e.system import STOKER, Server, System


def test_off_a_terminal_it_prints_one_screen(system: System) -> None:
    server = system.serve()
    system.worker(server, name="seen-by-top")
    server.ended(server.submit(payload="x")["id"])
    done = system.run("top", "--url", server.url)
    assert done.returncode == 0, done.stderr
    assert "seen-by-top" in done.stdout
    assert "\x1b" not in done.stdout


def test_nobody_to_ask_is_told_with_the_usual_exit_code(system: System) -> None:
    done = system.run("top", "--once", "--url", "http://127.0.0.1:9")
    assert done.returncode == 3
    assert "cannot reach Stoker" in done.stderr


def test_on_a_terminal_it_goes_on_and_survives_a_coordinator_that_is_gone(system: System) -> None:
    server = system.serve()
    with on_a_terminal(system, server) as screen:
        screen.until("stoker top")
        server.submit(queue="new-queue")
        screen.until("new-queue")
        server.kill()
        screen.until("Trying again")
        screen.process.send_signal(signal.SIGINT)
        assert screen.exit_code() == 0


class Screen:
    """A process on a pseudo-terminal and all that it painted."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self._painted = b""

    def until(self, text: str, within: float = 20.0) -> None:
        deadline = time.monotonic() + within
        while text.encode() not in self._painted:
            assert time.monotonic() < deadline, self._painted[-2000:]
            self._look()

    def exit_code(self, within: float = 15.0) -> int:
        """How the process ended. A terminal that nobody reads is full at some point, and who paints on it then waits."""
        deadline = time.monotonic() + within
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self._painted[-2000:]
            self._look()
        return self.process.returncode

    def _look(self) -> None:
        if select.select([self._master], [], [], 0.2)[0]:
            with contextlib.suppress(OSError):  # nobody has the other end any more
                self._painted += os.read(self._master, 65536)


def _hear_interrupts() -> None:
    """Whoever runs in the background of a script ignores SIGINT, and its children begin like that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextlib.contextmanager
def on_a_terminal(system: System, server: Server) -> Iterator[Screen]:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [str(STOKER), "top", "--every", "0.1", "--url", server.url],
        env=system.environ({"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "30"}),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=_hear_interrupts,
    )
    os.close(slave)
    try:
        yield Screen(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)
