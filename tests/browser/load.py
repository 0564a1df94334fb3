"""Jobs at a steady rate, from a thread beside the browser."""

import threading
import time
from typing import Any, Self

import httpx


class Load:
    """So many jobs a second in batches, until its end; quick ones that no process is started for."""

    def __init__(self, url: str, per_second: int, batches_per_second: int = 5) -> None:
        self._url = url
        self._size = per_second // batches_per_second
        self._pause = 1 / batches_per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.submitted = 0
        self.refused = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        batch: dict[str, Any] = {"jobs": [{"type": "echo", "payload": {"n": n}} for n in range(self._size)]}
        with httpx.Client(base_url=self._url, timeout=30) as http:
            due = time.monotonic()
            while not self._stop.is_set():
                answer = http.post("/jobs/batch", json=batch)
                if answer.is_success:
                    self.submitted += self._size
                else:
                    self.refused += self._size
                due += self._pause
                self._stop.wait(max(0.0, due - time.monotonic()))
