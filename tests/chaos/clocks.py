"""Clocks that can be set, one for each process: a few lines of C in front of libc (`clock.c`).

libfaketime would do the same and more. With it `time.sleep` fails and threads wait for each other for so long that a
coordinator does a tenth of its work, so what a run would measure is libfaketime. The monotonic clock stays what it is:
nobody can set that one.
"""

import functools
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path


@functools.cache
def library() -> str | None:
    """The compiled library; None where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    folder = Path(tempfile.mkdtemp(prefix="stoker-clock-"))
    made = folder / "clock.so"
    source = Path(__file__).with_name("clock.c")
    argv = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-o", str(made), str(source), "-ldl"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return str(made) if done.returncode == 0 else None


class Clock:
    """The time of day of one process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._path.write_bytes(bytes(8))
        self.offset = 0.0
        self.past = [(time.monotonic(), 0.0)]
        """Since when, by the monotonic clock, it was how far ahead."""

    def set(self, offset: float) -> None:
        """So many seconds ahead of the true time from now on, or behind it."""
        with self._path.open("r+b", buffering=0) as file:  # in place: whoever goes by it has mapped it
            file.write(struct.pack("=q", int(offset)))
        self.offset = offset
        self.past.append((time.monotonic(), offset))

    @property
    def environment(self) -> dict[str, str]:
        """What a process is started with so that it goes by this clock."""
        made = library()
        return {} if made is None else {"LD_PRELOAD": made, "CHAOS_CLOCK": str(self._path)}
