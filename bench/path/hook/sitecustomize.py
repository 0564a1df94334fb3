"""Write down which functions of the project every Python process calls, in the phase that `bench.path.trace` has set.

Python imports this file by itself when its folder is in `PYTHONPATH`; without `PATH_TRACE_FOLDER` it does nothing. Each
process appends one line for the first call of a function in a phase to a file of its own, so that nothing is lost when the
process is killed.
"""

import json
import mmap
import os
import sys
import threading
from types import CodeType, FrameType
from typing import Any, Final

FOLDER: Final = "PATH_TRACE_FOLDER"
SOURCE: Final = "PATH_TRACE_SOURCE"
PHASE_FILE: Final = "phase"


def _install(folder: str, source: str) -> None:
    """Trace this process: calls of code whose file is below `source`."""
    with open(os.path.join(folder, PHASE_FILE), "rb") as file:
        phase = mmap.mmap(file.fileno(), 1, prot=mmap.PROT_READ)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    calls = os.open(os.path.join(folder, f"{os.getpid()}.calls"), flags, 0o600)
    os.set_inheritable(calls, False)
    os.write(calls, json.dumps(sys.orig_argv).encode() + b"\n")
    seen: set[tuple[int, int]] = set()
    kept: list[CodeType] = []  # a code object that is freed would leave its number to another one

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        key = (phase[0], id(code))
        if key in seen:
            return
        seen.add(key)
        kept.append(code)
        if code.co_filename.startswith(source):
            os.write(calls, f"{key[0]}\t{code.co_filename[len(source) :]}\t{code.co_qualname}\n".encode())

    threading.setprofile(profile)
    sys.setprofile(profile)


if FOLDER in os.environ:
    _install(os.environ[FOLDER], os.environ[SOURCE])
