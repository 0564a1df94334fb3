"""A program on a pseudo-terminal of a given size: what it paints, keys pressed, Ctrl-C."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """A process on a pseudo-terminal and all that it painted."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self._painted = b""

    @property
    def raw(self) -> str:
        return self._painted.decode(errors="replace")

    @property
    def text(self) -> str:
        """What was painted, without colours and other control sequences."""
        return _CONTROL.sub("", self.raw).replace("\r\n", "\n")

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    def until(self, wanted: str | Callable[[str], bool], within: float = 30.0) -> str:
        """Read until a text is there, or until this is true of all text."""
        deadline = time.monotonic() + within
        seen = wanted if callable(wanted) else lambda text: wanted in text
        while not seen(self.text):
            assert time.monotonic() < deadline, self.text[-3000:]
            self._look()
        return self.text

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def exit_code(self, within: float = 20.0) -> int:
        """How the process ended. A terminal that nobody reads is full at some point, and who paints on it then waits."""
        deadline = time.monotonic() + within
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text[-3000:]
            self._look()
        while self._look(0):
            pass
        return self.process.returncode

    def _look(self, seconds: float = 0.2) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        with contextlib.suppress(OSError):  # nobody has the other end any more
            piece = os.read(self._master, 65536)
            self._painted += piece
            return bool(piece)
        return False


def _own_terminal() -> None:
    """The terminal is this session's, so that Ctrl-C on it is a signal; whoever began in the background ignores those."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def on_a_terminal(
    argv: Sequence[object],
    env: Mapping[str, str],
    *,
    folder: Path | None = None,
    columns: int = 80,
    rows: int = 30,
) -> Iterator[Screen]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    plain = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [str(word) for word in argv],
        env={**plain, "TERM": "xterm-256color"},
        cwd=folder,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=_own_terminal,
    )
    os.close(slave)
    try:
        yield Screen(process, master)
    finally:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        process.kill()
        process.wait()
        os.close(master)
