"""Nobody reads the log, or there is no room for it: everything goes on, and leaves when it is told to."""

import pytest

from stoker.ids import new_id
from tests.e2e.system import Server, System, eventually

NOWHERE = {"full": ">/dev/full 2>&1", "gone": "> >(true) 2>&1"}
"""A disk without room, and a reader that went away."""


@pytest.fixture
def queue() -> str:
    return f"q-{new_id()[-12:]}"


@pytest.mark.parametrize("into", NOWHERE.values(), ids=NOWHERE.keys())
def test_a_coordinator_answers_and_leaves(system: System, into: str) -> None:
    server = system.serve(into=into)
    first, second = (server.submit()["id"] for _ in range(2))
    for path in (f"/jobs/{first}/cancel", f"/jobs/{first}/retry", "/queues/q/pause", "/queues/q/resume"):
        answer = server.http.post(path)
        assert answer.is_success, f"{path}: {answer.status_code} {answer.text}"
        assert answer.headers["X-Request-ID"]
    bulk = server.http.post("/bulk", json={"action": "cancel", "filter": {"status": "queued"}})
    assert bulk.is_success, bulk.text
    eventually(lambda: server.status(second) == "cancelled")
    server.terminate()
    assert server.exit_code() == 0


@pytest.mark.parametrize("into", NOWHERE.values(), ids=NOWHERE.keys())
def test_a_worker_finishes_what_runs_before_it_leaves(
    town: System, server: Server, queue: str, into: str
) -> None:
    worker = town.worker(server, "--queues", queue, into=into)
    job = server.submit("nap", {"seconds": 1.5, "tag": queue}, queue=queue)
    server.started(job["id"])
    worker.terminate()
    assert worker.exit_code() == 0
    ended = server.job(job["id"])
    assert (ended["status"], ended["attempt"]) == ("completed", 1)


@pytest.mark.parametrize("into", NOWHERE.values(), ids=NOWHERE.keys())
def test_the_whole_system_starts_works_and_leaves(system: System, into: str) -> None:
    up = system.up("--workers", "1", into=into)
    assert up.ended(up.submit("echo", "hello")["id"])["result"] == "hello"
    up.terminate()
    assert up.exit_code() == 0
