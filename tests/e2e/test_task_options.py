"""Tasks as others see them: the options beside the function hold however a job is submitted, and a task goes before
a built-in type of its name."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from stoker import errors
from stoker.client.transport import Transport
from tests.e2e import options_app
from tests.e2e.conftest import STORES
from tests.e2e.system import STOKER, Server, System, Worker, eventually

ANNOUNCED = {
    "queue": "mail",
    "priority": 0,
    "timeout_sec": 30.0,
    "max_attempts": 7,
    "thread_demand": 2,
    "memory_mb": 900,
    "on_oversize": "wait",
    "labels": {"role": "mailer"},
    "metadata": {"team": "post"},
}
BUILT_IN = {
    "queue": "default",
    "priority": 1,
    "timeout_sec": None,
    "thread_demand": 1,
    "memory_mb": None,
    "on_oversize": "degrade",
    "labels": {},
    "metadata": {},
}


@pytest.fixture(scope="module")
def office(store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("office")
    with System(folder, STORES[store](folder)) as office:
        shutil.copy(Path(__file__).with_name("options_app.py"), folder / "options_app.py")
        yield office


@pytest.fixture(scope="module")
def first(office: System) -> Server:
    return office.serve()


@pytest.fixture(scope="module")
def second(office: System, first: Server, store: str) -> Server:
    """Another coordinator, where the store can have two. It is there before anything is announced."""
    return office.serve() if store == "postgres" else first


@pytest.fixture(scope="module", autouse=True)
def worker(office: System, first: Server, second: Server) -> Worker:
    return office.worker(
        first, "--label", "role=mailer", "--queues", "default,mail,other", threads=2, app="options_app:app"
    )


def options_of(job: dict[str, Any], names: dict[str, Any] = ANNOUNCED) -> dict[str, Any]:
    return {name: job[name] for name in names}


def defaults_at(server: Server, type: str) -> Any:
    (found,) = [row for row in server.get("/types")["types"] if row["type"] == type]
    return found["defaults"]


def test_a_task_goes_before_a_built_in_type_of_its_name(first: Server, worker: Worker) -> None:
    assert first.ended(first.submit("echo", {"text": "hello"})["id"])["result"] == "mine: hello"
    assert first.ended(first.submit("sleep", {"seconds": 1})["id"])["result"] == "mine: 1.0"
    assert first.ended(first.submit("add_numbers", {"x": 1, "y": 2})["id"])["result"] == {"sum": 3}
    assert [event["types"] for event in worker.events("task_goes_first")] == [["echo", "sleep"]]


def test_types_are_listed_with_their_options(first: Server, second: Server) -> None:
    for server in (first, second):
        assert defaults_at(server, "send") == ANNOUNCED
        assert defaults_at(server, "plain") == {}
        assert defaults_at(server, "fail") == {}


def test_options_hold_however_a_job_is_submitted(office: System, first: Server, second: Server) -> None:
    eventually(lambda: second.submit("send", {"to": "soon"})["queue"] == "mail", 10)
    for server in (first, second):
        alone = server.submit("send", {"to": "alone"})
        (batched, named) = server.post(
            "/jobs/batch",
            {
                "jobs": [
                    {"type": "send", "payload": {"to": "batched"}},
                    {"type": "send", "payload": {"to": "named"}, "idempotency_key": f"named-{server.port}"},
                ]
            },
        )["jobs"]
        aliased = server.post("/submit_job", {"name": "send", "payload": {"to": "aliased"}})
        printed = subprocess.run(
            [STOKER, "submit", "send", '{"to": "cli"}', "--url", server.url, "--json"],
            env=office.environ({}),
            capture_output=True,
            check=True,
            text=True,
            timeout=60,
        )
        by_cli = server.job(json.loads(printed.stdout)["id"])
        for job in (alone, batched, named, aliased, by_cli):
            assert options_of(server.job(job["id"])) == ANNOUNCED
        assert server.ended(alone["id"])["result"] == "alone by mail on 2"


def test_what_a_submission_says_counts_and_null_is_none(first: Server) -> None:
    given = {**BUILT_IN, "queue": "other", "max_attempts": 1}
    assert options_of(first.submit("send", {"to": "you"}, **given), given) == given
    job = first.submit("send", {"to": "you"}, timeout_sec=None, max_attempts=None, priority=1)
    assert (job["timeout_sec"], job["max_attempts"], job["priority"]) == (None, 4, 1)
    assert options_of(first.submit("plain"), BUILT_IN) == BUILT_IN
    refused = first.http.post("/jobs", json={"type": "send", "priority": 101, "queue": 5})
    assert refused.status_code == 422
    assert {error["field"] for error in refused.json()["errors"]} == {"priority", "queue"}


def test_announced_options_outlive_worker_and_coordinator_and_change_no_key(
    office: System, store: str
) -> None:
    """The key is the one of the submission as it was sent, before anything was announced for its type."""
    with System(office.folder.with_name(f"{office.folder.name}-later"), None) as system:
        shutil.copy(Path(__file__).with_name("options_app.py"), system.folder / "options_app.py")
        if store != "sqlite":
            system.database = STORES[store](system.folder) or system.database
        server = system.serve()
        early = server.post("/jobs", {"type": "send", "payload": {"to": "me"}}, **{"Idempotency-Key": "k"})
        assert early["queue"] == "default"
        worker = system.worker(server, app="options_app:app")
        again = server.post("/jobs", {"type": "send", "payload": {"to": "me"}}, **{"Idempotency-Key": "k"})
        assert again["id"] == early["id"]
        worker.terminate()
        assert worker.exit_code() == 0
        assert options_of(server.submit("send", {"to": "you"})) == ANNOUNCED
        server.kill()
        server = system.serve(port=server.port)
        assert options_of(server.submit("send", {"to": "you"})) == ANNOUNCED
        assert defaults_at(server, "send") == ANNOUNCED
        (system.folder / "options_app.py").write_text(
            "from stoker import Stoker\napp = Stoker()\n@app.task\ndef send(to: str) -> None: ...\n",
            encoding="utf-8",
        )
        system.worker(server, app="options_app:app")
        assert options_of(server.submit("send", {"to": "you"}), BUILT_IN) == BUILT_IN
        assert defaults_at(server, "send") == {}


def test_arguments_and_results_are_of_the_types_that_the_function_names(first: Server) -> None:
    """Each side has objects; between them is JSON, which others can write and read."""
    app = options_app.app
    app.transport = Transport(first.url, None)
    try:
        noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
        parcels = [options_app.Parcel(Path("out/a.txt"), sent_at=noon)]
        job = options_app.pack.submit(parcels, Decimal("1.10"), uuid4())
        wanted = {"a.txt": options_app.Parcel(Path("out"), options_app.Size.LARGE, noon)}
        assert job.result(timeout=20) == wanted
        assert app.job(job.id).result(timeout=20) == wanted
        assert job.info.result == {
            "a.txt": {"path": "out", "size": "large", "sent_at": "2026-01-01T12:00:00Z"}
        }
        assert options_app.where.submit(Path("out/a.txt")).result(timeout=20) == Path("out")
        assert first.ended(first.submit("where", {"path": "x/y"})["id"])["result"] == "x"
        with pytest.raises(errors.JobFailed, match="annotated to return int") as caught:
            options_app.wrongly.submit("seven").result(timeout=20)
        error = caught.value.job.error
        assert error is not None
        assert error.type == "result_type"
        assert caught.value.job.attempt == 1  # another attempt would return the same
    finally:
        app.close()
        del app.transport
