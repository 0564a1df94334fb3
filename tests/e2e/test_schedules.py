"""Schedules in a real system: declared in code, made over REST and by commands, fired by whichever coordinator looks."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stoker import Stoker
from tests.e2e.conftest import STORES
from tests.e2e.system import Server, System, eventually

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "schedules.md").read_text("utf-8")
DECLARED, AT_RUN_TIME = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def office(store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("office")
    with System(folder, STORES[store](folder)) as office:
        (folder / "reports.py").write_text(DECLARED, encoding="utf-8")
        yield office


@pytest.fixture(scope="module")
def server(office: System) -> Server:
    server = office.serve()
    office.worker(server, "--app", "reports:app")
    return server


def put(server: Server, name: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.put(f"{server.url}/schedules/{name}", json=body)


def test_what_the_code_declares_is_applied_and_fires(server: Server) -> None:
    def fired() -> list[dict[str, Any]]:
        return [
            job for job in server.jobs(type="beat", status="completed") if job.get("schedule") == "beat-fast"
        ]

    eventually(lambda: len(fired()) >= 3)
    ticks = {job["scheduled_for"] for job in fired()}
    assert len(ticks) == len(fired())
    schedules = {row["name"]: row for row in server.get("/schedules")["schedules"]}
    assert schedules.keys() >= {"beat", "beat-fast", "daily_report"}
    assert schedules["beat"]["app"] == "reports"
    assert (schedules["daily_report"]["overlap"], schedules["daily_report"]["catch_up_sec"]) == ("skip", 3600)
    assert schedules["beat-fast"]["last_status"] in ("queued", "running", "completed")
    kinds = {row["outcome"] for row in server.get("/schedules/beat-fast/ticks")["ticks"]}
    assert "fired" in kinds


def test_a_task_knows_the_tick_that_it_runs_for(server: Server) -> None:
    with Stoker(server.url) as client:
        job = client.schedules.trigger("daily_report")
        assert job.result(timeout=30).startswith("the report of 20")
        assert job.info.scheduled_for is not None
        assert str(job.info.scheduled_for) in job.result()
        why = server.get(f"/jobs/{job.id}/why")
        assert any("daily_report" in line for line in why["details"])


def test_the_python_of_the_page_runs_as_it_stands(office: System, server: Server) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_RUN_TIME],
        cwd=office.folder,
        env=office.environ({"STOKER_API_URL": server.url}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("datetime.datetime(") == 3


def test_commands(office: System, server: Server) -> None:
    def run(*args: object) -> str:
        done = office.run("schedules", *args, STOKER_API_URL=server.url)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "active" in run(
        "set", "digest", "echo", '{"n": 1}', "--cron", "0 9 * * 1-5", "--timezone", "Europe/Berlin"
    )
    assert "digest" in run()
    assert run("next", "digest", "--count", 2).count("09:00 Europe/Berlin") == 2
    assert len(json.loads(run("next", "digest", "--json"))["times"]) == 10
    assert "paused" in run("pause", "digest")
    job = run("trigger", "digest").strip()
    assert server.ended(job)["result"] == {"n": 1}
    assert "(trigger)" in run("show", "digest")
    assert "active" in run("resume", "digest")
    told = run("backfill", "digest", "--from", "2026-01-05T00:00:00Z", "--to", "2026-01-06T00:00:00Z")
    assert told.startswith("1 jobs made")
    assert max(map(len, run("list").splitlines())) <= 120
    assert "deleted" in run("delete", "digest")
    assert json.loads(run("prune", "--json"))["orphaned"] == []
    rules = [
        "--unique-key",
        "k",
        "--on-conflict",
        "replace",
        "--unique-until",
        "started",
        "--expires-in",
        30,
        "--deadline",
        90,
    ]
    rules += [
        "--timeout",
        20,
        "--soft-timeout",
        10,
        "--backoff",
        "fixed",
        "--retry-base",
        3,
        "--retry-jitter",
        0.5,
    ]
    rules += ["--retry-never", "ValueError", "--keep", 60, "--label", "zone=eu", "--metadata", "customer=42"]
    job = json.loads(run("set", "ruled", "echo", "--every", 900, *rules, "--json"))["job"]
    assert {name: value for name, value in job.items() if value is not None} == {
        "type": "echo",
        "unique_key": "k",
        "on_conflict": "replace",
        "unique_until": "started",
        "expires_in_sec": 30.0,
        "deadline_sec": 90.0,
        "timeout_sec": 20.0,
        "soft_timeout_sec": 10.0,
        "retry": {"backoff": "fixed", "base_sec": 3.0, "jitter": 0.5, "never": ["ValueError"]},
        "keep_sec": 60.0,
        "labels": {"zone": "eu"},
        "metadata": {"customer": "42"},
    }
    run("delete", "ruled")
    bad = office.run("schedules", "set", "x", "echo", "--cron", "0 0 31 2 *", STOKER_API_URL=server.url)
    assert (bad.returncode, "cron" in bad.stderr) == (4, True)


@pytest.mark.parametrize(
    ("name", "changes", "field"),
    [
        ("x", {"cron": "0 0 31 2 *"}, "cron"),
        ("x", {"cron": "* * * *"}, "cron"),
        ("x", {"cron": "* * * * *", "every_sec": 5}, "every_sec"),
        ("x", {}, "cron"),
        ("x", {"every_sec": 0.1}, "every_sec"),
        ("x", {"cron": "@daily", "timezone": "Mars/Base"}, "timezone"),
        ("x", {"cron": "@daily", "overlap": "maybe"}, "overlap"),
        ("x", {"cron": "@daily", "catch_up_max": 0}, "catch_up_max"),
        ("x", {"cron": "@daily", "start_at": "tomorrow"}, "start_at"),
        ("x", {"cron": "@daily", "job": {"type": "a b"}}, "job.type"),
        ("x", {"cron": "@daily", "job": {"run_at": "2030-01-01T00:00:00Z"}}, "job.run_at"),
        ("x", {"cron": "@daily", "job": {"idempotency_key": "k"}}, "job.idempotency_key"),
        ("x", {"cron": "@daily", "job": {"on_conflict": "reject"}}, "job.on_conflict"),
        ("x", {"cron": "@daily", "job": None}, "job"),
        ("a%20b", {"cron": "@daily"}, "name"),
    ],
)
def test_bad_input_names_its_field(server: Server, name: str, changes: dict[str, Any], field: str) -> None:
    body = {"job": {"type": "echo"}} | changes
    answer = put(server, name, {key: value for key, value in body.items() if value is not None})
    assert answer.status_code == 422, answer.text
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_rest(server: Server) -> None:
    made = put(server, "r", {"every_sec": 3600, "job": {"type": "echo", "payload": 7}, "paused": True})
    assert (made.status_code, made.json()["paused"], made.json()["next_run_at"]) == (201, True, None)
    assert put(server, "r", {"every_sec": 3600, "job": {"type": "echo"}}).json()["paused"] is True
    assert server.post("/schedules/r/resume")["next_run_at"] is not None
    assert len(server.get("/schedules/r/next", count=3)["times"]) == 3
    assert httpx.get(f"{server.url}/schedules/nobody").status_code == 404
    shown = server.get("/schedules/preview", cron="0 9 * * 1-5", timezone="Europe/Berlin", count=5)
    assert len(shown["times"]) == 5
    refused = httpx.get(f"{server.url}/schedules/preview", params={"cron": "nonsense"})
    assert refused.json()["errors"][0]["field"] == "cron"
    page = server.get("/schedules", limit=1)
    assert (len(page["schedules"]), page["next_cursor"]) == (1, page["schedules"][0]["name"])
    assert httpx.delete(f"{server.url}/schedules/r").status_code == 200
    assert httpx.delete(f"{server.url}/schedules/r").status_code == 404


def test_what_vanished_from_the_code_is_orphaned_and_pruned(office: System, server: Server) -> None:
    shorter = DECLARED.replace("version=1", "version=2").replace(
        '@app.every(900, name="beat"', '@app.every(60, name="beat-new"'
    )
    (office.folder / "later.py").write_text(shorter, encoding="utf-8")
    office.worker(server, "--app", "later:app")
    eventually(lambda: server.get("/schedules", orphaned="true")["schedules"] != [])
    done = office.run("schedules", "prune", STOKER_API_URL=server.url)
    assert done.stdout.split() == ["beat"]
