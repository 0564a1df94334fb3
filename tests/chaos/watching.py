"""When the processes of jobs ended that did not come to their own end: the kernel's word, in the side-effect log.

A job that is killed cannot write that down. So whoever starts is looked up here, and the kernel tells when its process is
gone.
"""

import contextlib
import os
import selectors
import threading
import time
from pathlib import Path
from typing import Final

import msgspec

from tests.checkers.history import Effect

LOOK_SECONDS: Final = 0.02
_decode: Final = msgspec.json.Decoder(Effect).decode


class Watcher(threading.Thread):
    """Follows the side-effect log; `deaths` has the end of every process that wrote something there."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._path = path
        self._asked_to_stop = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._seen: set[str] = set()
        self.deaths: dict[str, float] = {}
        """Process id → when it was seen to be gone. Process ids do not come again so soon."""
        self.start()

    def run(self) -> None:
        position = 0
        while not self._asked_to_stop.is_set():
            position = self._read_from(position)
            if not self._selector.get_map():
                time.sleep(LOOK_SECONDS)
                continue
            for key, _ in self._selector.select(LOOK_SECONDS):
                self.deaths[key.data] = time.monotonic()
                self._selector.unregister(key.fileobj)
                os.close(key.fd)

    def _read_from(self, position: int) -> int:
        if not self._path.exists():
            return 0
        with self._path.open("rb") as log:
            log.seek(position)
            data = log.read()
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.splitlines():
            self._watch(_decode(line).run)
        return position + len(whole)

    def _watch(self, pid: str) -> None:
        if pid in self._seen:
            return
        self._seen.add(pid)
        try:
            self._selector.register(os.pidfd_open(int(pid)), selectors.EVENT_READ, pid)
        except OSError:
            self.deaths[pid] = time.monotonic()

    def stop(self) -> None:
        self._asked_to_stop.set()
        self.join()
        for key in list(self._selector.get_map().values()):
            with contextlib.suppress(OSError):
                os.close(key.fd)
        self._selector.close()


LATE_SECONDS: Final = 0.5
"""The watcher may be so late: it is a thread among many on a busy machine."""


def with_kills(effects: list[Effect], deaths: dict[str, float]) -> list[Effect]:
    """The log with a line for each run that was killed: at the death of its process, or, where the watcher was late, just
    before the job started elsewhere."""
    open_runs: dict[tuple[str, int, str], Effect] = {}
    starts: dict[str, list[float]] = {}
    for effect in effects:
        key = (effect.job, effect.claim, effect.run)
        if effect.what == "start":
            open_runs[key] = effect
            starts.setdefault(effect.job, []).append(effect.at)
        else:
            open_runs.pop(key, None)
    killed = [
        msgspec.structs.replace(start, at=_death(start, deaths[start.run], starts[start.job]), what="killed")
        for start in open_runs.values()
        if start.run in deaths
    ]
    return sorted(effects + killed, key=lambda effect: effect.at)


def _death(start: Effect, seen: float, starts: list[float]) -> float:
    following = [at for at in starts if start.at < at < seen and seen - at <= LATE_SECONDS]
    return min(following, default=seen)
