"""Raises an exception in a thread after a time.

In the main thread, where there are interval timers (POSIX), a signal is used, which also interrupts system calls. Otherwise
a timer thread asks Python to raise the exception, which happens when the other thread next runs Python code.
"""

import ctypes
import signal
import threading
from types import FrameType, TracebackType
from typing import Any


def raise_in_thread(thread: int, error: type[BaseException] | None) -> None:
    """Raise `error` in the thread with this identifier when it next runs Python code. None takes back what has not been
    raised yet."""
    raised = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)


class Interrupt:
    """Raises `error` inside its `with` block after `seconds`."""

    def __init__(self, seconds: float, error: type[Exception]) -> None:
        self._seconds = seconds
        self._error = error
        self._before: Any = None
        self._timer: threading.Timer | None = None
        self._thread = 0
        self._lock = threading.Lock()
        self._over = False

    def __enter__(self) -> None:
        if hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGALRM, self._raise)
            signal.setitimer(signal.ITIMER_REAL, self._seconds)
            return
        self._thread = threading.get_ident()
        self._timer = threading.Timer(self._seconds, self._ask)
        self._timer.daemon = True
        self._timer.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            with self._lock:
                self._over = True
                raise_in_thread(self._thread, None)
            return
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        raise self._error(self._seconds)

    def _ask(self) -> None:
        with self._lock:
            if not self._over:
                raise_in_thread(self._thread, self._error)
