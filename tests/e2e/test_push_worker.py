"""Workers that are web services: the coordinator sends them each job, if the operator has listed them."""

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from stoker.ids import new_id
from tests.e2e.conftest import HEARTBEAT_TIMEOUT_SECONDS, RETRY_BASE_SECONDS
from tests.e2e.system import Job, Program, Server, System, eventually, free_port

SCRIPT = Path(__file__).with_name("web_worker.py")
Answer = tuple[int, Any]


class Site:
    """A web service in this process. Each test has a path of its own on it, and decides what is answered there."""

    def __init__(self, port: int = 0) -> None:
        self.answers: dict[str, Callable[[Job], Answer]] = {}
        self.requests: list[tuple[str, Job]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                site.requests.append((self.path, job))
                status, answer = site.answers[self.path](job)
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", answer)
                self.end_headers()
                try:
                    self.wfile.write(json.dumps(answer).encode())
                except ConnectionError:
                    pass

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def jobs(self, path: str) -> list[Job]:
        return [job for at, job in self.requests if at == path]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Pushed:
    """A worker on a site: registers an endpoint, and beats until it is told to be silent."""

    def __init__(
        self, server: Server, site_url: str, queue: str, *, threads: int = 2, beats: bool = True
    ) -> None:
        self.server = server
        self.path = f"/{queue}"
        self.orders: list[dict[str, Any]] = []
        hello = {"name": f"web-{queue}", "threads": threads, "types": ["weld"], "queues": [queue]}
        self.welcome = server.post("/workers", {**hello, "endpoint": f"{site_url}{self.path}"})
        self.id: str = self.welcome["id"]
        self._silent = threading.Event()
        self._thread = threading.Thread(target=self._beat) if beats else None
        if self._thread is not None:
            self._thread.start()

    def _beat(self) -> None:
        while not self._silent.wait(HEARTBEAT_TIMEOUT_SECONDS / 5):
            self.orders.append(self.server.post(f"/workers/{self.id}/heartbeat", {}))

    def report(self, job: Job, **more: Any) -> Any:
        report = {"id": job["id"], "claim_id": job["claim_id"], "outcome": "completed", **more}
        return self.server.http.post(f"/workers/{self.id}/report", json={"reports": [report]})

    def close(self) -> None:
        self._silent.set()
        if self._thread is not None:
            self._thread.join()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {"script": free_port(), "down": free_port()}


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with System(tmp_path_factory.mktemp("yard")) as yard:
        yield yard


SETTINGS: dict[str, Any] = {
    "WORKER_HEARTBEAT_TIMEOUT_SEC": HEARTBEAT_TIMEOUT_SECONDS,
    "STOKER_RETRY_BACKOFF_BASE_SEC": RETRY_BASE_SECONDS,
}


@pytest.fixture(scope="module")
def pusher(yard: System, site: Site, ports: dict[str, int]) -> Server:
    """A coordinator that may dial the site, and two ports that others use."""
    listed = [
        site.url,
        f"http://127.0.0.1:{ports['script']}/jobs",
        f"http://127.0.0.1:{ports['down']}",
    ]
    return yard.serve(STOKER_ENDPOINTS=",".join(listed), **SETTINGS)


@pytest.fixture
def queue() -> str:
    return f"q-{new_id()[-12:]}"


@pytest.fixture
def worker(pusher: Server, site: Site, queue: str) -> Iterator[Pushed]:
    worker = Pushed(pusher, site.url, queue)
    yield worker
    worker.close()


class Held:
    """An answer that waits until a test lets it go, and knows when it was asked for."""

    def __init__(self, answer: Answer) -> None:
        self.asked = threading.Event()
        self.let_go = threading.Event()
        self._answer = answer

    def __call__(self, job: Job) -> Answer:
        self.asked.set()
        self.let_go.wait(30)
        return self._answer


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held((200, {"result": "too late"}))
    yield held
    held.let_go.set()


# ── the service that anybody might write ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def script(yard: System, pusher: Server, ports: dict[str, int]) -> Iterator[Program]:
    argv = [sys.executable, SCRIPT, pusher.url, ports["script"], "script"]
    program = Program(argv, folder=yard.folder, env=yard.environ({}), log=yard.folder / "script.log")
    eventually(lambda: [w for w in pusher.live_workers() if w["name"] == "web"], 15, lambda: program.output)
    yield program
    program.kill()


@pytest.mark.usefixtures("script")
def test_a_small_web_service_runs_jobs_by_push(pusher: Server, ports: dict[str, int]) -> None:
    job = pusher.submit("shout", "hello", queue="script")
    done = pusher.ended(job["id"])
    assert (done["status"], done["result"], done["attempt"]) == ("completed", "HELLO", 1)
    (row,) = [row for row in pusher.live_workers() if row["name"] == "web"]
    assert (row["endpoint"], row["id"]) == (f"http://127.0.0.1:{ports['script']}/jobs", done["worker_id"])


@pytest.mark.usefixtures("script")
def test_its_failures_are_retried_with_backoff(pusher: Server) -> None:
    done = pusher.ended(pusher.submit("stumble", queue="script")["id"])
    assert (done["status"], done["result"]) == ("completed", {"attempt": 3})
    assert [(a["outcome"], a["charged"]) for a in done["attempts"]] == [
        ("error", True),
        ("error", True),
        ("completed", True),
    ]


@pytest.mark.usefixtures("script")
def test_it_may_report_later(pusher: Server) -> None:
    jobs = [pusher.submit("slow", n, queue="script") for n in range(6)]
    for job in jobs:
        done = pusher.ended(job["id"])
        assert (done["status"], done["result"], done["attempt"]) == ("completed", "at last", 1)


# ── who is dialled ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_that_is_not_listed_is_refused_and_never_dialled(pusher: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}/jobs"
        hello = {"name": "stranger", "threads": 1, "types": ["odd"], "endpoint": endpoint}
        answer = pusher.http.post("/workers", json=hello)
        document = answer.json()
        assert (answer.status_code, document["type"]) == (403, "urn:stoker:problem:endpoint-not-listed")
        assert "STOKER_ENDPOINTS" in document["detail"]
        assert [error["field"] for error in document["errors"]] == ["endpoint"]
        assert not [w for w in pusher.get("/workers")["workers"] if w["name"] == "stranger"]
        assert pusher.submit("odd")["warnings"], "nobody serves it"
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_nobody_is_listed_by_default(server: Server) -> None:
    hello = {"name": "stranger", "threads": 1, "types": ["odd"], "endpoint": "http://127.0.0.1:9/jobs"}
    assert server.http.post("/workers", json=hello).status_code == 403


def test_a_redirect_is_not_followed(pusher: Server, site: Site, queue: str, worker: Pushed) -> None:
    site.answers[worker.path] = lambda job: (302, f"{site.url}/elsewhere")
    site.answers["/elsewhere"] = lambda job: (200, {"result": "gotcha"})
    done = pusher.ended(pusher.submit("weld", queue=queue, max_attempts=1)["id"])
    assert (done["status"], done["error"]["type"]) == ("failed", "bad_answer")
    assert site.jobs("/elsewhere") == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((200, {"result": "x" * 5_000_000}), "result_too_large"),
        ((500, ["x" * 5_000_000]), "bad_answer"),
        ((200, "just text"), "bad_answer"),
        ((200, {"error": {"type": "x", "message": ["y"]}}), "bad_answer"),
        ((418, {}), "bad_answer"),
        ((422, {"error": {"type": "Bent", "message": "no use", "retryable": False}}), "Bent"),
    ],
)
def test_other_answers_fail_the_job_and_hurt_nobody(
    pusher: Server, site: Site, queue: str, worker: Pushed, answer: Answer, error: str
) -> None:
    site.answers[worker.path] = lambda job: answer
    done = pusher.ended(pusher.submit("weld", queue=queue, max_attempts=1)["id"])
    assert (done["status"], done["error"]["type"]) == ("failed", error)
    site.answers[worker.path] = lambda job: (200, {"result": "fine"})
    assert pusher.ended(pusher.submit("weld", queue=queue)["id"])["result"] == "fine"


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_slow_answer_ends_as_a_timeout(
    pusher: Server, site: Site, queue: str, worker: Pushed, held: Held
) -> None:
    site.answers[worker.path] = held
    job = pusher.submit("weld", queue=queue, timeout_sec=0.5, max_attempts=1)
    done = pusher.ended(job["id"])
    assert (done["status"], done["error"]["type"]) == ("failed", "timeout")
    (attempt,) = done["attempts"]
    assert attempt["outcome"] == "timeout"
    revoked = eventually(lambda: [c for orders in worker.orders for c in orders["revoked"]], 5)
    assert revoked == [{"id": job["id"], "claim_id": 1}]


def test_a_request_may_last_many_leases_while_its_worker_beats(
    pusher: Server, site: Site, queue: str, worker: Pushed, held: Held
) -> None:
    site.answers[worker.path] = held
    job = pusher.submit("weld", queue=queue)
    pusher.started(job["id"])
    beats = len(worker.orders) + 15
    eventually(lambda: len(worker.orders) >= beats, 20, "three leases to pass")
    assert pusher.status(job["id"]) == "running"
    held.let_go.set()
    done = pusher.ended(job["id"])
    assert (done["result"], done["attempt"]) == ("too late", 1)


def test_a_cancel_ends_the_job_at_once(
    pusher: Server, site: Site, queue: str, worker: Pushed, held: Held
) -> None:
    site.answers[worker.path] = held
    job = pusher.submit("weld", queue=queue)
    assert held.asked.wait(10)
    pusher.post(f"/jobs/{job['id']}/cancel")
    assert pusher.ended(job["id"], within=3)["status"] == "cancelled"
    held.let_go.set()
    site.answers[worker.path] = lambda job: (200, {"result": "next"})
    assert pusher.ended(pusher.submit("weld", queue=queue)["id"])["result"] == "next"
    assert pusher.status(job["id"]) == "cancelled"


def test_a_silent_worker_is_given_up_and_its_late_answers_refused(
    pusher: Server, site: Site, queue: str, held: Held
) -> None:
    silent = Pushed(pusher, site.url, queue, beats=False)
    site.answers[silent.path] = held
    job = pusher.submit("weld", queue=queue)
    assert held.asked.wait(10)
    pusher.until(job["id"], "queued", within=HEARTBEAT_TIMEOUT_SECONDS + 5)
    held.let_go.set()
    (first,) = site.jobs(silent.path)
    assert silent.report(first, result="too late").status_code == 404
    site.answers[silent.path] = lambda job: (200, {"result": f"claim {job['claim_id']}"})
    other = Pushed(pusher, site.url, queue)
    try:
        done = pusher.ended(job["id"])
        assert other.report(first, result="too late").json()["stale"] == [{"id": job["id"], "claim_id": 1}]
    finally:
        other.close()
    assert (done["result"], done["attempt"], done["worker_id"]) == ("claim 2", 2, other.id)
    assert pusher.job(job["id"])["result"] == "claim 2"


# ── down and up again ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_service_that_is_down_costs_few_attempts_and_all_jobs_run_when_it_is_back(
    pusher: Server, ports: dict[str, int], queue: str
) -> None:
    worker = Pushed(pusher, f"http://127.0.0.1:{ports['down']}", queue)
    jobs = [pusher.submit("weld", n, queue=queue) for n in range(20)]

    def failed() -> list[Job]:
        waiting = [pusher.job(job["id"]) for job in jobs]
        return [job for job in waiting if job["error"] and job["error"]["type"] == "dispatch_failed"]

    eventually(failed, 10, "the first to be refused")
    site = Site(ports["down"])
    try:
        site.answers[worker.path] = lambda job: (200, {"result": job["payload"]})
        done = [pusher.ended(job["id"]) for job in jobs]
    finally:
        site.close()
        worker.close()
    assert [job["result"] for job in done] == list(range(20))
    assert sum(job["attempt"] - 1 for job in done) <= 4, "two threads at first, then single tries"


def test_a_restart_of_the_coordinator_costs_no_attempt(system: System, held: Held) -> None:
    site = Site()
    worker = None
    try:
        server = system.serve(STOKER_ENDPOINTS=site.url, WORKER_HEARTBEAT_TIMEOUT_SEC=10)
        worker = Pushed(server, site.url, "q", beats=False)
        site.answers["/q"] = held
        killed = server.submit("weld", queue="q")
        assert held.asked.wait(10)
        server.kill()
        server = system.serve(port=server.port, STOKER_ENDPOINTS=site.url, WORKER_HEARTBEAT_TIMEOUT_SEC=10)
        site.answers["/q"] = again = Held((200, {"result": "again"}))

        def back() -> bool:
            server.post(f"/workers/{worker.id}/heartbeat", {})
            return again.asked.is_set()

        eventually(back, 12, "the broken flight to go back, and to be sent again")
        assert server.job(killed["id"])["attempt"] == 1
        server.terminate()
        assert server.exit_code() == 0
        again.let_go.set()
        server = system.serve(port=server.port, WORKER_HEARTBEAT_TIMEOUT_SEC=10)
        stopped = server.job(killed["id"])
        assert (stopped["status"], stopped["attempt"]) == ("queued", 0)
        assert [a["charged"] for a in stopped["attempts"]] == [False, False]
        beat = server.http.post(f"/workers/{worker.id}/heartbeat", json={})
        assert (beat.status_code, beat.json()["type"]) == (403, "urn:stoker:problem:endpoint-not-listed")
    finally:
        held.let_go.set()
        site.close()
