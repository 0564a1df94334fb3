"""`stoker up`: the whole system from one command, and nothing left of it afterwards."""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.system import APP, STOKER, Server, System, descendants, eventually, is_alive


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with System(tmp_path_factory.mktemp("home")) as home:
        yield home


@pytest.fixture(scope="module")
def up(home: System) -> Server:
    """A system as `make run` starts it, on another port."""
    return home.up()


def curl(*args: str) -> tuple[int, str]:
    """What curl prints, and the status of the answer."""
    done = subprocess.run(
        ["curl", "-sS", "-w", "\n%{http_code}", *args], capture_output=True, text=True, timeout=30, check=True
    )
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


def submit_by_curl(up: Server, body: str) -> dict[str, object]:
    status, text = curl("-X", "POST", f"{up.url}/jobs", "-H", "Content-Type: application/json", "-d", body)
    assert status == 202
    job: dict[str, object] = json.loads(text)
    return job


def test_it_prints_where_the_dashboard_is_and_three_commands_that_work(home: System, up: Server) -> None:
    assert f"{up.url}/dashboard" in up.output
    lines = [line.strip() for line in up.output.splitlines()]
    commands = [line for line in lines if line.startswith(("curl ", f"{STOKER} "))]
    assert len(commands) == 3
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=home.folder,
            env=home.environ({}) | {"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_the_lines_of_the_readme_answer(up: Server) -> None:
    status, text = curl(f"{up.url}/health")
    assert (status, json.loads(text)["status"]) == (200, "ok")
    normal = submit_by_curl(up, '{"payload": "hello"}')
    urgent = submit_by_curl(up, '{"payload": "now", "priority": 0}')
    low = submit_by_curl(up, '{"payload": "later", "priority": 2}')
    assert [job["priority"] for job in (normal, urgent, low)] == [1, 0, 2]
    status, text = curl(f"{up.url}/jobs/{normal['id']}?wait=10")
    job = json.loads(text)
    assert (status, job["status"], job["result"], job["type"]) == (200, "completed", "hello", "echo")
    status, text = curl(f"{up.url}/jobs?limit=50&offset=0")
    page = json.loads(text)
    assert (status, page["limit"], page["offset"]) == (200, 50, 0)
    assert page["total"] >= 3
    # One that another test killed counts until its lease is over.
    eventually(lambda: json.loads(curl(f"{up.url}/stats")[1])["workers"] == 2, 30)
    status, text = curl(f"{up.url}/stats")
    stats = json.loads(text)
    assert status == 200
    assert {"queue_depth", "jobs_by_status", "success_rate", "uptime_sec"} <= stats.keys()


TIMES = {"created_at", "run_at", "started_at", "completed_at"}
SHAPE = {
    *(
        "id",
        "type",
        "name",
        "queue",
        "priority",
        "status",
        "payload",
        "result",
        "error",
        "attempt",
        "max_attempts",
    ),
    *("thread_demand", "timeout_sec", "worker_id"),
    *TIMES,
}


def test_a_job_has_the_shape_that_clients_rely_on(up: Server) -> None:
    job = up.ended(str(submit_by_curl(up, '{"payload": {"a": 1}, "name": "shape"}')["id"]))
    assert job.keys() >= SHAPE
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", job["id"])
    for name in TIMES:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", job[name])


def test_the_aliases_of_the_source_systems_work(up: Server) -> None:
    submitted = up.post("/submit_job", {"name": "echo", "payload": [1, 2]})
    assert submitted["type"] == "echo"
    assert up.ended(submitted["id"])["result"] == [1, 2]
    assert up.get(f"/db/jobs/{submitted['id']}")["id"] == submitted["id"]
    assert submitted["id"] in {job["id"] for job in up.get("/db/jobs")["jobs"]}


def test_the_dashboard_shows_live_stats_and_jobs(up: Server) -> None:
    page = httpx.get(f"{up.url}/dashboard")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    scripts = re.findall(r'(?:src|href)="(/[^"]+)"', page.text)
    texts = [httpx.get(up.url + path).raise_for_status().text for path in scripts]
    assert any("/stats" in text and "/jobs" in text for text in texts)


def test_a_worker_that_dies_is_replaced(up: Server) -> None:
    before = {row["pid"] for row in up.live_workers()}
    victim = min(before)
    assert victim in descendants(up.pid), "ours to kill"
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: {row["pid"] for row in up.live_workers()} - before, 10, "another to take its place")
    assert up.ended(up.submit(payload="still here")["id"])["status"] == "completed"


@pytest.mark.parametrize("command", [("up", "--port", 0), ("autoscale", "--mode", "process")])
def test_what_every_worker_would_die_of_is_told_before_one_is_started(
    system: System, command: tuple[object, ...]
) -> None:
    (system.folder / "broken.py").write_text("import stoker\n\n1 / 0\n")
    missing = system.run(*command, "--app", "nosuch:app", EXECUTION_BINARY="/no/such/runner")
    assert missing.returncode == 1
    assert missing.stderr.splitlines() == [
        "error: EXECUTION_BINARY=/no/such/runner cannot be started: No such file or directory",
        "error: the app nosuch:app cannot be imported: ModuleNotFoundError: No module named 'nosuch'",
    ]
    broken = system.run(*command, "--app", "broken:app")
    assert broken.returncode == 1
    assert broken.stderr.startswith(
        "error: the app broken:app cannot be imported: ZeroDivisionError: division"
    )
    assert broken.stderr.endswith("broken.py, line 3)\n")
    assert "Stoker is up" not in missing.stdout + broken.stdout


def test_a_worker_says_which_app_cannot_be_imported_and_shows_the_stack_in_lines(system: System) -> None:
    (system.folder / "broken.py").write_text("import stoker\n\n1 / 0\n")
    broken = system.run("worker", "--app", "broken:app", "--log-format", "text")
    assert broken.returncode == 1
    lines = broken.stderr.splitlines()
    assert lines[-1] == "error: the app broken:app cannot be imported: ZeroDivisionError: division by zero"
    assert any(line.strip() == "Traceback (most recent call last):" for line in lines)
    assert "\\n" not in broken.stderr


def test_a_taken_port_is_all_that_is_told(system: System) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = system.run("serve", "--port", taken.getsockname()[1], "--log-format", "text")
    assert refused.returncode == 1
    (line,) = refused.stderr.splitlines()
    assert line.startswith("error: cannot listen on 127.0.0.1:")


def test_sigterm_lets_running_jobs_finish_and_leaves_no_process_behind(system: System) -> None:
    up = system.up("--app", APP, "--threads", 1)
    job = up.submit("nap", {"seconds": 1, "tag": "last"})
    up.started(job["id"])
    family = descendants(up.pid)
    up.terminate()
    assert up.exit_code() == 0
    assert not [pid for pid in family if is_alive(pid)]
    assert system.processes() == set()
    assert len(system.journal.of("last", "end")) == 1
    server = system.serve()
    ended = server.job(job["id"])
    assert (ended["status"], ended["attempt"]) == ("completed", 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_from_the_signal_on_nothing_new_is_accepted_while_what_runs_is_drained(
    system: System, number: int
) -> None:
    up = system.up("--app", APP, "--threads", 1)
    job = up.submit("nap", {"seconds": 2, "tag": "last"})
    up.started(job["id"])
    up.signal(number)
    eventually(lambda: up.events("shutting_down"), 3)
    for path, body in (("/jobs", {}), ("/jobs/batch", {"jobs": [{}]}), ("/submit_job", {"name": "echo"})):
        refused = httpx.post(up.url + path, json=body)
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:stoker:problem:unavailable")
        assert int(refused.headers["retry-after"]) > 0
    assert httpx.get(f"{up.url}/ready").status_code == 503
    assert httpx.get(f"{up.url}/jobs").json()["total"] == 1
    assert httpx.get(f"{up.url}/jobs/{job['id']}?wait=10").json()["status"] == "completed"
    assert up.exit_code() == 0


def test_a_second_signal_forces(system: System) -> None:
    up = system.up("--app", APP, "--threads", 1)
    job = up.submit("parent", {"seconds": 60, "own_session": True})
    up.started(job["id"])
    family = descendants(up.pid)
    up.signal(signal.SIGINT)
    eventually(lambda: up.events("shutting_down"), 3)
    up.signal(signal.SIGINT)
    assert up.exit_code(within=2) != 0
    eventually(lambda: not [pid for pid in family if is_alive(pid)] and not system.processes(), 3)


def test_kill_9_of_everything_in_one_process_leaves_nothing_either(system: System) -> None:
    up = system.up("--app", APP, "--threads", 1, STOKER_SHUTDOWN_GRACE_SEC=0.5)
    job = up.submit("parent", {"seconds": 60, "own_session": True})
    up.started(job["id"])
    family = descendants(up.pid)
    up.kill()
    eventually(lambda: not [pid for pid in family if is_alive(pid)] and not system.processes(), 12)


def test_port_0_takes_a_free_one_and_says_which_and_the_workers_know_address_and_token(
    system: System,
) -> None:
    token = "a-token-of-enough-characters"
    program = system.start(
        "up", "--port", 0, "--database", system.database, "--threads", 1, STOKER_TOKEN=token
    )
    found = eventually(lambda: re.search(r"Dashboard +(http://\S+)/dashboard", program.output), 15)
    url = found[1]
    assert not url.endswith(":0")
    with httpx.Client(base_url=url) as client:
        eventually(lambda: client.get("/ready").status_code == 200, 15, "workers to register")
        assert client.get("/stats").status_code == 401
        client.headers["Authorization"] = f"Bearer {token}"
        eventually(lambda: client.get("/stats").json()["workers"] == 2, 10, "both workers to register")
    assert token not in program.output
