"""Who may call, and settings that make no sense."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.system import Server, System, free_port

TOKEN = "correct-horse-battery-staple"
METHODS = {"get", "post", "put", "patch", "delete"}


@pytest.fixture(scope="module")
def guarded_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with System(tmp_path_factory.mktemp("guarded")) as system:
        yield system


@pytest.fixture(scope="module")
def guarded(guarded_system: System) -> Server:
    """A server that asks for a token, and listens on all addresses."""
    return guarded_system.serve("--host", "0.0.0.0", token=TOKEN)


def test_every_documented_route_but_health_and_ready_asks_for_the_token(guarded: Server) -> None:
    paths = guarded.get("/openapi.json")["paths"]
    routes = [(method, path) for path, methods in paths.items() for method in methods if method in METHODS]
    assert len(routes) > 20
    wrong: list[dict[str, str]] = [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}]
    with httpx.Client(base_url=guarded.url) as stranger:
        for method, path in routes:
            url = path.replace("{id}", "0199a5c1-7b0e-7c61-b6a5-0d3f6b8f2a11")
            for headers in wrong:
                answer = stranger.request(method, url, headers=headers, json={} if method == "post" else None)
                allowed = (200, 503) if path in ("/health", "/ready") else (401,)
                assert answer.status_code in allowed, f"{method} {path} → {answer.status_code}"
                assert TOKEN not in answer.text


def test_unknown_paths_tell_strangers_nothing(guarded: Server) -> None:
    assert httpx.get(f"{guarded.url}/no-such-path").status_code == 401
    assert guarded.http.get("/no-such-path").status_code == 404


def test_a_worker_with_the_token_works_and_one_without_is_refused(
    guarded_system: System, guarded: Server
) -> None:
    tokens: list[dict[str, Any]] = [{}, {"STOKER_TOKEN": "not-the-right-token-at-all"}]
    for token in tokens:
        stranger = guarded_system.start_worker(guarded, **token)
        assert stranger.exit_code() != 0
        assert "STOKER_TOKEN" in stranger.output
    assert guarded.http.get("/ready").status_code == 503
    guarded_system.worker(guarded, STOKER_TOKEN=TOKEN)
    assert guarded.ended(guarded.submit("add", {"x": 1, "y": 2})["id"])["result"] == 3
    assert guarded.http.get("/ready").status_code == 200


def test_the_command_line_reads_the_token_from_the_environment(
    guarded_system: System, guarded: Server
) -> None:
    without = guarded_system.run("stats", "--url", guarded.url)
    assert without.returncode == 4
    assert "STOKER_TOKEN" in without.stderr or "token" in without.stderr
    assert guarded_system.run("stats", "--url", guarded.url, STOKER_TOKEN=TOKEN).returncode == 0


def test_the_token_is_in_no_log(guarded_system: System, guarded: Server) -> None:
    httpx.get(f"{guarded.url}/stats", headers={"Authorization": f"Bearer {TOKEN}x"})
    for log in guarded_system.folder.glob("*.log"):
        assert TOKEN not in log.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["serve", "up"])
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"MIN_WORKERS": 5, "MAX_WORKERS": 2}, ["MIN_WORKERS", "MAX_WORKERS"]),
        ({"STOKER_MIN_WORKERS": 5, "MAX_WORKERS": 2}, ["MIN_WORKERS", "MAX_WORKERS"]),
        ({"STOKER_HOST": "0.0.0.0"}, ["STOKER_HOST", "STOKER_TOKEN"]),
        ({"STOKER_HOST": "::"}, ["STOKER_HOST", "STOKER_TOKEN"]),
        ({"STOKER_HOST": "192.0.2.1"}, ["STOKER_HOST", "STOKER_TOKEN"]),
        ({"API_PORT": "http"}, ["API_PORT"]),
        (
            {"RATE_LIMIT_JOBS_PER_MIN": -1, "PRIORITY_ORDER": "random"},
            ["RATE_LIMIT_JOBS_PER_MIN", "PRIORITY_ORDER"],
        ),
        ({"DATABASE_URL": "mysql://nowhere"}, ["DATABASE_URL"]),
        ({"STOKER_TOKEN": "short"}, ["STOKER_TOKEN"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_settings_that_make_no_sense_refuse_to_start_by_name(
    guarded_system: System, command: str, settings: dict[str, object], named: list[str]
) -> None:
    refused = guarded_system.run(command, **{"API_PORT": free_port(), **settings})
    assert refused.returncode != 0
    assert [name for name in named if name not in refused.stderr] == []
    assert "Traceback" not in refused.stderr


def test_a_taken_port_and_a_database_in_use_are_told_plainly(guarded_system: System, guarded: Server) -> None:
    taken = guarded_system.run("serve", "--port", guarded.port, "--database", "sqlite:///other.db")
    assert (taken.returncode != 0, str(guarded.port) in taken.stderr) == (True, True)
    in_use = guarded_system.run("serve", "--port", free_port(), "--database", guarded_system.database)
    assert (in_use.returncode != 0, "in use" in in_use.stderr) == (True, True)


def test_an_app_that_cannot_be_imported_ends_the_worker_with_the_reason(
    guarded_system: System, guarded: Server
) -> None:
    for app, reason in (("no_such_module:app", "no_such_module"), ("jobs_app:nothing", "nothing")):
        worker = guarded_system.start_worker(guarded, app=app, STOKER_TOKEN=TOKEN)
        assert worker.exit_code() == 1
        assert reason in worker.output
