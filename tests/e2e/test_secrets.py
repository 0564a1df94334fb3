"""What the processes of jobs can see of Stoker's own secrets: nothing; and tasks still submit jobs of their own."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.e2e.system import Server, System, Worker, descendants

TOKEN = "canary-token-0123456789"
SECRETS = {
    "STOKER_TOKEN": TOKEN,
    "STOKER_DATABASE_URL": "postgresql://stoker:canary-password@127.0.0.1:1/stoker",
    "REDIS_URL": "redis://:canary-redis@127.0.0.1:1/0",
    "REDIS_ADDR": "canary-address:1",
}
CANARIES = ("canary-token", "canary-password", "canary-redis", "canary-address")
APP = """
    import os, subprocess, sys
    from stoker import Stoker
    app = Stoker()
    early = app.transport

    @app.task
    def add(x: int, y: int) -> int:
        return x + y

    @app.task
    def delegates() -> list[int]:
        return [add.submit(1, 2).result(timeout=10), Stoker().submit("add", {"x": 2, "y": 3}).result(timeout=10)]

    @app.task
    async def delegates_soon() -> str:
        return (await add.submit_async(1, 2)).id

    @app.task
    def environment() -> dict[str, str]:
        return dict(os.environ)

    @app.task
    def environment_of_a_program() -> str:
        return subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
"""
RUNNER = """\
#!{python}
import json, os, sys
print("look" if "--types" in sys.argv else json.dumps(dict(os.environ)))
"""
SHOW = "import json, os; print(json.dumps(dict(os.environ)))"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[System, Server, Worker]]:
    with System(tmp_path_factory.mktemp("secrets")) as system:
        (system.folder / "secret_app.py").write_text(dedent(APP))
        server = system.serve(token=TOKEN)
        commands = json.dumps({"show": [sys.executable, "-c", SHOW]})
        worker = system.worker(
            server,
            threads=2,
            app="secret_app:app",
            STOKER_COMMANDS=commands,
            DATABASE_URL="postgresql://shop@127.0.0.1:1/shop",
            **SECRETS,
        )
        yield system, server, worker


def test_no_process_of_a_worker_has_a_secret_in_its_environment(shop: tuple[System, Server, Worker]) -> None:
    _, server, worker = shop
    server.ended(server.submit("delegates_soon", {})["id"])
    server.ended(server.submit("echo", 1)["id"])
    family = descendants(worker.pid)
    assert len(family) >= 4, "two Python children, an async one, the guardian"
    for pid in family:
        environ = Path(f"/proc/{pid}/environ").read_bytes().decode()
        command_line = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
        assert not [canary for canary in CANARIES if canary in environ + command_line], command_line


@pytest.mark.parametrize("type", ["environment", "environment_of_a_program", "show"])
def test_a_job_inherits_the_rest(shop: tuple[System, Server, Worker], type: str) -> None:
    _, server, _ = shop
    seen = json.dumps(server.ended(server.submit(type, {})["id"])["result"])
    assert not [canary for canary in CANARIES if canary in seen]
    assert "postgresql://shop@127.0.0.1:1/shop" in seen, "which is not Stoker's"
    assert "E2E_JOURNAL" in seen


def test_a_task_submits_jobs_of_its_own(shop: tuple[System, Server, Worker]) -> None:
    _, server, _ = shop
    assert server.ended(server.submit("delegates", {})["id"])["result"] == [3, 5]
    later = server.ended(server.submit("delegates_soon", {})["id"])["result"]
    assert server.ended(later)["result"] == 3


def test_a_foreign_runner_gets_nothing(shop: tuple[System, Server, Worker]) -> None:
    system, server, _ = shop
    runner = system.folder / "runner.py"
    runner.write_text(RUNNER.format(python=sys.executable))
    runner.chmod(0o755)
    worker = system.worker(server, app=None, EXECUTION_BINARY=str(runner), **SECRETS)  # type: ignore[arg-type]
    seen = json.dumps(server.ended(server.submit("look", {})["id"])["result"])
    assert "E2E_JOURNAL" in seen
    assert not [canary for canary in CANARIES if canary in seen]
    worker.kill()


def test_workers_of_up_run_tasks_that_submit(tmp_path: Path) -> None:
    with System(tmp_path) as system:
        (system.folder / "secret_app.py").write_text(dedent(APP))
        server = system.up("--workers", "1", "--app", "secret_app:app", token=TOKEN)
        assert server.ended(server.submit("delegates", {})["id"])["result"] == [3, 5]
