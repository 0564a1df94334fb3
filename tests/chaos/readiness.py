"""What coordinators said about themselves during a run: whether they are ready, and how much memory they took.

`/ready` promises that a job can be stored now. Each answer is compared with what clients were told at the same time: a
coordinator that refuses every submission and still calls itself ready sends a load balancer's traffic into the void.
"""

import contextlib
import http.client
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from tests.checkers.history import Violation
from tests.e2e.system import resident_kb

POLL_SECONDS: Final = 0.25
JUDGED_SECONDS: Final = 3.0
"""So long may `/ready` need to notice that nothing can be stored."""
ENOUGH_REFUSALS: Final = 3


class Poll(NamedTuple):
    """One answer of `/ready`."""

    at: float
    port: int
    ready: bool


class Told(NamedTuple):
    """What a client was told about a submission: stored, or 503."""

    at: float
    port: int
    stored: bool


def lies(polls: Iterable[Poll], told: Iterable[Told]) -> list[Violation]:
    """Return the answers "ready" of coordinators that stored nothing and refused at least a few in the seconds before."""
    by_port: dict[int, list[Told]] = {}
    for answer in sorted(told):
        by_port.setdefault(answer.port, []).append(answer)
    found = []
    for poll in polls:
        around = _between(by_port.get(poll.port, []), poll.at - JUDGED_SECONDS, poll.at + POLL_SECONDS)
        refusals = sum(not answer.stored for answer in around)
        if poll.ready and refusals >= ENOUGH_REFUSALS and refusals == len(around):
            text = (
                f"port {poll.port} said ready at {poll.at:.1f} after {refusals} refusals and nothing stored"
            )
            found.append(Violation("ready_means_a_job_can_be_stored", "-", text))
    return found


def _between(answers: Sequence[Told], begins: float, ends: float) -> Sequence[Told]:
    times = [answer.at for answer in answers]
    return answers[bisect_left(times, begins) : bisect_right(times, ends)]


class ReadyWatcher(threading.Thread):
    """Asks every coordinator whether it is ready and looks at its memory, a few times a second."""

    def __init__(self, ports: Sequence[int], pids: Callable[[], Sequence[int]]) -> None:
        super().__init__(daemon=True)
        self.polls: list[Poll] = []
        self.peak_rss_kb = 0
        self._ports = list(ports)
        self._pids = pids
        self._asked_to_stop = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._asked_to_stop.wait(POLL_SECONDS):
            for port in self._ports:
                ready = is_ready(port)
                if ready is not None:
                    self.polls.append(Poll(time.monotonic(), port, ready))
            for pid in self._pids():
                with contextlib.suppress(OSError, AssertionError):  # it ended meanwhile
                    self.peak_rss_kb = max(self.peak_rss_kb, resident_kb(pid))

    def stop(self) -> None:
        self._asked_to_stop.set()
        self.join()


def is_ready(port: int) -> bool | None:
    """Return what `/ready` answers there; None when nothing answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
