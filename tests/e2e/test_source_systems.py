"""The scripts in `examples/source-systems`; the worker there is run by `test_run_worker.py`, the runner also by
`test_executors.py`."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.system import Server, System

EXAMPLES = Path(__file__).parents[2] / "examples" / "source-systems"
pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="the scripts need curl")


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[System, Server]]:
    """A coordinator with a worker that gives every type to the plain-text runner."""
    with System(tmp_path_factory.mktemp("office")) as office:
        server = office.serve()
        office.worker(server, app=None, threads=4, EXECUTION_BINARY=EXAMPLES / "runner.sh")
        yield office, server


def run(office: System, server: Server, script: str, *args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(EXAMPLES / script), *map(str, args)],
        env=office.environ({"API_URL": server.url}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_curl_lines_complete(office: tuple[System, Server]) -> None:
    done = run(*office, "submit.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all completed\n")
    assert done.stdout.count(" completed\n") == 6


def test_waves_of_jobs_with_text_payloads_complete(office: tuple[System, Server]) -> None:
    _, server = office
    done = run(*office, "load.sh", 30, 25)
    assert (done.returncode, done.stdout) == (0, "25 submitted\n30 submitted\n30 of 30 completed\n"), (
        done.stderr
    )
    jobs = list(server.jobs(type="network_task"))
    assert sorted(job["result"] for job in jobs) == [
        f"OK:task {n}" for n in sorted([3, 8, 13, 18, 23, 28], key=str)
    ]


def test_the_load_script_tells_when_a_job_did_not_complete(office: tuple[System, Server]) -> None:
    system, _ = office
    refused = subprocess.run(
        [str(EXAMPLES / "load.sh"), "1", "1"],
        env=system.environ({"API_URL": "http://127.0.0.1:9"}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (refused.returncode, refused.stdout) == (1, "1 submitted\n0 of 1 completed\n")
