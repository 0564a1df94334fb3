"""The command line against a real system: what it prints, and the codes it exits with."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from stoker.ids import new_id
from tests.e2e.system import Server, System, eventually, free_port

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def stoker(town: System, server: Server, crew: str) -> Run:
    def run(*args: object) -> subprocess.CompletedProcess[str]:
        return town.run(*args, STOKER_API_URL=server.url)

    return run


def printed(answer: subprocess.CompletedProcess[str], code: int = 0) -> Any:
    """The JSON on stdout, once the exit code is what it should be."""
    assert answer.returncode == code, answer.stderr
    return json.loads(answer.stdout)


def test_submit_wait_prints_the_result(stoker: Run) -> None:
    assert printed(stoker("submit", "echo", '{"hello": "world"}', "--wait")) == {"hello": "world"}
    assert printed(stoker("submit", "echo", "plain words", "--wait")) == "plain words"
    job = printed(stoker("submit", "add", '{"x": 1}', "--wait", "--json"))
    assert (job["status"], job["result"], job["attempts"][0]["outcome"]) == ("completed", 2, "completed")


def test_exit_5_when_the_job_failed(stoker: Run) -> None:
    failed = stoker("submit", "boom", '{"tag": "cli"}', "--max-attempts", 1, "--wait")
    assert (failed.returncode, failed.stdout) == (5, "")
    assert "no luck with cli" in failed.stderr
    job = printed(stoker("submit", "boom", "--max-attempts", 1, "--wait", "--json"), code=5)
    assert job["status"] == "failed"


def test_exit_6_when_the_job_was_cancelled_and_7_when_it_takes_too_long(stoker: Run, server: Server) -> None:
    slow = stoker("submit", "nap", '{"seconds": 60}', "--wait-timeout", 0.5, "--name", "slow")
    assert slow.returncode == 7
    (job,) = server.get("/jobs", name="slow")["jobs"]
    assert stoker("cancel", job["id"]).returncode == 0
    shown = printed(stoker("job", job["id"], "--wait", "--json"), code=6)
    assert shown["status"] == "cancelled"


def test_exit_3_when_nobody_is_there_and_4_when_refused(town: System, stoker: Run) -> None:
    nobody = town.run("stats", "--url", f"http://127.0.0.1:{free_port()}")
    assert nobody.returncode == 3
    assert "cannot reach" in nobody.stderr
    assert stoker("job", new_id()).returncode == 4
    assert stoker("submit", "not a type").returncode == 4
    done = stoker("submit", "echo", "--wait", "--json")
    assert stoker("cancel", json.loads(done.stdout)["id"]).returncode == 4


def test_exit_2_when_the_command_line_is_wrong(stoker: Run) -> None:
    assert stoker("submit", "echo", '{"half": ').returncode == 2
    assert stoker("no-such-command").returncode == 2


def test_submit_prints_the_id_and_job_shows_it(stoker: Run) -> None:
    submitted = stoker("submit", "note", '{"n": 1}', "--name", "a note", "--priority", 0, "--queue", "crew")
    id = submitted.stdout.strip()
    shown = stoker("job", id, "--wait")
    assert shown.returncode == 0
    assert "completed" in shown.stdout
    assert "a note" in shown.stdout
    assert printed(stoker("job", id, "--json"))["priority"] == 0


def test_a_type_that_nobody_serves_is_accepted_with_a_warning(stoker: Run) -> None:
    submitted = stoker("submit", "nobody_does_this", "--queue", "nowhere")
    assert submitted.returncode == 0
    assert "nobody_does_this" in submitted.stderr


def test_lists_are_tables_for_people_and_json_for_programs(stoker: Run, server: Server) -> None:
    stoker("submit", "echo", "--name", "listed", "--wait")
    table = stoker("jobs", "--name", "listed").stdout
    assert "ID" in table
    assert "listed" in table
    page = printed(stoker("jobs", "--name", "listed", "--limit", 5, "--json"))
    assert page["total"] >= 1
    page = printed(stoker("jobs", "--status", "completed", "--limit", 3, "--json"))
    assert {job["status"] for job in page["jobs"]} == {"completed"}
    assert "crew" in stoker("workers").stdout
    assert {row["name"] for row in printed(stoker("workers", "--json"))["workers"]} >= {"crew"}
    assert printed(stoker("stats", "--json"))["workers"] >= 1
    assert printed(stoker("queues", "--json"))["queues"]
    assert stoker("version").returncode == 0


def test_dead_letters_are_listed_replayed_and_discarded(stoker: Run, server: Server, town: System) -> None:
    tag = new_id()
    job = printed(
        stoker("submit", "boom", json.dumps({"tag": tag}), "--max-attempts", 1, "--wait", "--json"), code=5
    )
    assert job["id"] in stoker("dlq").stdout
    assert job["id"] in {dead["id"] for dead in printed(stoker("dlq", "list", "--json"))["jobs"]}
    assert stoker("dlq", "replay", job["id"]).returncode == 0
    eventually(lambda: len(town.journal.of(tag)) == 2)
    server.ended(job["id"])
    assert stoker("dlq", "discard", job["id"], "--yes").returncode == 0
    assert job["id"] not in stoker("dlq").stdout
    assert stoker("dlq", "replay").returncode == 2, "nothing named is not everything"


def test_doctor_finds_a_running_system_healthy(stoker: Run) -> None:
    findings = printed(stoker("doctor", "--json"))["findings"]
    assert {finding["state"] for finding in findings} <= {"ok", "warning"}


def test_workers_can_be_drained_by_name(town: System, server: Server, stoker: Run) -> None:
    worker = town.worker(server, "--queues", "drained", name="leaver")
    assert stoker("workers", "drain", "leaver").returncode == 0
    assert worker.exit_code() == 0
