"""What a running system writes: every line an event, with the ids to follow a job by, and never a secret."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from stoker.logs.events import TABLE
from tests.e2e.system import APP, Program, Server, System, eventually
from tests.support.servers import databases

TOKEN = "canary-token-4ac1b6d2"
PAYLOAD = "canary-payload-77f0"
RESULT = "canary-result-91be"
HEADER = "canary-header-0d3a"
PASSWORD = "canary-password-5e21"
CANARIES = (TOKEN, PAYLOAD, RESULT, HEADER, PASSWORD)
EVENTS = {event.name: event for event in TABLE}


def lines(program: Program) -> list[dict[str, Any]]:
    """All of what it wrote; what is not JSON fails the test."""
    return [json.loads(line) for line in program.output.splitlines() if line]


def by_event(program: Program, event: str, job: str) -> list[dict[str, Any]]:
    return [line for line in lines(program) if line["event"] == event and line.get("job_id") == job]


def test_a_job_can_be_followed_by_its_ids_through_the_logs(system: System) -> None:
    server = system.serve(STOKER_RETRY_BACKOFF_CAP_SEC=0.1, STOKER_LOG_LEVEL="debug")
    system.worker(server, name="follow-me", STOKER_LOG_LEVEL="debug")
    answer = server.http.post(
        "/jobs", json={"type": "fail", "payload": {"times": 1}}, headers={"X-Request-ID": "r-1"}
    )
    job = answer.json()["id"]
    assert server.ended(job)["status"] == "completed"
    (worker,) = [row["id"] for row in server.get("/workers")["workers"]]

    (submitted,) = eventually(lambda: by_event(server, "job_submitted", job))
    assert (submitted["request_id"], submitted["type"]) == ("r-1", "fail")
    first, second = by_event(server, "job_dispatched", job)
    assert (first["worker_id"], first["claim"], second["claim"]) == (worker, 1, 2)
    (retried,) = by_event(server, "job_retried", job)
    assert (retried["worker_id"], retried["claim"], retried["attempt"], retried["reason"]) == (
        worker,
        1,
        1,
        "error",
    )
    (completed,) = eventually(lambda: by_event(server, "job_completed", job))
    assert (completed["worker_id"], completed["claim"]) == (worker, 2)
    (registered,) = server.events("worker_registered")
    assert (registered["worker_id"], registered["worker"]) == (worker, "follow-me")
    eventually(lambda: server.events("worker_heartbeat"), 30)


def test_a_job_that_is_cancelled_again_is_logged_once(system: System) -> None:
    server = system.serve()
    job = server.submit()["id"]
    for _ in range(2):
        assert server.post(f"/jobs/{job}/cancel")["status"] == "cancelled"
    server.terminate()
    assert server.exit_code() == 0
    assert len(by_event(server, "job_cancelled", job)) == 1


def test_a_handshake_that_is_refused_is_no_error_of_the_server(system: System) -> None:
    server = system.serve(token=TOKEN)
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{server.port}/workers/connect")
    assert refused.value.response.status_code == 401
    assert refused.value.response.headers["content-type"] == "application/problem+json"
    server.terminate()
    assert server.exit_code() == 0
    assert [line for line in lines(server) if line["level"] not in ("debug", "info")] == []


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_no_secret_reaches_a_log_and_every_line_is_a_known_event(database: str, tmp_path: Path) -> None:
    url = with_password(databases.url(tmp_path)) if database == "postgres" else None
    with System(tmp_path / "system", url) as system:
        nothing_is_given_away(system)


def nothing_is_given_away(system: System) -> None:
    """With everything on that logs, and everything done that could go wrong on the way."""
    settings: dict[str, Any] = {
        "STOKER_TOKEN": TOKEN,
        "STOKER_LOG_LEVEL": "debug",
        "REDIS_URL": f"redis://:{PASSWORD}@127.0.0.1:1/0",
    }
    server = system.serve(token=TOKEN, **settings)
    worker = system.worker(server, **settings)
    scaler = system.start("autoscale", "--mode", "recommend", "--url", server.url, **settings)
    some_good_and_bad_requests(server)
    eventually(lambda: scaler.events("autoscaler_started"), 30)
    scaler.terminate()
    assert scaler.exit_code() == 0
    worker.terminate()
    assert worker.exit_code(30) == 0
    server.terminate()
    assert server.exit_code(30) == 0

    for program in (server, worker, scaler):
        assert program.output
        for canary in CANARIES:
            assert canary not in program.output, [
                line for line in program.output.splitlines() if canary in line
            ]
        for line in lines(program):
            row = EVENTS[line["event"]]
            known = {*row.fields, "timestamp", "level", "event", "request_id", "exception"}
            assert line.keys() <= known, line
            assert line["level"] == row.level or row.name == "library", line


def with_password(database: str) -> str:
    """Servers of tests trust everybody, so a password that nobody needs can stand in the address."""
    assert "//postgres@" in database
    return database.replace("//postgres@", f"//postgres:{PASSWORD}@")


def some_good_and_bad_requests(server: Server) -> None:
    body = {"type": "echo", "payload": {"card": PAYLOAD}, "metadata": {"secret": PAYLOAD}}
    good = server.post("/jobs", body, Cookie=HEADER)
    bad = server.post("/jobs", {"type": "fail", "payload": {"times": 9, "why": PAYLOAD}, "max_attempts": 1})
    verbose = server.post("/jobs", {"type": "echo", "payload": RESULT})
    for job in (good, bad, verbose):
        server.ended(job["id"])
    server.http.post(
        "/jobs", content=f'{{"payload": "{PAYLOAD}"', headers={"Content-Type": "application/json"}
    )
    server.http.post("/jobs", json={"payload": PAYLOAD, PAYLOAD: 1})
    server.http.get(f"/jobs/{PAYLOAD}")
    httpx.get(f"{server.url}/jobs", headers={"Authorization": f"Bearer {HEADER}"})
    httpx.get(
        f"{server.url}/jobs", headers={"Authorization": f"Basic {HEADER}", "Origin": f"https://{HEADER}"}
    )
    server.http.delete(f"/jobs/{good['id']}")


def test_a_job_is_submitted_before_it_is_dispatched_also_in_the_log(system: System) -> None:
    server = system.serve()
    system.worker(server)
    eventually(lambda: server.get("/stats")["workers"] == 1)
    jobs = [server.submit(payload=n)["id"] for n in range(20)]
    for job in jobs:
        server.ended(job)
    server.terminate()
    assert server.exit_code() == 0
    told = {"job_submitted": {}, "job_dispatched": {}, "job_completed": {}}  # type: dict[str, dict[str, tuple[int, str]]]
    for place, line in enumerate(lines(server)):
        if line["event"] in told:
            told[line["event"]][line["job_id"]] = (place, line["timestamp"])
    for job in jobs:
        submitted, dispatched, completed = (told[event][job] for event in told)
        assert submitted[0] < dispatched[0] < completed[0]
        assert submitted[1] <= dispatched[1] <= completed[1]


def test_a_failure_is_a_warning_that_says_what_went_wrong(system: System) -> None:
    server = system.serve(STOKER_RETRY_BACKOFF_CAP_SEC=0.1, STOKER_LOG_LEVEL="info")
    system.worker(server, app=APP)
    job = server.submit("boom", {"tag": "x"}, max_attempts=2)["id"]
    assert server.ended(job)["status"] == "failed"
    (retried,) = eventually(lambda: by_event(server, "job_retried", job))
    (failed,) = eventually(lambda: by_event(server, "job_failed", job))
    assert (retried["level"], failed["level"]) == ("info", "warning")
    assert retried["error"] == failed["error"] == "ValueError: no luck with x"


def test_text_that_is_asked_for_off_a_terminal_is_plain(system: System) -> None:
    server = system.serve(STOKER_LOG_FORMAT="text")
    system.worker(server, app=APP)
    job = server.submit()["id"]
    server.ended(job)
    line = eventually(lambda: [line for line in server.output.splitlines() if job[-8:] in line])[0]
    assert re.fullmatch(rf"\d\d:\d\d:\d\d ✓ echo +{job[-8:]}  completed in .+", line)
    assert "\x1b" not in server.output
