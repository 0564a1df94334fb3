"""How much memory the coordinators take during a run."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Final

from tests.e2e.system import resident_kb

LOOK_SECONDS: Final = 0.2


class MemoryWatcher(threading.Thread):
    """Looks at the processes a few times a second; `peak_kb` is the most that one of them had."""

    def __init__(self, pids: Callable[[], Sequence[int]]) -> None:
        super().__init__(daemon=True)
        self.peak_kb = 0
        self._pids = pids
        self._asked_to_stop = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._asked_to_stop.wait(LOOK_SECONDS):
            for pid in self._pids():
                with contextlib.suppress(OSError, AssertionError):  # it ended meanwhile
                    self.peak_kb = max(self.peak_kb, resident_kb(pid))

    def stop(self) -> None:
        self._asked_to_stop.set()
        self.join()
