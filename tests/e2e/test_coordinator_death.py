"""`kill -9` of the coordinator: what was acknowledged is there, and nothing runs twice because of it."""

import http.client
import json
import threading
from collections import Counter
from typing import Any

import pytest

from tests.e2e.system import Job, Server, System, eventually

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


@pytest.fixture
def server(system: System) -> Server:
    """A coordinator with leases long enough to sit out its restart."""
    return system.serve(WORKER_HEARTBEAT_TIMEOUT_SEC=10)


def restarted(system: System, server: Server) -> Server:
    server.kill()
    return system.serve(port=server.port, WORKER_HEARTBEAT_TIMEOUT_SEC=10)


def test_a_job_that_outlasts_the_restart_is_not_run_twice_and_its_result_counts(
    system: System, server: Server
) -> None:
    system.worker(server)
    job = server.submit("nap", {"seconds": 2.5, "tag": "long"})
    server.started(job["id"])
    server = restarted(system, server)
    assert server.status(job["id"]) == "running"
    ended = server.ended(job["id"])
    assert (ended["status"], ended["attempt"], ended["result"]) == ("completed", 1, "long")
    assert len(system.journal.of("long", "start")) == 1


def test_a_result_that_came_while_nobody_listened_is_kept_and_accepted(
    system: System, server: Server
) -> None:
    system.worker(server)
    job = server.submit("nap", {"seconds": 1, "tag": "unheard"})
    server.started(job["id"])
    server.kill()
    eventually(
        lambda: system.journal.of("unheard", "end"), otherwise="the job to end while the coordinator is away"
    )
    server = system.serve(port=server.port, WORKER_HEARTBEAT_TIMEOUT_SEC=10)
    ended = server.ended(job["id"])
    assert (ended["status"], ended["attempt"], ended["result"]) == ("completed", 1, "unheard")
    assert len(system.journal.of("unheard", "start")) == 1


def test_an_idempotency_key_works_across_a_restart(system: System, server: Server) -> None:
    body = {"payload": "once"}
    first = server.http.post("/jobs", json=body, headers={"X-Idempotency-Key": "k-1"}).json()
    server = restarted(system, server)
    again = server.http.post("/jobs", json=body, headers={"Idempotency-Key": '"k-1"'})
    assert (again.status_code, again.json()["id"]) == (202, first["id"])
    other = server.http.post("/jobs", json={"payload": "twice"}, headers={"X-Idempotency-Key": "k-1"})
    assert other.status_code == 422


def test_a_queued_job_cancelled_without_workers_stays_cancelled_after_restarting_everything(
    system: System, server: Server
) -> None:
    job = server.submit("nap", {"seconds": 0, "tag": "never"})
    assert server.post(f"/jobs/{job['id']}/cancel")["status"] == "cancelled"
    server = restarted(system, server)
    system.worker(server)
    after = server.submit("note", {"n": 1})
    assert server.ended(after["id"])["status"] == "completed"
    assert server.status(job["id"]) == "cancelled"
    assert system.journal.of("never") == []


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


def test_a_cancel_reaches_a_worker_that_was_away_when_it_was_asked_for(
    system: System, server: Server
) -> None:
    system.worker(server)
    job = server.submit("nap", {"seconds": 60, "tag": "away"})
    server.started(job["id"])
    (child,) = system.journal.pids("away", "start")
    server = restarted(system, server)
    server.post(f"/jobs/{job['id']}/cancel")
    assert server.ended(job["id"], within=6)["status"] == "cancelled"
    eventually(lambda: child not in system.processes(), 2, "the job's process to be gone")


def test_a_delayed_job_and_a_dead_letter_survive_a_restart(system: System, server: Server) -> None:
    worker = system.worker(server)
    dead = server.submit("boom", {"tag": "dead"}, max_attempts=1)
    delayed = server.submit("note", {"n": 1}, delay_sec=1.5)
    server.ended(dead["id"])
    server = restarted(system, server)
    assert [job["id"] for job in server.get("/dlq")["jobs"]] == [dead["id"]]
    assert worker.running
    assert server.ended(delayed["id"])["status"] == "completed"


def test_sigterm_ends_the_coordinator_soon_although_a_worker_and_a_client_hang_on(
    system: System, server: Server
) -> None:
    worker = system.worker(server)
    job = server.submit("nap", {"seconds": 60})
    server.started(job["id"])
    waiting = threading.Thread(target=_wait_for, args=(server, job["id"]))
    waiting.start()
    server.terminate()
    assert server.exit_code(within=8) == 0
    waiting.join()
    assert worker.running, "the worker sits it out"


def _wait_for(server: Server, id: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request("GET", f"/jobs/{id}?wait=30")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        pass  # it may answer early or hang up
    finally:
        connection.close()
