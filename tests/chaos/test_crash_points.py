"""A process dies at the worst moments there are, one by one, on both stores, and nobody is the worse for it.

`make test` visits the points that matter most, `make crash-points` all of them.
"""

import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from stoker.ids import new_id
from tests.chaos.books import Books, PostgresBooks, SqliteBooks
from tests.chaos.clients import Crowd
from tests.chaos.fleet import Fleet
from tests.chaos.points import OTHERS, VERBS, Point, points
from tests.chaos.watching import Watcher, with_kills
from tests.checkers.history import Fault, History, Rules
from tests.checkers.invariants import check
from tests.e2e.system import FINAL, Program, eventually
from tests.support.servers import databases

LEASE_SECONDS: Final = 3.0
JOBS: Final = 40
WHOLE: Final = bool(os.environ.get("CRASH_POINTS"))
ALL: Final = [f"{when} the commit of {verb}" for verb in VERBS for when in ("before", "after")] + list(OTHERS)
FIRST: Final = ["after the commit of insert", "before a report is acknowledged"]
"""Those of every run of the tests."""
COUNTS: Final = {"open_session": 1, "replay": 1, "cancel": 1, "promote": 1, "started": 1, "renew": 2}
"""How often a point is passed before it kills; 3 times where nothing is said."""

pytestmark = pytest.mark.slow


class Rig(Fleet):
    """One coordinator and one worker, each of which is started again for every test."""

    def __init__(self, folder: Path, store: str) -> None:
        super().__init__(
            folder,
            databases.url(folder) if store == "postgres" else None,
            coordinators=1,
            WORKER_HEARTBEAT_TIMEOUT_SEC=LEASE_SECONDS,
        )
        self.store = store
        self.books: Books = (
            PostgresBooks(self.database) if store == "postgres" else SqliteBooks(folder / "stoker.db")
        )
        self.watcher = Watcher(self.effects_path)
        self.start_all(workers=1, threads=3)
        self.books.watch()
        job = self.any().submit("mark", {"marker": "dead", "fails": 99}, max_attempts=1)
        self.dead_letter: str = job["id"]
        assert self.any().ended(self.dead_letter)["status"] == "failed"

    def close(self) -> None:
        super().close()
        self.watcher.stop()

    def arm(self, point: Point, count: int) -> Program | None:
        """Start the process that shall die there; None when it is dead already."""
        environment = point.environment(count)
        if point.role == "worker":
            self.workers[0].kill()
            self.workers[0] = self._member(0, 3, **environment)
            return self.workers[0]
        self.coordinators[0].kill()
        self.coordinators[0].close()
        try:
            self.coordinators[0] = self._coordinator(self.ports[0], **environment)
        except AssertionError:  # before it could answer
            return None
        return self.coordinators[0]

    def mend(self, point: Point) -> None:
        if point.role == "worker":
            self.workers[0] = self._member(0, 3)
            self.wait_for(self.workers)
        else:
            self.restart_coordinator(0)

    def history(self, crowd: Crowd, began: float) -> History:
        kept = self.books.read()
        sent = crowd.markers
        mine = {job.id for job in kept.jobs if job.marker in sent}
        ended = time.monotonic()
        return History(
            rules=Rules(lease=LEASE_SECONDS, backoff_base=1.0, clock_slack=0.1),
            ops=crowd.ops,
            effects=[
                effect for effect in with_kills(self.effects(), self.watcher.deaths) if effect.job in mine
            ],
            journal=[change for change in kept.journal if change.job in mine],
            jobs=[job for job in kept.jobs if job.id in mine],
            attempts=[attempt for attempt in kept.attempts if attempt.job in mine],
            faults=[Fault("crash point", "*", began, ended)],
            quiet_from=began,
            ended=ended,
        )


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp(f"crash-{request.param}")
    with Rig(folder, request.param) as rig:
        yield rig


@pytest.mark.parametrize("name", ALL if WHOLE else FIRST)
def test_a_process_that_dies_there_loses_and_doubles_nothing(rig: Rig, name: str) -> None:
    point = points(rig.store)[name]
    began = time.monotonic()
    program = rig.arm(point, COUNTS.get(name.split()[-1], 3))
    crowd = Crowd(rig.ports, JOBS, clients=3, spec=_all_sorts, name=f"{name.replace(' ', '-')}-")
    unwanted = threading.Thread(target=_cancel_and_replay, args=(rig,))
    unwanted.start()
    if program is not None:
        eventually(lambda: not program.running, 30, f"the {point.role} to die {name}")
        assert program.exit_code() == -signal.SIGKILL
    rig.mend(point)
    unwanted.join()
    crowd.join(60)
    rig.until_all_is_final(60)
    history = rig.history(crowd, began)
    assert check(history) == []
    assert {job.marker: (job.id, job.status) for job in history.jobs} == {
        marker: (id, "completed") for marker, id in crowd.ids.items()
    }
    assert len(crowd.ids) == JOBS
    assert rig.any().status(rig.dead_letter) == "failed"


def _all_sorts(number: int) -> dict[str, Any]:
    """Jobs that overlap, that wait, and that fail at first."""
    job: dict[str, Any] = {"type": "mark", "payload": {"seconds": 0.15 if number % 4 == 0 else 0.0}}
    if number % 10 == 1:
        job["delay_sec"] = 0.5
    if number % 10 == 2:
        job["payload"]["fails"] = 1
    return job


def _cancel_and_replay(rig: Rig) -> None:
    """What clients do besides submitting, each until it is answered."""
    spec = {"type": "mark", "queue": "nobody", "payload": {"marker": "parked"}, "idempotency_key": new_id()}
    parked = _insist(rig, "/jobs", spec)
    assert _insist(rig, f"/jobs/{parked['id']}/cancel")["status"] == "cancelled"
    _insist(rig, f"/jobs/{rig.dead_letter}/retry")
    eventually(lambda: _status(rig, rig.dead_letter) in FINAL, 60, "the dead letter to fail again")


def _insist(rig: Rig, path: str, body: Any = None) -> dict[str, Any]:
    answers: list[dict[str, Any]] = []

    def ask() -> bool:
        status, document = _request(rig, "POST", path, body)
        if status < 500:
            answers.append(document)
        return status < 500

    eventually(ask, 60, f"an answer to {path}")
    return answers[0]


def _status(rig: Rig, id: str) -> str | None:
    return _request(rig, "GET", f"/jobs/{id}")[1].get("status")


def _request(rig: Rig, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
    """The status and the document; 599 for none."""
    connection = http.client.HTTPConnection("127.0.0.1", rig.ports[0], timeout=20)
    try:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError):
        return 599, {}
    finally:
        connection.close()
