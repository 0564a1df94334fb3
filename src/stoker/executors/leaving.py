"""How a child process ends: the child itself, and a copy of it that a task made with `os.fork()`.

A copy that comes back to our code has nothing to do here: the jobs, the pipe and the shared state belong to the process that
was forked. It leaves at once, with the exit code that a plain Python program would have had.

The child itself leaves by `os._exit` after its exit functions ran and its streams are flushed. The interpreter's own
way out would wait for every thread that a task left behind, and a job would hang with it.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
import traceback
from typing import Final, NoReturn

TERMINATED: Final = 128 + signal.SIGTERM
EXIT_FUNCTIONS_SECONDS: Final = 2.0
"""How long exit functions of the user's modules may take in a process that no supervisor kills."""


class Terminated(SystemExit):
    """The supervisor's SIGTERM, on its way through a job's `finally` blocks. A task cannot raise it by mistake."""

    def __init__(self) -> None:
        super().__init__(TERMINATED)


def terminate(*_: object) -> NoReturn:
    """The handler of SIGTERM: unwind the job, then end the process."""
    raise Terminated


def leave(code: int) -> NoReturn:
    """End this child now, whatever threads are left in it."""
    if code != TERMINATED:
        watch = threading.Timer(EXIT_FUNCTIONS_SECONDS, os._exit, (code,))
        watch.daemon = True
        watch.start()
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    _flush_streams()
    os._exit(code)


def leave_copy(error: BaseException | None = None) -> NoReturn:
    """End a forked copy that came back to our code; `error` is what the task raised in it."""
    code = exit_code(error)
    _flush_streams()
    os._exit(code)


def exit_code(error: BaseException | None) -> int:
    """Return the exit code of a Python program that ends like this, after printing what it would print."""
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        with contextlib.suppress(Exception):
            sys.stderr.write(f"{error.code}\n")
        return 1
    with contextlib.suppress(Exception):
        traceback.print_exception(error)
    return 1


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
