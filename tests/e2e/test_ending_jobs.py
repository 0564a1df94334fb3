"""Timeouts and cancels: the job ends when it was said to, and so does every process it started."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from stoker.ids import new_id
from tests.e2e.system import Job, Server, System, eventually, is_alive, throughout


@pytest.fixture(scope="module")
def pool(town: System, server: Server) -> Iterator[str]:
    """The queue of a worker with four threads."""
    worker = town.worker(server, "--queues", "ending", threads=4)
    yield "ending"
    worker.kill()


@pytest.fixture
def tag() -> str:
    return f"t-{new_id()[-12:]}"


TASKS = {
    "a sleeper": ("nap", {}),
    "one that ignores SIGTERM": ("stubborn", {}),
    "one with a grandchild": ("parent", {}),
    "one with a grandchild in a session of its own": ("parent", {"own_session": True}),
}
tasks = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.replace(" ", "-"))


def submit(server: Server, queue: str, task: str, tag: str, **fields: Any) -> Job:
    type, more = TASKS[task]
    return server.submit(type, {"seconds": 60, "tag": tag, **more}, queue=queue, **fields)


def processes(town: System, tag: str) -> list[int]:
    return town.journal.pids(tag, "start") + town.journal.pids(tag, "grandchild")


@pytest.fixture(scope="module")
def late(server: Server, pool: str) -> dict[str, str]:
    """The ids of jobs that outlast their timeout, by task; all run at once."""
    options: dict[str, Any] = {"timeout_sec": 1, "max_attempts": 2}
    return {
        task: submit(server, pool, task, f"late {task}".replace(" ", "-"), **options)["id"] for task in TASKS
    }


@tasks
def test_a_job_over_its_timeout_fails_within_two_seconds_and_its_processes_are_gone(
    town: System, server: Server, late: dict[str, str], task: str
) -> None:
    tag = f"late {task}".replace(" ", "-")
    ended = server.ended(late[task])
    assert (ended["status"], ended["error"]["type"], ended["attempt"]) == ("failed", "timeout", 2)
    assert [attempt["outcome"] for attempt in ended["attempts"]] == ["timeout", "timeout"]
    for attempt in ended["attempts"]:
        assert 0.9 <= seconds(attempt, "started_at", "finished_at") <= 2
    assert len(processes(town, tag)) >= 2
    eventually(lambda: not any(map(is_alive, processes(town, tag))), 1, "the job's processes to be gone")


@tasks
def test_a_running_job_that_is_cancelled_ends_within_three_seconds(
    town: System, server: Server, pool: str, tag: str, task: str
) -> None:
    job = submit(server, pool, task, tag)
    eventually(lambda: town.journal.of(tag, "start"))
    assert server.post(f"/jobs/{job['id']}/cancel")["cancel_requested_at"] is not None
    ended = server.ended(job["id"], within=3)
    assert (ended["status"], ended["attempt"], ended["result"]) == ("cancelled", 1, None)
    eventually(lambda: not any(map(is_alive, processes(town, tag))), 1, "the job's processes to be gone")
    assert len(town.journal.of(tag, "start")) == 1


def test_the_builtin_sleep_times_out_too(server: Server, pool: str) -> None:
    job = server.submit("sleep", {"seconds": 60}, queue=pool, timeout_sec=0.5, max_attempts=1)
    ended = server.ended(job["id"], within=2)
    assert (ended["status"], ended["error"]["type"]) == ("failed", "timeout")
    assert "timeout" in ended["error"]["message"]


def test_the_timeout_counts_from_the_start_and_not_from_the_submission(server: Server, pool: str) -> None:
    naps = [
        server.submit("nap", {"seconds": 0.5}, queue=pool, timeout_sec=0.9, max_attempts=1, thread_demand=4)
        for _ in range(3)
    ]
    assert [server.ended(nap["id"])["status"] for nap in naps] == ["completed"] * 3


@pytest.mark.parametrize("method", ["DELETE", "POST"])
def test_a_queued_job_that_is_cancelled_never_starts(
    town: System, server: Server, pool: str, tag: str, method: str
) -> None:
    blocker = server.submit("nap", {"seconds": 0.7}, queue=pool, thread_demand=4)
    server.started(blocker["id"])
    queued = server.submit("nap", {"seconds": 0, "tag": tag}, queue=pool)
    path = f"/jobs/{queued['id']}" + ("" if method == "DELETE" else "/cancel")
    cancelled = server.http.request(method, path)
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    server.ended(blocker["id"])
    after = server.submit("note", {"n": 0}, queue=pool)
    server.ended(after["id"])
    assert server.status(queued["id"]) == "cancelled"
    assert town.journal.of(tag) == []


def test_a_delayed_job_and_one_between_attempts_can_be_cancelled(
    town: System, server: Server, pool: str, tag: str
) -> None:
    delayed = server.submit("nap", {"seconds": 0, "tag": tag}, queue=pool, delay_sec=1)
    failing = server.submit("boom", {"tag": tag}, queue=pool)
    server.until(failing["id"], "scheduled")
    for job in (delayed, failing):
        assert server.post(f"/jobs/{job['id']}/cancel")["status"] == "cancelled"
    throughout(lambda: len(town.journal.of(tag)) == 1, 1.6, "a cancelled job ran")
    assert [server.status(job["id"]) for job in (delayed, failing)] == ["cancelled"] * 2


def test_finished_jobs_cannot_be_cancelled(server: Server, pool: str) -> None:
    done = server.submit("note", {"n": 0}, queue=pool)
    dead = server.submit("boom", {}, queue=pool, max_attempts=1)
    for job, status in ((done, "completed"), (dead, "failed")):
        assert server.ended(job["id"])["status"] == status
        refused = server.http.post(f"/jobs/{job['id']}/cancel")
        assert refused.status_code == 409
        assert refused.headers["content-type"].startswith("application/problem+json")
        assert status in refused.json()["detail"]
        assert server.status(job["id"]) == status


def test_cancelling_twice_is_cancelling_once(server: Server, pool: str) -> None:
    job = server.submit("note", {"n": 0}, queue=pool, delay_sec=60)
    first, second = (server.post(f"/jobs/{job['id']}/cancel") for _ in range(2))
    assert first == second


def test_jobs_that_do_not_exist_cannot_be_cancelled(server: Server) -> None:
    for id in ("0199a5c1-7b0e-7c61-b6a5-0d3f6b8f2a11", "nonsense", "%00"):
        assert server.http.post(f"/jobs/{id}/cancel").status_code == 404


def test_a_cancelled_job_can_be_retried(town: System, server: Server, pool: str, tag: str) -> None:
    job = server.submit("nap", {"seconds": 60, "tag": tag}, queue=pool)
    server.started(job["id"])
    server.post(f"/jobs/{job['id']}/cancel")
    assert server.ended(job["id"])["status"] == "cancelled"
    assert server.post(f"/jobs/{job['id']}/retry")["status"] in ("queued", "running")
    server.started(job["id"])
    server.post(f"/jobs/{job['id']}/cancel")


def test_a_job_cancelled_before_its_time_keeps_that_time_when_it_is_retried(
    town: System, server: Server, pool: str, tag: str
) -> None:
    job = server.submit("nap", {"seconds": 0, "tag": tag}, queue=pool, delay_sec=2)
    server.post(f"/jobs/{job['id']}/cancel")
    again = server.post(f"/jobs/{job['id']}/retry")
    assert (again["status"], again["run_at"]) == ("scheduled", job["run_at"])
    ended = server.ended(job["id"])
    assert ended["status"] == "completed"
    assert ended["started_at"] >= job["run_at"]


def test_a_neighbour_of_a_killed_job_is_unharmed(town: System, server: Server, pool: str, tag: str) -> None:
    neighbour = server.submit("nap", {"seconds": 1.2, "tag": tag}, queue=pool)
    server.started(neighbour["id"])
    late = server.submit("nap", {"seconds": 60}, queue=pool, timeout_sec=0.5, max_attempts=1)
    assert server.ended(late["id"])["status"] == "failed"
    ended = server.ended(neighbour["id"])
    assert (ended["status"], ended["attempt"]) == ("completed", 1)


def seconds(record: Job, first: str, second: str) -> float:
    return (datetime.fromisoformat(record[second]) - datetime.fromisoformat(record[first])).total_seconds()
