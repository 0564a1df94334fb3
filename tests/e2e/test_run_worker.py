"""Workers of the `/run` shapes: they know an id and an endpoint, and nothing of claims."""

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import HEARTBEAT_TIMEOUT_SECONDS, RETRY_BASE_SECONDS
from tests.e2e.system import Job, Program, Server, System, eventually, free_port
from tests.e2e.test_push_worker import Site

SCRIPT = Path(__file__).parents[2] / "examples" / "source-systems" / "worker.py"


class Runner:
    """A worker on a site that does what a test says, and beats."""

    def __init__(self, server: Server, site: Site, id: str) -> None:
        self.server = server
        self.id = id
        self.path = f"/{id}/run"
        self.endpoint = f"{site.url}/{id}"
        self.site = site
        self.sent: list[Job] = []
        self.arrived = threading.Semaphore(0)
        site.answers[self.path] = self._accept
        self._silent = threading.Event()
        self._thread = threading.Thread(target=self._beat)
        self.welcome = self.register()
        self._thread.start()

    def register(self) -> httpx.Response:
        return self.server.http.post("/workers", json={"id": self.id, "endpoint": self.endpoint})

    def _beat(self) -> None:
        while not self._silent.wait(HEARTBEAT_TIMEOUT_SECONDS / 5):
            self.server.http.post("/workers/heartbeat", json={"id": self.id})

    def _accept(self, job: Job) -> tuple[int, Any]:
        self.sent.append(job)
        self.arrived.release()
        return 204, None

    def next_job(self) -> Job:
        assert self.arrived.acquire(timeout=20), self.server.output[-4000:]
        return self.sent[-1]

    def complete(self, job: Job, **outcome: Any) -> httpx.Response:
        return self.server.http.post(f"/jobs/{job['job_id']}/complete", json={"success": True, **outcome})

    def close(self) -> None:
        self._silent.set()
        self._thread.join()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with System(tmp_path_factory.mktemp("yard")) as yard:
        yield yard


@pytest.fixture(scope="module")
def server(yard: System, site: Site, port: int) -> Server:
    return yard.serve(
        STOKER_ENDPOINTS=f"{site.url},http://127.0.0.1:{port}",
        WORKER_HEARTBEAT_TIMEOUT_SEC=HEARTBEAT_TIMEOUT_SECONDS,
        STOKER_RETRY_BACKOFF_BASE_SEC=RETRY_BASE_SECONDS,
    )


@pytest.fixture
def join(server: Server, site: Site) -> Iterator[Callable[[str], Runner]]:
    """Joins workers, which leave with the test."""
    runners: list[Runner] = []

    def join(id: str) -> Runner:
        runners.append(Runner(server, site, id))
        return runners[-1]

    yield join
    for runner in runners:
        runner.close()
        server.post(f"/workers/{runner.id}/drain")


def test_a_script_of_forty_lines_runs_jobs_is_killed_and_its_job_runs_elsewhere(
    yard: System, server: Server, port: int, join: Callable[[str], Runner]
) -> None:
    argv = [sys.executable, SCRIPT, server.url, port, "script"]
    script = Program(argv, folder=yard.folder, env=yard.environ({}), log=yard.folder / "script.log")
    eventually(lambda: [w for w in server.live_workers() if w["name"] == "script"], 15, lambda: script.output)
    (row,) = server.live_workers()
    assert (row["threads"], row["any_type"], row["types"]) == (1, True, [])
    jobs = [server.submit(f"odd-{n % 3}", f"text {n}") for n in range(19)]
    jobs.append(server.post("/jobs", {"payload": {"a": 1}}))
    done = [server.ended(job["id"]) for job in jobs]
    assert [job["result"] for job in done[:19]] == [f"script ran odd-{n % 3}: text {n}" for n in range(19)]
    assert done[-1]["result"] == 'script ran echo: {"a":1}'
    assert {job["attempt"] for job in done} == {1}
    broken = server.ended(server.submit("broken", "it", max_attempts=1)["id"])
    assert (broken["status"], broken["error"]["message"]) == ("failed", "cannot run it")

    slow = server.submit("slow", "600")
    server.started(slow["id"])
    script.kill()
    other = join("other")
    sent = other.next_job()
    assert (sent["type"], sent["payload"]) == ("slow", "600")
    assert other.complete(sent, result="elsewhere").status_code == 200
    ended = server.ended(slow["id"])
    assert (ended["result"], ended["attempt"], ended["claim_id"]) == ("elsewhere", 2, 2)


def test_the_shapes_are_those_of_the_protocol_page(server: Server, join: Callable[[str], Runner]) -> None:
    runner = join("shapes")
    assert runner.welcome.status_code == 200
    assert runner.welcome.json()["id"] == "shapes"
    job = server.submit("odd", "hello", timeout_sec=30)
    sent = runner.next_job()
    assert sent == {"job_id": f"{job['id']}.1", "type": "odd", "payload": "hello", "timeout_sec": 30}
    assert server.get(f"/jobs/{sent['job_id']}")["id"] == job["id"]
    assert server.http.get(f"/jobs/{job['id']}.7").status_code == 409
    answer = runner.complete(sent, result="fine")
    assert (answer.status_code, answer.json()) == (200, {"job_id": sent["job_id"], "accepted": True})
    assert runner.complete(sent, result="fine").status_code == 200, "a report may be sent again"
    assert server.ended(job["id"])["result"] == "fine"
    assert server.http.post("/workers/heartbeat", json={"id": "shapes"}).status_code == 200
    assert server.http.post("/workers/heartbeat", json={"id": "nobody"}).status_code == 404


def test_registering_again_gives_its_jobs_back_and_fences_the_old_ones(
    server: Server, join: Callable[[str], Runner]
) -> None:
    runner = join("twice")
    job = server.submit("odd", "again")
    first = runner.next_job()
    assert runner.register().status_code == 200
    second = runner.next_job()
    assert (first["job_id"], second["job_id"]) == (f"{job['id']}.1", f"{job['id']}.2")
    late = runner.complete(first, result="late")
    assert (late.status_code, late.json()["type"]) == (409, "urn:stoker:problem:conflict")
    assert server.http.post(f"/jobs/{first['job_id']}/cancel").status_code == 409
    assert runner.complete(second, result="in time").status_code == 200
    assert server.ended(job["id"])["result"] == "in time"
    assert len([w for w in server.live_workers() if w["name"] == "twice"]) == 1


def test_a_cancel_ends_the_job_at_once_and_its_report_is_refused(
    server: Server, join: Callable[[str], Runner]
) -> None:
    runner = join("cancelled")
    job = server.submit("odd", "x")
    sent = runner.next_job()
    server.started(job["id"])
    server.post(f"/jobs/{job['id']}/cancel")
    assert server.ended(job["id"], within=3)["status"] == "cancelled"
    assert runner.complete(sent, result="too late").status_code == 409


def test_it_is_offered_no_type_that_another_worker_names(
    yard: System, server: Server, join: Callable[[str], Runner]
) -> None:
    runner = join("modest")
    worker = yard.worker(server, app=None)
    assert server.ended(server.submit("echo", "mine")["id"])["result"] == "mine"
    odd = server.submit("odd", "yours")
    assert runner.next_job()["job_id"] == f"{odd['id']}.1"
    assert len(runner.sent) == 1
    runner.complete(runner.sent[0])
    assert server.ended(odd["id"])["result"] is None
    worker.kill()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"id": "x", "endpoint": "http://10.0.0.1:9"}, 403),
        ({"id": "", "endpoint": "http://127.0.0.1:9"}, 422),
        ({"id": "x", "endpoint": "nowhere"}, 422),
        ({"id": "x", "endpoint": "http://127.0.0.1:9", "threads": 4, "types": ["a"]}, 422),
        ({"id": "x"}, 422),
    ],
)
def test_other_registrations_are_refused_with_a_reason(server: Server, body: Job, status: int) -> None:
    answer = server.http.post("/workers", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


def test_a_job_that_is_at_no_such_worker_cannot_be_completed(yard: System, server: Server) -> None:
    worker = yard.worker(server, app=None)
    job = server.submit("sleep", {"seconds": 30})
    server.until(job["id"], "running")
    for ref, status in ((f"{job['id']}.1", 409), (f"{job['id']}.2", 409), (job["id"], 404), ("x.1", 404)):
        answer = server.http.post(f"/jobs/{ref}/complete", json={"success": True, "result": "mine"})
        assert answer.status_code == status, ref
    server.post(f"/jobs/{job['id']}/cancel")
    worker.kill()
