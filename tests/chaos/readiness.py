"""A load balancer in a chaos run: asks every coordinator over and over whether it is ready, and keeps the answers."""

import http.client
import threading
import time
from collections.abc import Sequence
from typing import Final

from tests.checkers.history import Ready

EVERY_SECONDS: Final = 0.3
ANSWER_SECONDS: Final = 8.0


class Balancer:
    """Asks from now on until `stop`, each coordinator on a thread of its own."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.answers: list[Ready] = []
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._watch, args=(f"c{index}", port), daemon=True)
            for index, port in enumerate(ports)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, name: str, port: int) -> None:
        while not self._over.wait(EVERY_SECONDS):
            asked = time.monotonic()
            status = _status(port)
            if status in (200, 503):
                self.answers.append(Ready(asked, time.monotonic(), name, status == 200))


def _status(port: int) -> int | None:
    """The status of `/ready`; None where there was no answer."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
    try:
        line.request("GET", "/ready")
        return line.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        line.close()
