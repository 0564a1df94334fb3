"""A worker on what other systems than Linux have. `make test-portable` runs the whole suite so; this is the heart of it."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from stoker.ids import new_id
from tests.e2e.system import Server, System, descendants, eventually, is_alive

COUNT = [sys.executable, "-c", "import sys; print(len(sys.stdin.read()))"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[System, Server]]:
    with System(tmp_path_factory.mktemp("portable")) as system:
        yield system, system.serve(STOKER_PORTABLE=1, WORKER_HEARTBEAT_TIMEOUT_SEC=2)


def test_jobs_of_every_kind_run_on_the_portable_implementation(place: tuple[System, Server]) -> None:
    system, server = place
    commands = json.dumps({"count": COUNT})
    worker = system.worker(server, threads=2, STOKER_PORTABLE=1, STOKER_COMMANDS=commands)
    wanted: dict[str, tuple[Any, Any]] = {
        "echo": ("hello", "hello"),
        "add": ({"x": 1, "y": 2}, 3),
        "add_later": ({"x": 3, "y": 4}, 7),
        "count": ("four", 6),
    }
    ids = {type: server.submit(type, payload)["id"] for type, (payload, _) in wanted.items()}
    for type, id in ids.items():
        job = server.ended(id)
        assert (job["status"], job["result"]) == ("completed", wanted[type][1]), worker.output
    assert server.job(ids["count"])["peak_memory_kb"] > 0
    slow = server.submit("nap", {"seconds": 60})
    server.started(slow["id"])
    server.post(f"/jobs/{slow['id']}/cancel")
    assert server.ended(slow["id"])["status"] == "cancelled"
    worker.terminate()
    assert worker.exit_code() == 0


def test_nothing_survives_a_killed_worker_on_the_portable_implementation(
    place: tuple[System, Server],
) -> None:
    system, server = place
    queue = f"q-{new_id()[-12:]}"
    worker = system.worker(server, "--queues", queue, STOKER_PORTABLE=1)
    payload = {"seconds": 60, "tag": queue, "own_session": True}
    server.started(server.submit("parent", payload, queue=queue, max_attempts=1)["id"])
    family = descendants(worker.pid) | set(system.journal.pids(queue, "grandchild"))
    assert len(family) >= 3, "the child, the grandchild and the guardian"
    worker.kill()
    eventually(lambda: not any(map(is_alive, family)), 10, "all that the worker started to be gone")
