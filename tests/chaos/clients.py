"""Clients that submit and write down what they asked and what they were told.

A client that gets no answer, or one that leaves it open, asks the next coordinator with the same key, until it is told.
Where it has sent no key it leaves it at that.
"""

import hashlib
import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tests.checkers.history import Answer, Item, Op

ANSWER_SECONDS: Final = 20.0
PAUSE_SECONDS: Final = 0.05
LARGE_BYTES: Final = 10_000
"""Of larger bodies only a digest is written down."""

Spec = Callable[[int], dict[str, Any]]
"""The fields of the n-th job; its payload gets the marker."""
HasKey = Callable[[int], bool]
"""Whether the n-th job is sent under an idempotency key."""


def plain(_: int) -> dict[str, Any]:
    return {"type": "mark", "payload": {}}


def always(_: int) -> bool:
    return True


def never(_: int) -> bool:
    return False


class Crowd:
    """So many clients side by side; together they submit `jobs` jobs, at most `per_second` of them a second."""

    def __init__(
        self,
        ports: Sequence[int],
        jobs: int,
        *,
        clients: int = 6,
        per_second: float = float("inf"),
        spec: Spec = plain,
        keys: HasKey = always,
        name: str = "m",
    ) -> None:
        self.ports = list(ports)
        self.ops: list[Op] = []
        self.failures: list[str] = []
        """Every request that was not answered as it should be, in words."""
        self.ids: dict[str, str] = {}
        """What was promised: marker → job."""
        self._spec = spec
        self._keys = keys
        self._name = name
        self._numbers = iter(range(jobs))
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._interval = 1 / per_second
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(f"{name}-client-{index}",), daemon=True)
            for index in range(clients)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def markers(self) -> set[str]:
        """Of everything that was ever sent."""
        return {item.marker for op in self.ops for item in op.items}

    @property
    def done(self) -> bool:
        """Whether everything was submitted."""
        return not any(thread.is_alive() for thread in self._threads)

    def join(self, within: float = 600.0) -> None:
        deadline = time.monotonic() + within
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            assert not thread.is_alive(), f"not submitted within {within:g} s: {self.failures[-5:]}"

    def stop(self) -> None:
        """No further jobs; those under way are submitted to their end."""
        self._stopped.set()

    def _next(self) -> int | None:
        with self._lock:
            number = next(self._numbers, None)
        if number is None or self._stopped.is_set():
            return None
        self._stopped.wait(max(0.0, self._began + number * self._interval - time.monotonic()))
        return None if self._stopped.is_set() else number

    def _run(self, client: str) -> None:
        line = Line()
        try:
            while (number := self._next()) is not None:
                self._submit(client, line, number)
        finally:
            line.close()

    def _submit(self, client: str, line: "Line", number: int) -> None:
        marker = f"{self._name}{number}"
        fields = self._spec(number)
        fields["payload"] = {**fields["payload"], "marker": marker}
        body = json.dumps(fields)
        key = marker if self._keys(number) else None
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
        short = body if len(body) < LARGE_BYTES else hashlib.sha256(body.encode()).hexdigest()
        item = Item(marker, key, short, delay=float(fields.get("delay_sec", 0.0)))
        for port in self._turns(number):
            called = time.monotonic()
            answer, id, words = line.post(port, "/jobs", body, headers)
            answered = time.monotonic()
            self.ops.append(Op("submit", client, called, answered, answer, [item], [id] if id else []))
            if id is not None:
                self.ids[marker] = id
                return
            self.failures.append(f"{marker} at {port}: {words}")
            if key is None:
                return  # whether it was stored nobody knows, and asking again could store another
            time.sleep(PAUSE_SECONDS)

    def _turns(self, number: int) -> Iterator[int]:
        """Round robin by number; then whoever comes next."""
        return itertools.islice(itertools.cycle(self.ports), number % len(self.ports), None)


class Line:
    """Connections of one client, kept open."""

    def __init__(self) -> None:
        self._open: dict[int, http.client.HTTPConnection] = {}

    def post(
        self, port: int, path: str, body: str, headers: dict[str, str]
    ) -> tuple[Answer, str | None, str]:
        """What was answered, the id in it, and the answer in words."""
        connection = self._open.setdefault(
            port, http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
        )
        try:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            document = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            return "unknown", None, f"{type(error).__name__}: {error}"
        if response.status == 202:
            return "ok", document["id"], "202"
        words = f"{response.status} {document.get('detail')}"
        return ("unknown" if response.status >= 500 else "refused"), None, words

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
