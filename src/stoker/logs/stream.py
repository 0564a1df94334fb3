"""Where the lines of a log go, whatever becomes of that place.

A full disk, or a reader that went away, must not reach those who log: they hold jobs. So a write never raises. What cannot
be written is dropped and counted, and once writing works again a line says how many were lost.

Everything goes to the file descriptor itself. A stream of Python's keeps what it could not write and fails with it at the
next write, which may be that of other code, and at the latest when the process ends, whose exit code it then changes.
"""

import os
import threading
from collections.abc import Callable
from typing import TextIO


class LogStream:
    """A stream for whole lines, to which writing never fails."""

    def __init__(self, stream: TextIO | None, lost_line: Callable[[int], str]) -> None:
        self._stream = stream
        self._lost_line = lost_line
        self._lost = 0
        self._torn = b""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        with self._lock:
            if self._lost and not self._put(self._lost_line(self._lost)):
                self._lost = 0
            if self._lost:
                self._lost += text.count("\n")
            else:
                self._lost = self._put(text)
        return len(text)

    def flush(self) -> None:
        """Nothing is kept back."""

    def _put(self, text: str) -> int:
        """Return how many lines could not be written. A line that was written in part is ended before the next one."""
        data = self._torn + text.encode(errors="backslashreplace")
        written = put(self._stream, data)
        lost = data.count(b"\n", max(written, len(self._torn)))
        if written:
            self._torn = b"" if data[written - 1] == ord("\n") else b"\n"
        return lost


def put(stream: TextIO | None, data: bytes) -> int:
    """Write at once, past the buffer of the stream. How many bytes were written is all that tells of a failure."""
    written = 0
    try:
        fd = _descriptor(stream)
        while fd is not None and written < len(data):
            written += os.write(fd, data[written:])
        if fd is None and stream is not None:
            stream.write(data.decode(errors="backslashreplace"))
            stream.flush()
            written = len(data)
    except (OSError, ValueError):  # ValueError: it was closed
        pass
    return written


def _descriptor(stream: TextIO | None) -> int | None:
    """None for what lives in memory alone."""
    try:
        return None if stream is None else stream.fileno()
    except OSError:  # io.UnsupportedOperation
        return None
