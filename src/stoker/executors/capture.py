"""What a job writes: `print`, `sys.stderr` and log records, each under the job that wrote it.

The text streams of the process are replaced by ones that know which job they are written for. What goes past them (a
C library, a subprocess) reaches the process's own file descriptors, which the supervisor reads and attributes to
the job that runs then. At most `LIMIT` bytes per job are passed on; the store of the output marks the cut.
"""

import io
import logging
import sys
from collections.abc import Callable
from typing import Final

from stoker.context import running_job
from stoker.wire.frames import Stream

LIMIT: Final = 1024 * 1024 + 1
"""One byte more than the coordinator keeps, so that it sees that there was more."""

Emit = Callable[[int, Stream, bytes], None]


class JobStream(io.TextIOBase):
    """A text stream that hands what is written to `emit`, with the index of the job that wrote it."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, stream: Stream, emit: Emit, outside: io.TextIOBase) -> None:
        self._stream = stream
        self._emit = emit
        self._outside = outside

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._outside.fileno()

    def write(self, text: str) -> int:
        job = running_job()
        if job is None:
            return self._outside.write(text)
        self._emit(job.index, self._stream, text.encode("utf-8", "backslashreplace"))
        return len(text)

    def flush(self) -> None:
        self._emit(-1, self._stream, b"")
        self._outside.flush()


class JobLogHandler(logging.Handler):
    """Passes log records on as lines of the stream `log`."""

    def __init__(self, emit: Emit) -> None:
        super().__init__()
        self._emit_line = emit
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        job = running_job()
        if job is None:
            return
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - a record that cannot be rendered must not fail the job that logged it
            self.handleError(record)
            return
        self._emit_line(job.index, "log", line.encode("utf-8", "backslashreplace") + b"\n")


def install(emit: Emit) -> None:
    """Capture this process's output from here on. Call it before the user's app is imported: what that sets up then
    writes here."""
    sys.stdout = JobStream("stdout", emit, sys.stdout)  # type: ignore[arg-type]
    sys.stderr = JobStream("stderr", emit, sys.stderr)  # type: ignore[arg-type]
    root = logging.getLogger()
    root.addHandler(JobLogHandler(emit))
    if root.level == logging.WARNING:
        root.setLevel(logging.INFO)
