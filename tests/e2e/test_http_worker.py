"""A worker that speaks plain HTTP: register, lease, heartbeat, report."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from stoker.ids import new_id
from tests.e2e.conftest import HEARTBEAT_TIMEOUT_SECONDS
from tests.e2e.system import Job, Server, System, eventually, throughout


@pytest.fixture
def queue() -> str:
    return f"q-{new_id()[-12:]}"


class HttpWorker:
    """The simplest worker there can be: one request at a time."""

    def __init__(self, server: Server, queue: str, threads: int = 1) -> None:
        self.server = server
        hello = {"name": f"http-{queue}", "threads": threads, "types": ["weld", "echo"], "queues": [queue]}
        self.welcome = server.post("/workers", {**hello, "labels": {"kind": "http"}})
        self.id: str = self.welcome["id"]

    def lease(self, wait: float = 5, max: int = 1) -> list[Job]:
        jobs: list[Job] = self.server.post(f"/workers/{self.id}/lease?wait={wait}&max={max}")["jobs"]
        return jobs

    def heartbeat(self, *held: Job) -> Any:
        claims = [{"id": job["id"], "claim_id": job["claim_id"]} for job in held]
        return self.server.post(f"/workers/{self.id}/heartbeat", {"held": claims})

    def report(self, job: Job, outcome: str = "completed", **more: Any) -> Any:
        report = {"id": job["id"], "claim_id": job["claim_id"], "outcome": outcome, **more}
        return self.server.post(f"/workers/{self.id}/report", {"reports": [report]})


@pytest.fixture
def worker(server: Server, queue: str) -> HttpWorker:
    return HttpWorker(server, queue, threads=2)


def test_full_circle(server: Server, queue: str, worker: HttpWorker) -> None:
    assert worker.welcome["heartbeat_timeout_sec"] == HEARTBEAT_TIMEOUT_SECONDS
    (row,) = [row for row in server.get("/workers")["workers"] if row["id"] == worker.id]
    assert (row["status"], row["threads"], row["labels"]) == ("live", 2, {"kind": "http"})
    assert worker.lease(wait=0) == []
    job = server.submit(
        "weld", {"parts": [1, 2]}, queue=queue, name="a seam", timeout_sec=30, metadata={"a": "b"}
    )
    (leased,) = worker.lease()
    assert (leased["id"], leased["payload"], leased["attempt"], leased["threads"]) == (
        job["id"],
        {"parts": [1, 2]},
        1,
        1,
    )
    assert (leased["name"], leased["timeout_sec"], leased["metadata"]) == ("a seam", 30, {"a": "b"})
    assert server.status(job["id"]) == "running"
    assert worker.heartbeat(leased) == {"cancel": [], "revoked": [], "drain": False}
    receipt = worker.report(leased, result={"seam": "\x00 ok"}, run_seconds=0.1)
    assert (len(receipt["accepted"]), receipt["stale"]) == (1, [])
    ended = server.job(job["id"])
    assert (ended["status"], ended["result"], ended["worker_id"]) == (
        "completed",
        {"seam": "\x00 ok"},
        worker.id,
    )
    assert len(worker.report(leased, result={"seam": "\x00 ok"})["accepted"]) == 1, (
        "sent again, accepted again"
    )


def test_a_long_poll_answers_as_soon_as_there_is_a_job(
    server: Server, queue: str, worker: HttpWorker
) -> None:
    with ThreadPoolExecutor(1) as threads:
        url = f"{server.url}/workers/{worker.id}/lease?wait=10"
        waiting = threads.submit(httpx.post, url, timeout=20)
        throughout(lambda: not waiting.done(), 0.5)
        began = time.monotonic()
        job = server.submit("weld", queue=queue)
        (leased,) = waiting.result(5).json()["jobs"]
        assert time.monotonic() - began < 1
        assert leased["id"] == job["id"]
    worker.report(leased)


def test_a_worker_that_long_polls_is_alive(server: Server, queue: str, worker: HttpWorker) -> None:
    """One that can only do one thing at a time cannot beat while it waits for work; its waiting is its heartbeat."""
    assert worker.lease(wait=2 * HEARTBEAT_TIMEOUT_SECONDS) == []
    job = server.submit("weld", queue=queue)
    (leased,) = worker.lease()
    assert leased["id"] == job["id"]
    worker.report(leased)


def test_a_lease_never_hands_out_more_than_was_asked_for(server: Server, queue: str) -> None:
    worker = HttpWorker(server, queue, threads=8)
    for _ in range(20):
        with ThreadPoolExecutor(9) as threads:
            waiting = threads.submit(worker.lease, 5, 1)
            submitted = list(threads.map(lambda _: server.submit("weld", queue=queue), range(8)))
            leased = waiting.result()
        assert len(leased) == 1
        worker.report(leased[0])
        for job in submitted:
            if job["id"] != leased[0]["id"]:
                server.post(f"/jobs/{job['id']}/cancel")


def test_threads_bound_what_is_leased_and_demands_count(server: Server, queue: str) -> None:
    worker = HttpWorker(server, queue, threads=3)
    for demand in (2, 2, 1):
        server.submit("weld", demand, queue=queue, thread_demand=demand)
    leased = worker.lease(wait=1, max=10)
    leased += worker.lease(wait=0.3, max=10)
    assert sorted(job["threads"] for job in leased) == [1, 2]
    for job in leased:
        worker.report(job)
    (last,) = worker.lease(wait=2, max=10)
    worker.report(last)


def test_a_lost_assignment_is_handed_back_uncharged(server: Server, queue: str, worker: HttpWorker) -> None:
    """The answer to the lease got lost on the way: the heartbeats do not name the claim, so it goes back."""
    job = server.submit("weld", queue=queue)
    (lost,) = worker.lease()

    def back() -> bool:
        worker.heartbeat()
        return server.status(job["id"]) == "queued"

    eventually(back, 9, "the assignment to come back")
    attempts = server.job(job["id"])["attempts"]
    assert [(attempt["outcome"], attempt["charged"]) for attempt in attempts] == [("handed_back", False)]
    (again,) = worker.lease()
    assert (again["attempt"], again["claim_id"] > lost["claim_id"]) == (1, True)
    assert worker.heartbeat(lost, again)["revoked"] == [{"id": job["id"], "claim_id": lost["claim_id"]}]
    stale = worker.report(lost, result="old")
    assert (stale["accepted"], len(stale["stale"])) == ([], 1)
    assert worker.report(again, result="new")["stale"] == []
    assert server.job(job["id"])["result"] == "new"


def test_a_lease_whose_client_hangs_up_takes_no_job(server: Server, queue: str) -> None:
    worker = HttpWorker(server, queue)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        head = f"POST /workers/{worker.id}/lease?wait=20 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        connection.sendall(head.encode())
        time.sleep(0.3)  # until it waits, which nobody can see
    submitted = [server.submit("weld", queue=queue)["id"] for _ in range(3)]
    for expected in submitted:
        (leased,) = worker.lease(wait=2)
        assert leased["id"] == expected
        worker.report(leased)


def test_a_cancel_is_ordered_with_the_next_heartbeat(server: Server, queue: str, worker: HttpWorker) -> None:
    job = server.submit("weld", queue=queue)
    (leased,) = worker.lease()
    server.post(f"/jobs/{job['id']}/cancel")
    assert worker.heartbeat(leased)["cancel"] == [{"id": job["id"], "claim_id": leased["claim_id"]}]
    worker.report(leased, "cancelled")
    assert server.job(job["id"])["status"] == "cancelled"


def test_failures_are_retried_unless_they_say_that_it_is_no_use(
    server: Server, queue: str, worker: HttpWorker
) -> None:
    job = server.submit("weld", queue=queue, max_attempts=2)
    error = {"type": "Cold", "message": "the torch is out", "traceback": "line 1"}
    for attempt in (1, 2):
        (leased,) = worker.lease()
        assert leased["attempt"] == attempt
        worker.report(leased, "failed", error=error)
    ended = server.job(job["id"])
    assert (ended["status"], ended["error"]) == ("failed", error)
    hopeless = server.submit("weld", queue=queue)
    (leased,) = worker.lease()
    worker.report(leased, "failed", error={**error, "retryable": False})
    ended = server.job(hopeless["id"])
    assert (ended["status"], ended["attempt"]) == ("failed", 1)


def test_who_says_that_a_job_ran_for_ages_is_believed_as_far_as_its_claim_goes(
    server: Server, queue: str, worker: HttpWorker
) -> None:
    job = server.submit("weld", queue=queue)
    (leased,) = worker.lease()
    assert len(worker.report(leased, run_seconds=1e308)["accepted"]) == 1
    ended = server.job(job["id"])
    assert ended["created_at"] <= ended["started_at"] <= ended["completed_at"]


def test_what_is_handed_back_is_not_charged(server: Server, queue: str, worker: HttpWorker) -> None:
    job = server.submit("weld", queue=queue)
    (leased,) = worker.lease()
    worker.report(leased, "handed_back")
    (again,) = worker.lease()
    assert (again["id"], again["attempt"], again["claim_id"]) == (job["id"], 1, 2)
    worker.report(again)


def test_a_drained_worker_is_told_so_and_gets_nothing_more(
    server: Server, queue: str, worker: HttpWorker
) -> None:
    server.post(f"/workers/{worker.id}/drain")
    job = server.submit("weld", queue=queue)
    assert worker.heartbeat()["drain"] is True
    assert worker.lease(wait=0.5) == []
    server.post(f"/jobs/{job['id']}/cancel")


def test_a_coordinator_that_restarts_still_knows_the_worker_and_its_claim(system: System) -> None:
    server = system.serve(WORKER_HEARTBEAT_TIMEOUT_SEC=10)
    worker = HttpWorker(server, "default")
    job = server.submit("weld")
    cancelled = server.submit("weld")
    (leased,) = worker.lease()
    server.kill()
    server = worker.server = system.serve(port=server.port, WORKER_HEARTBEAT_TIMEOUT_SEC=10)
    assert worker.heartbeat(leased)["revoked"] == []
    assert worker.lease(wait=0.3) == [], "its one thread is taken"
    assert worker.report(leased, result="kept")["stale"] == []
    assert server.job(job["id"])["result"] == "kept"
    (other,) = worker.lease()
    server.post(f"/jobs/{cancelled['id']}/cancel")
    server.kill()
    server = worker.server = system.serve(port=server.port, WORKER_HEARTBEAT_TIMEOUT_SEC=10)
    assert worker.heartbeat(other)["cancel"] == [{"id": cancelled["id"], "claim_id": other["claim_id"]}]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/workers", {"name": "x", "threads": 0, "types": ["a"]}, "threads"),
        ("/workers", {"name": "x", "threads": 1, "types": []}, "types"),
        ("/workers", {"name": "x\x00", "threads": 1, "types": ["a"]}, "name"),
        ("/workers", {"name": "x", "threads": 1, "types": ["a"], "colour": "red"}, "colour"),
        ("/workers/ID/heartbeat", {"held": [{"id": "x"}]}, "held[0].claim_id"),
        ("/workers/ID/report", {"reports": []}, "reports"),
        (
            "/workers/ID/report",
            {"reports": [{"id": "x", "claim_id": 1, "outcome": "won"}]},
            "reports[0].outcome",
        ),
        (
            "/workers/ID/report",
            {"reports": [{"id": "x", "claim_id": 1, "outcome": "failed"}]},
            "reports[0].error",
        ),
        ("/workers/ID/lease?max=0", None, "max"),
        ("/workers/ID/lease?wait=61", None, "wait"),
    ],
)
def test_what_a_worker_says_is_checked(
    server: Server, worker: HttpWorker, path: str, body: object, field: str
) -> None:
    answer = server.http.post(path.replace("ID", worker.id), json=body)
    assert answer.status_code == 422
    assert field in [error["field"] for error in answer.json()["errors"]]


def test_an_unknown_worker_is_told_to_register(server: Server) -> None:
    for path, body in (
        ("lease", None),
        ("heartbeat", {}),
        ("report", {"reports": [{"id": "x", "claim_id": 1, "outcome": "completed"}]}),
    ):
        answer = server.http.post(f"/workers/nobody/{path}", json=body)
        assert (answer.status_code, "register" in answer.json()["detail"]) == (404, True)
