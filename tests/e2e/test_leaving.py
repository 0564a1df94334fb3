"""SIGTERM: work in hand is finished or handed back, and no attempt is charged for it."""

import signal
import time
from typing import Any

import pytest

from stoker.ids import new_id
from tests.e2e.system import Server, System, descendants, eventually, is_alive


@pytest.fixture
def queue() -> str:
    return f"q-{new_id()[-12:]}"


def test_a_worker_told_to_leave_finishes_what_runs_and_takes_nothing_more(
    town: System, server: Server, queue: str
) -> None:
    """The job outlasts the heartbeat timeout: the heartbeats go on, and nobody takes it away."""
    worker = town.worker(server, "--queues", queue)
    family = descendants(worker.pid)
    running = server.submit("nap", {"seconds": 3, "tag": queue}, queue=queue)
    server.started(running["id"])
    worker.terminate()
    behind = server.submit("note", {"n": 1}, queue=queue)
    assert worker.exit_code() == 0
    ended = server.job(running["id"])
    assert (ended["status"], ended["attempt"], ended["result"]) == ("completed", 1, queue)
    assert len(town.journal.of(queue, "start")) == 1
    assert server.status(behind["id"]) == "queued"
    eventually(lambda: not any(map(is_alive, family)), 2, "nothing of the worker to be left")
    assert worker.pid not in {row["pid"] for row in server.get("/workers")["workers"]}


def test_what_outlasts_the_grace_is_handed_back_uncharged_and_runs_elsewhere(
    town: System, server: Server, queue: str
) -> None:
    grace: dict[str, Any] = {"STOKER_SHUTDOWN_GRACE_SEC": 0.3, "STOKER_CANCEL_GRACE_SEC": 0.3}
    leaving = town.worker(server, "--queues", queue, threads=2, **grace)
    polite = server.submit("nap", {"seconds": 3, "tag": queue}, queue=queue)
    rude = server.submit("stubborn", {"seconds": 3, "tag": queue}, queue=queue)
    for job in (polite, rude):
        server.started(job["id"])
    children = town.journal.pids(queue, "start")
    staying = town.worker(server, "--queues", queue, threads=2)
    leaving.terminate()
    assert leaving.exit_code(within=5) == 0
    assert not any(map(is_alive, children))
    eventually(lambda: len(town.journal.pids(queue, "start")) == 4, 3, "the jobs to run on the other worker")
    for job in (polite, rude):
        ended = server.ended(job["id"])
        assert (ended["status"], ended["attempt"], ended["claim_id"]) == ("completed", 1, 2)
        handed_back = ended["attempts"][0]
        assert (handed_back["outcome"], handed_back["charged"]) == ("handed_back", False)
    staying.kill()


def test_a_second_signal_forces(town: System, server: Server, queue: str) -> None:
    worker = town.worker(server, "--queues", queue)
    job = server.submit(
        "parent", {"seconds": 60, "tag": queue, "own_session": True}, queue=queue, max_attempts=1
    )
    server.started(job["id"])
    family = descendants(worker.pid) | set(town.journal.pids(queue, "grandchild"))
    worker.signal(signal.SIGINT)
    eventually(lambda: worker.events("draining"), 3, "the first signal to be heard")
    began = time.monotonic()
    worker.signal(signal.SIGINT)
    assert worker.exit_code(within=2) != 0
    eventually(lambda: not any(map(is_alive, family)), 2, "nothing of the worker to be left")
    assert time.monotonic() - began < 3


def test_draining_over_the_api_hands_back_what_waits_and_ends_the_worker(
    town: System, server: Server, queue: str
) -> None:
    worker = town.worker(server, "--queues", queue)
    (row,) = [row for row in server.live_workers() if row["pid"] == worker.pid]
    job = server.submit("nap", {"seconds": 1, "tag": queue}, queue=queue)
    server.started(job["id"])
    assert server.post(f"/workers/{row['id']}/drain")["status"] == "draining"
    assert worker.exit_code() == 0
    assert server.job(job["id"])["attempt"] == 1
    assert server.status(job["id"]) == "completed"


def test_a_burst_of_short_jobs_survives_a_worker_that_leaves_in_the_middle(
    town: System, server: Server, queue: str
) -> None:
    """Jobs that were assigned ahead of time go back uncharged, and every job runs once."""
    leaving, staying = town.pair(server, "--queues", queue, threads=2)
    jobs = [{"type": "note", "payload": {"n": n, "tag": queue}, "queue": queue} for n in range(3000)]
    ids = [job["id"] for job in server.post("/jobs/batch", {"jobs": jobs})["jobs"]]
    eventually(lambda: len(town.journal.of(queue)) > 300)
    leaving.terminate()
    assert leaving.exit_code() == 0
    eventually(lambda: all(job["status"] == "completed" for job in server.jobs(queue=queue)), 20)
    assert [job["id"] for job in server.jobs(queue=queue) if job["attempt"] != 1] == []
    assert len(town.journal.of(queue)) == len(ids)
    staying.kill()
