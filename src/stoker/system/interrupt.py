"""Raises an exception in the main thread after a time, also while it waits in a system call.

Where there are interval timers (POSIX), a signal interrupts what the thread waits for. Elsewhere a small thread asks Python
to raise the exception, which happens when the main thread next runs Python code.
"""

import ctypes
import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupt:
    """Raises `error` inside its `with` block after `seconds`; only for the main thread."""

    def __init__(self, seconds: float, error: type[Exception]) -> None:
        self._seconds = seconds
        self._error = error
        self._before: Any = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> None:
        if hasattr(signal, "setitimer"):
            self._before = signal.signal(signal.SIGALRM, self._raise)
            signal.setitimer(signal.ITIMER_REAL, self._seconds)
            return
        thread = threading.get_ident()
        self._timer = threading.Timer(self._seconds, self._ask, (thread,))
        self._timer.daemon = True
        self._timer.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            return
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        raise self._error(self._seconds)

    def _ask(self, thread: int) -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(self._error))
