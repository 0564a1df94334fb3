"""`kill -9` of the coordinator: what was acknowledged is there, and nothing runs twice because of it."""

import http.client
import json
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.system import Job, Server, System, eventually, is_alive

SUBMISSIONS = 5_000
CONNECTIONS = 8


class Stream:
    """Clients on several connections that submit notes one by one, and remember what they were promised."""

    def __init__(self, server: Server) -> None:
        self._port = server.port
        self._numbers = iter(range(SUBMISSIONS))
        self._lock = threading.Lock()
        self.acknowledged: dict[int, str] = {}
        self.unanswered: set[int] = set()
        self._threads = [threading.Thread(target=self._submit_all) for _ in range(CONNECTIONS)]
        for thread in self._threads:
            thread.start()

    def _next(self) -> int | None:
        with self._lock:
            return next(self._numbers, None)

    def _submit_all(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        while (n := self._next()) is not None:
            body = json.dumps({"type": "note", "payload": {"n": n}, "priority": n % 3})
            try:
                connection.request("POST", "/jobs", body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                document = json.loads(response.read())
                assert response.status == 202, document
                self.acknowledged[n] = document["id"]
            except (OSError, http.client.HTTPException, ValueError):
                self.unanswered.add(n)
                connection.close()
                eventually(lambda: _connects(connection), 30, "the server to come back")
        connection.close()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


def _connects(connection: http.client.HTTPConnection) -> bool:
    try:
        connection.connect()
    except OSError:
        return False
    return True


def test_every_acknowledged_submission_survives_and_completes_once(system: System) -> None:
    settings: dict[str, Any] = {"WORKER_HEARTBEAT_TIMEOUT_SEC": 10}
    server = system.serve(**settings)
    system.worker(server, threads=2)
    stream = Stream(server)
    eventually(
        lambda: len(stream.acknowledged) > SUBMISSIONS // 3, 30, "a third of the stream to be accepted"
    )
    server.kill()
    server = system.serve(port=server.port, **settings)
    stream.join()
    assert len(stream.acknowledged) + len(stream.unanswered) == SUBMISSIONS
    assert stream.unanswered, "the kill hit nobody: this run proves nothing"

    eventually(lambda: _unfinished(server) == 0, 60, lambda: str(server.get("/stats")))
    by_number: dict[int, list[Job]] = {}
    for job in server.jobs(type="note"):
        by_number.setdefault(job["payload"]["n"], []).append(job)
    assert {n: id for n, id in stream.acknowledged.items() if n not in by_number} == {}, (
        "acknowledged, then lost"
    )
    assert all(by_number[n][0]["id"] == id for n, id in stream.acknowledged.items())
    assert set(by_number) <= set(stream.acknowledged) | stream.unanswered
    assert [n for n, jobs in by_number.items() if len(jobs) != 1] == []
    assert [job for (job,) in by_number.values() if job["status"] != "completed" or job["attempt"] != 1] == []
    assert [n for n, (job,) in by_number.items() if job["result"] != n] == []
    ran = Counter(int(entry[2]) for entry in system.journal.lines("ran"))
    assert set(ran) == set(by_number), "what ran is what is stored"
    assert [n for n, times in ran.items() if times > 1] == [], (
        "the workers lived on, so nothing had to run again"
    )


def _unfinished(server: Server) -> int:
    by_status = server.get("/stats")["jobs_by_status"]
    return int(by_status["queued"] + by_status["running"] + by_status["scheduled"])


@pytest.fixture(scope="module")
def reborn(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Reborn"]:
    """A system whose coordinator was killed with work in every state, and started again."""
    with System(tmp_path_factory.mktemp("reborn")) as system:
        yield Reborn(system)


class Reborn:
    """The leases are long enough to sit out the restart, so the worker keeps what it runs."""

    def __init__(self, system: System) -> None:
        self.system = system
        server = system.serve(WORKER_HEARTBEAT_TIMEOUT_SEC=10)
        self.worker = system.worker(server, "--queues", "default", threads=4)
        self.dead = server.submit("boom", {"tag": "dead"}, max_attempts=1)
        server.ended(self.dead["id"])
        self.delayed = server.submit("note", {"n": 1, "tag": "delayed"}, delay_sec=4)
        self.keyed = server.post("/jobs", {"payload": "once"}, **{"X-Idempotency-Key": "k-1"})
        self.cancelled = server.submit("nap", {"seconds": 0, "tag": "never"}, queue="later")
        server.post(f"/jobs/{self.cancelled['id']}/cancel")
        self.unheard = server.submit("nap", {"seconds": 1, "tag": "unheard"})
        self.long = server.submit("nap", {"seconds": 5, "tag": "long"})
        self.unwanted = server.submit("nap", {"seconds": 60, "tag": "unwanted"})
        for job in (self.unheard, self.long, self.unwanted):
            server.started(job["id"])
        server.kill()
        eventually(lambda: system.journal.of("unheard", "end"), otherwise="a job to end while nobody listens")
        self.server = system.serve(port=server.port, WORKER_HEARTBEAT_TIMEOUT_SEC=10)


def test_a_cancel_reaches_a_worker_that_was_away_when_it_was_asked_for(reborn: Reborn) -> None:
    (child,) = reborn.system.journal.pids("unwanted", "start")
    reborn.server.post(f"/jobs/{reborn.unwanted['id']}/cancel")
    assert reborn.server.ended(reborn.unwanted["id"], within=6)["status"] == "cancelled"
    eventually(lambda: not is_alive(child), 2, "the job's process to be gone")


def test_a_result_that_came_while_nobody_listened_is_kept_and_accepted(reborn: Reborn) -> None:
    ended = reborn.server.ended(reborn.unheard["id"])
    assert (ended["status"], ended["attempt"], ended["result"]) == ("completed", 1, "unheard")
    assert len(reborn.system.journal.of("unheard", "start")) == 1


def test_a_job_that_outlasts_the_restart_is_not_run_twice_and_its_result_counts(reborn: Reborn) -> None:
    assert reborn.server.status(reborn.long["id"]) == "running"
    ended = reborn.server.ended(reborn.long["id"])
    assert (ended["status"], ended["attempt"], ended["result"]) == ("completed", 1, "long")
    assert len(reborn.system.journal.of("long", "start")) == 1


def test_an_idempotency_key_works_across_a_restart(reborn: Reborn) -> None:
    again = reborn.server.http.post("/jobs", json={"payload": "once"}, headers={"Idempotency-Key": '"k-1"'})
    assert (again.status_code, again.json()["id"]) == (202, reborn.keyed["id"])
    other = reborn.server.http.post("/jobs", json={"payload": "no"}, headers={"X-Idempotency-Key": "k-1"})
    assert other.status_code == 422


def test_a_delayed_job_and_a_dead_letter_survive_a_restart(reborn: Reborn) -> None:
    assert [job["id"] for job in reborn.server.get("/dlq")["jobs"]] == [reborn.dead["id"]]
    assert reborn.server.ended(reborn.delayed["id"])["status"] == "completed"
    assert len(reborn.system.journal.of("delayed")) == 1


def test_a_queued_job_cancelled_without_workers_stays_cancelled_after_the_restart(reborn: Reborn) -> None:
    reborn.system.worker(reborn.server, "--queues", "later")
    after = reborn.server.submit("note", {"n": 1}, queue="later")
    assert reborn.server.ended(after["id"])["status"] == "completed"
    assert reborn.server.status(reborn.cancelled["id"]) == "cancelled"
    assert reborn.system.journal.of("never") == []


def test_sigterm_ends_the_coordinator_soon_although_a_worker_and_a_client_hang_on(reborn: Reborn) -> None:
    server = reborn.server
    job = server.submit("nap", {"seconds": 60})
    server.started(job["id"])
    waiting = threading.Thread(target=_wait_for, args=(server, job["id"]))
    waiting.start()
    server.terminate()
    assert server.exit_code(within=8) == 0
    waiting.join()
    assert reborn.worker.running, "the worker sits it out"


def test_a_running_job_cancelled_after_its_worker_died_ends_cancelled_after_restarting_everything(
    system: System,
) -> None:
    settings: dict[str, Any] = {"WORKER_HEARTBEAT_TIMEOUT_SEC": 2}
    server = system.serve(**settings)
    worker = system.worker(server)
    job = server.submit("nap", {"seconds": 60, "tag": "orphan"})
    server.started(job["id"])
    worker.kill()
    assert server.post(f"/jobs/{job['id']}/cancel")["cancel_requested_at"] is not None
    server.kill()
    server = system.serve(port=server.port, **settings)
    system.worker(server)
    assert server.ended(job["id"], within=10)["status"] == "cancelled"
    assert len(system.journal.of("orphan", "start")) == 1


def _wait_for(server: Server, id: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request("GET", f"/jobs/{id}?wait=30")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        pass  # it may answer early or hang up
    finally:
        connection.close()
