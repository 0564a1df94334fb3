"""What people who come from the source systems type: their curl lines, load scripts, settings and scrapes."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.system import Server, System, eventually
from tests.support.servers import databases

NAMES = ("cpu_intensive", "io_intensive", "mixed_workload", "network_task", "default", "test_job")
WAVE = 25


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with System(tmp_path_factory.mktemp("home")) as home:
        yield home


@pytest.fixture(scope="module")
def up(home: System) -> Server:
    """Two workers of different sizes."""
    return home.up(
        WORKER_1_THREADS=1,
        WORKER_2_THREADS=3,
        WORKER_ENDPOINT="http://worker:9000",
        METRICS_ALIASES=1,
    )


def test_the_curl_line_of_the_source_system_completes(up: Server) -> None:
    line = (
        f"curl -sS -X POST {up.url}/submit_job -H 'Content-Type: application/json' "
        """-d '{"name": "cpu_intensive", "payload": "test task"}'"""
    )
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=30, check=True)
    id = done.stdout.partition('"id":"')[2].partition('"')[0]
    job = up.ended(id)
    assert (job["status"], job["type"], job["payload"]) == ("completed", "cpu_intensive", "test task"), job


def test_waves_of_jobs_with_text_payloads_complete(up: Server) -> None:
    for wave in range(2):
        jobs = [
            up.post("/submit_job", {"name": NAMES[n % len(NAMES)], "payload": f"task {wave}-{n}"})
            for n in range(WAVE)
        ]
        assert [
            job for job in (up.ended(job["id"], 60) for job in jobs) if job["status"] != "completed"
        ] == []


def test_a_name_that_is_no_type_runs_as_mixed_workload_and_the_answer_says_so(up: Server) -> None:
    job = up.post("/submit_job", {"name": "default"})
    assert any("'default'" in warning and "mixed_workload" in warning for warning in job["warnings"])
    ended = up.ended(job["id"])
    assert (ended["status"], ended["type"], ended["name"]) == ("completed", "mixed_workload", "default")
    assert ended["result"]["io"]["files"] == 2


def test_every_other_submission_of_that_name_waits(up: Server) -> None:
    job = up.submit("default")
    assert job["type"] == "default"
    assert "the job waits" in job["warnings"][0]
    assert up.job(job["id"])["status"] == "queued"


def test_a_type_that_a_worker_once_announced_waits_for_it_also_after_a_restart(system: System) -> None:
    server = system.serve()
    hello = {"name": "once", "threads": 1, "types": ["mine"]}
    assert server.post("/submit_job", {"name": "mine"})["type"] == "mixed_workload"
    server.post("/workers", hello)
    assert server.post("/submit_job", {"name": "mine"})["type"] == "mine"
    server.terminate()
    assert server.exit_code() == 0
    again = system.serve()
    assert again.post("/submit_job", {"name": "mine"})["type"] == "mine"
    assert again.post("/submit_job", {"name": "other"})["type"] == "mixed_workload"


def test_numbered_threads_are_the_workers_that_up_starts(up: Server) -> None:
    eventually(lambda: len(up.live_workers()) == 2, 30)
    assert {row["name"]: row["threads"] for row in up.live_workers()} == {"worker-1": 1, "worker-2": 3}
    assert "2 workers with 1 and 3 threads" in up.output


def test_an_endpoint_that_is_not_needed_is_said_to_be_so(up: Server) -> None:
    assert "WORKER_ENDPOINT is not needed" in up.output


@pytest.mark.parametrize(
    ("type", "payload", "result"),
    [
        ("AddNumbers", {"x": 1, "y": 2}, {"sum": 3}),
        ("LargeArraySum", {"array": [1, 2, 3]}, {"sum": 6}),
        ("ReverseString", {"text": "abc"}, {"reversed": "cba"}),
    ],
)
def test_types_have_the_names_of_the_source_systems_too(
    up: Server, type: str, payload: object, result: object
) -> None:
    assert up.ended(up.submit(type, payload)["id"])["result"] == result
    assert type not in {row["type"] for row in up.get("/types")["types"]}


def test_an_address_for_an_image_is_refused_in_one_line(up: Server) -> None:
    payload = {"url": "http://127.0.0.1/a.png", "width": 1, "height": 1}
    job = up.ended(up.submit("ResizeImage", payload)["id"])
    assert job["status"] == "failed"
    assert job["error"].keys() & {"traceback"} == set()
    assert "must be a data: URL" in job["error"]["message"]


def test_stats_and_metrics_have_the_names_of_the_source_systems(up: Server) -> None:
    up.ended(up.submit()["id"])
    stats = up.get("/stats")
    assert stats["success_rate_pct"] == pytest.approx(100 * stats["success_rate"], abs=0.001)
    assert stats["uptime_seconds"] == stats["uptime_sec"]
    eventually(lambda: scraped(up)["jobs_total", "completed"] >= 1)
    found = scraped(up)
    assert found["workers_registered",] == sum(
        found["workers_active", s] for s in ("available", "busy", "unavailable")
    )
    assert found["job_total", "completed"] == found["jobs_total", "completed"]
    assert ("job_retry_attempts", "worker_error") in found
    assert ("job_processing_duration_seconds_count",) in found
    assert ("stoker_uptime_seconds",) in found


def test_the_aliases_are_not_exported_unless_asked_for(system: System) -> None:
    assert all(name.startswith("stoker_") for name, *_ in scraped(system.serve()))


def scraped(server: Server) -> dict[tuple[str, ...], float]:
    """The value of each sample, by its name and label values."""
    families = text_string_to_metric_families(server.http.get("/metrics").text)
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


def test_the_parts_of_an_address_alone_start_on_postgresql(system: System, tmp_path: Path) -> None:
    parts = urlsplit(databases.url(tmp_path))
    settings: dict[str, Any] = {
        "POSTGRES_HOST": parts.hostname,
        "POSTGRES_PORT": parts.port,
        "POSTGRES_USER": unquote(parts.username or ""),
        "POSTGRES_PASSWORD": unquote(parts.password or "any"),
        "POSTGRES_DB": parts.path.lstrip("/"),
    }
    server = system.serve(database=False, **settings)
    (started,) = server.events("coordinator_started")
    assert started["database"].startswith("postgresql://")
    assert started["database_from"].startswith("POSTGRES_HOST, ")
    assert server.submit()["status"] == "queued"


@pytest.mark.parametrize("command", ["serve", "up"])
def test_a_database_that_cannot_be_reached_has_its_own_exit_code_and_names_its_setting(
    system: System, command: str
) -> None:
    done = system.run(command, "--port", 0, POSTGRES_HOST="127.0.0.1", POSTGRES_PORT=1)
    assert done.returncode == 3
    assert "the address of the database is from POSTGRES_HOST, POSTGRES_PORT" in done.stderr
