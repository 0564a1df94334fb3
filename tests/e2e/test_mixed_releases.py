"""A coordinator and a worker of two releases, as during an upgrade: jobs run, in batches and one by one, and nothing
bounces.

The other release is the one of `OTHER`, taken from the history of this repository. Where the history does not have it (a
shallow clone, an archive) these tests are skipped, also in CI: what `tests/unit/test_releases.py` holds from a recording of
that release is what always runs.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.system import Server, System, eventually

OTHER: Final = "415fc45"
ROOT: Final = Path(__file__).parents[2]
FIRST_ON_THE_PATH: Final = """
import sys

# An editable install finds this repository's sources before anything on the path.
sys.meta_path[:] = [finder for finder in sys.meta_path if "stoker" not in type(finder).__module__]
"""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the sources of the other release, to be put on the path of its processes."""
    folder = tmp_path_factory.mktemp("release")
    archive = subprocess.run(
        ["git", "archive", OTHER, "src"], cwd=ROOT, capture_output=True, check=False, timeout=60
    )
    if archive.returncode != 0:
        pytest.skip(f"the history of this checkout does not have {OTHER}; git fetch --unshallow gets it")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True, timeout=60)
    (folder / "src" / "sitecustomize.py").write_text(FIRST_ON_THE_PATH, encoding="utf-8")
    source = subprocess.run(
        [sys.executable, "-c", "import stoker; print(stoker.__file__)"],
        env={"PYTHONPATH": str(folder / "src")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert source.stdout.startswith(str(folder)), "its processes would run the sources of this checkout"
    return str(folder / "src")


def jobs_run(server: Server) -> None:
    """A batch of short jobs, which travel in batches, and one alone; none of them is handed back or tried twice."""
    batch = [{"type": "add", "payload": {"x": n, "y": n}} for n in range(300)]
    ids = [job["id"] for job in server.post("/jobs/batch", {"jobs": batch})["jobs"]]
    ids.append(server.submit("add", {"x": 300, "y": 300})["id"])
    ended = [server.ended(id) for id in ids]
    assert [(job["status"], job["result"]) for job in ended] == [("completed", 2 * n) for n in range(301)]
    assert {job["claim_id"] for job in ended} == {1}


def test_an_earlier_worker_serves_this_coordinator(system: System, other: str) -> None:
    server = system.serve()
    worker = system.worker(server, PYTHONPATH=other)
    jobs_run(server)
    assert worker.running
    worker.terminate()
    assert worker.exit_code() == 0


def test_this_worker_serves_an_earlier_coordinator(system: System, other: str) -> None:
    """The coordinator refuses a hello with fields that it does not know, so hello is said again without them."""
    server = system.serve(PYTHONPATH=other)
    worker = system.worker(server)
    jobs_run(server)
    assert worker.events("coordinator_older"), worker.output
    worker.terminate()
    assert worker.exit_code() == 0


def test_a_worker_outlives_the_upgrade_of_its_coordinator(system: System, other: str) -> None:
    """Its session began without a secret, and goes on without one."""
    server = system.serve(PYTHONPATH=other)
    worker = system.worker(server)
    jobs_run(server)
    server.kill()
    upgraded = system.serve(port=server.port)
    eventually(lambda: worker.pid in {row["pid"] for row in upgraded.live_workers()}, 30)
    jobs_run(upgraded)
    assert worker.running, worker.output
