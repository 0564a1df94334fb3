"""The load of a chaos run: jobs of all kinds at a steady rate, and people who cancel, replay and look."""

import json
import random
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from typing import Any, Final

from tests.chaos.clients import Crowd
from tests.checkers.history import Answer, Op

LONGEST_SECONDS: Final = 8.0
Change = Callable[[dict[str, Any], random.Random], None]


def mixture(number: int) -> dict[str, Any]:
    """Most jobs are short; some are slow, fail at first, wait, talk, have a payload of megabytes, run into their time
    limit, fork, or crash their process: once, or always, and then three crashes end what has attempts left."""
    dice = random.Random(number)
    roll = dice.random()
    job: dict[str, Any] = {"type": "mark", "payload": {}, "priority": dice.choice((0, 1, 1, 2))}
    for below, change in CHANGES:
        if roll < below:
            change(job, dice)
            break
    return job


def _take(shortest: float, longest: float) -> Change:
    return lambda job, dice: job["payload"].update(seconds=dice.uniform(shortest, longest))


CHANGES: Final[list[tuple[float, Change]]] = [
    (0.003, _take(4, LONGEST_SECONDS)),
    (0.03, _take(0.5, 1.5)),
    (0.15, _take(0.02, 0.2)),
    (0.18, lambda job, dice: job["payload"].update(fails=dice.choice((1, 2, 10)))),
    (0.20, lambda job, dice: job.update(delay_sec=round(dice.uniform(0.5, 3), 2))),
    (0.22, lambda job, _: job["payload"].update(lines=20)),
    (0.222, lambda job, _: job.update(payload={"seconds": 60}, timeout_sec=1.5, max_attempts=1)),
    (
        0.225,
        lambda job, dice: job.update(
            type="crash", payload={"crashes": dice.choice((1, 100))}, max_attempts=8
        ),
    ),
    (
        0.233,
        lambda job, dice: job.update(
            type="fork", payload={"how": dice.choice(("returns", "fails", "works"))}
        ),
    ),
    (0.235, lambda job, dice: job["payload"].update(ballast="x" * dice.randint(100_000, 3_000_000))),
]
"""How often a job is not just a short one, as a limit of a number from 0 to 1, and what is changed then."""


def large(_: int) -> dict[str, Any]:
    """A payload just below the limit of 4 MiB."""
    return {"type": "mark", "payload": {"ballast": "x" * 4_000_000}, "priority": 2}


def has_a_key(number: int) -> bool:
    """One in ten is sent without a key, once: when its answer is lost it may be stored or not."""
    return number % 10 != 3


class Meddler(threading.Thread):
    """Somebody who asks for jobs that were submitted a while ago, and cancels or replays a few of them."""

    def __init__(self, crowd: Crowd, name: str, seed: int, per_second: float = 6.0) -> None:
        super().__init__(daemon=True)
        self.ops: list[Op] = []
        self._crowd = crowd
        self._client = name
        self._dice = random.Random(seed)
        self._pause = 1 / per_second
        self._asked_to_stop = threading.Event()
        self.start()

    def stop(self) -> None:
        self._asked_to_stop.set()
        self.join()

    def run(self) -> None:
        while not self._asked_to_stop.wait(self._pause):
            ids = list(self._crowd.ids.values())[-400:]
            if ids:
                self._meddle(self._dice.choice(ids))

    def _meddle(self, id: str) -> None:
        roll = self._dice.random()
        if roll < 0.25:
            self._ask("cancel", id, "POST", f"/jobs/{id}/cancel")
        elif roll < 0.40:
            self._ask("replay", id, "POST", f"/jobs/{id}/retry")
        else:
            self._ask("get", id, "GET", f"/jobs/{id}")

    def _ask(self, what: Any, id: str, method: str, path: str) -> None:
        called = time.monotonic()
        connection = HTTPConnection("127.0.0.1", self._dice.choice(self._crowd.ports), timeout=15)
        answer: Answer = "unknown"
        document: dict[str, Any] = {}
        try:
            connection.request(method, path)
            response = connection.getresponse()
            document = json.loads(response.read())
            if response.status < 500:
                answer = "ok" if response.status < 300 else "refused"
        except (OSError, HTTPException, ValueError):
            pass  # whether it was done is unknown
        finally:
            connection.close()
        told = (
            (document.get("status"), document.get("claim_id"), document.get("result"))
            if answer == "ok"
            else ()
        )
        self.ops.append(Op(what, self._client, called, time.monotonic(), answer, [], [id], *told))
