"""`kill -9` of a worker's supervisor: nothing it started lives on, its job runs elsewhere, its word counts no more."""

import signal
import time

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from stoker.ids import new_id
from stoker.wire import codec, frames
from tests.e2e.conftest import HEARTBEAT_TIMEOUT_SECONDS
from tests.e2e.system import Job, Server, System, descendants, eventually, is_alive

RECOVERY_SECONDS = HEARTBEAT_TIMEOUT_SECONDS + 5


@pytest.fixture
def queue() -> str:
    """A queue that only the workers of this test serve."""
    return f"q-{new_id()[-12:]}"


class Death:
    """A worker is killed in the middle of a job that started a process of its own; another worker stands by."""

    def __init__(self, town: System, server: Server) -> None:
        self.tag = queue = f"q-{new_id()[-12:]}"
        pair = town.pair(server, "--queues", queue)
        payload = {"seconds": 4, "tag": queue, "own_session": True}
        self.id = server.submit("parent", payload, queue=queue)["id"]
        self.held = server.started(self.id)
        (pid,) = [row["pid"] for row in server.live_workers() if row["id"] == self.held["worker_id"]]
        (victim,) = [worker for worker in pair if worker.pid == pid]
        self.family = descendants(victim.pid) | set(town.journal.pids(queue, "grandchild"))
        victim.kill()
        died = time.monotonic()
        eventually(lambda: not any(map(is_alive, self.family)), 10, "all that the worker started to be gone")
        self.seconds_to_gone = time.monotonic() - died
        eventually(lambda: len(town.journal.pids(queue, "start")) == 2, 20, "the job to run elsewhere")
        self.seconds_to_recovery = time.monotonic() - died


@pytest.fixture(scope="module")
def death(town: System, server: Server) -> Death:
    return Death(town, server)


def test_children_and_grandchildren_are_gone_within_two_seconds(death: Death) -> None:
    assert len(death.family) >= 3, "the child, the grandchild and the guardian"
    assert death.seconds_to_gone < 2


def test_the_job_runs_elsewhere_within_the_timeout_and_five_seconds(server: Server, death: Death) -> None:
    assert death.seconds_to_recovery < RECOVERY_SECONDS
    again = server.started(death.id)
    assert (again["attempt"], again["claim_id"] > death.held["claim_id"]) == (2, True)
    lost = again["attempts"][0]
    assert (lost["outcome"], lost["charged"], lost["error"]["type"]) == ("lost", True, "lost")


def test_a_late_report_of_the_killed_session_is_refused(server: Server, death: Death) -> None:
    answer = resume_and_report(server, death.held["worker_id"], death.held)
    assert isinstance(answer, frames.Refused)
    assert answer.new_session, "a session that was given up cannot come back"


def test_a_late_report_by_a_new_session_is_refused_as_stale(server: Server, death: Death) -> None:
    """A worker that came back under a new session has no claim on what the old one held, nor on anybody else's."""
    old = death.held["claim_id"]
    for claim_id in (old, server.job(death.id)["claim_id"], old + 5):
        answer = resume_and_report(server, new_id(), {**death.held, "claim_id": claim_id})
        assert isinstance(answer, frames.Ack)
        assert answer.stale == [frames.ClaimRef(death.id, claim_id)]


def test_the_result_is_that_of_the_attempt_that_lived(server: Server, death: Death) -> None:
    ended = server.ended(death.id)
    assert (ended["status"], ended["result"], ended["attempt"]) == ("completed", None, 2)


def test_a_late_report_over_http_is_refused(town: System, server: Server, queue: str) -> None:
    hello = {"name": "late", "threads": 1, "types": ["nap"], "queues": [queue]}
    late = server.post("/workers", hello)["id"]
    job = server.submit("nap", {"seconds": 0, "tag": queue}, queue=queue)
    (leased,) = server.post(f"/workers/{late}/lease?wait=5")["jobs"]
    report = {
        "reports": [
            {"id": job["id"], "claim_id": leased["claim_id"], "outcome": "completed", "result": "late"}
        ]
    }
    eventually(
        lambda: server.status(job["id"]) == "queued", RECOVERY_SECONDS, "the silent worker to be given up"
    )

    answer = server.http.post(f"/workers/{late}/report", json=report)
    assert answer.status_code == 404
    assert "register again" in answer.json()["detail"]
    other = server.post("/workers", {**hello, "name": "other"})["id"]
    assert server.post(f"/workers/{other}/report", report)["accepted"] == []
    (again,) = server.post(f"/workers/{other}/lease?wait=5")["jobs"]
    assert again["claim_id"] > leased["claim_id"]
    receipt = server.post(f"/workers/{other}/report", report)
    assert (receipt["accepted"], len(receipt["stale"])) == ([], 1)
    report["reports"][0] |= {"claim_id": again["claim_id"], "result": "in time"}
    assert len(server.post(f"/workers/{other}/report", report)["accepted"]) == 1
    ended = server.job(job["id"])
    assert (ended["status"], ended["result"], ended["attempt"]) == ("completed", "in time", 2)


def test_a_worker_that_was_paused_beyond_its_lease_has_no_say_and_starts_over(
    town: System, server: Server, queue: str
) -> None:
    """It comes back under a new session, kills what it ran, and its guardian looks after what it runs from then on."""
    worker = town.worker(server, "--queues", queue)
    job = server.submit("nap", {"seconds": 60, "tag": queue}, queue=queue, max_attempts=1)
    server.started(job["id"])
    (child,) = town.journal.pids(queue, "start")
    worker.signal(signal.SIGSTOP)
    try:
        lost = server.ended(job["id"], within=RECOVERY_SECONDS)
    finally:
        worker.signal(signal.SIGCONT)
    assert (lost["status"], lost["error"]["type"]) == ("failed", "lost")
    eventually(lambda: not is_alive(child), 3, "what the paused worker ran to be killed")
    eventually(lambda: worker.pid in {row["pid"] for row in server.live_workers()}, 5, "it to be back")
    assert server.status(job["id"]) == "failed"

    # A crash, so that the next job gets a process that was started under the new session.
    server.ended(server.submit("leave", {"tag": queue}, queue=queue, max_attempts=1)["id"])
    payload = {"seconds": 60, "tag": queue, "own_session": True}
    server.started(server.submit("parent", payload, queue=queue, max_attempts=1)["id"])
    (grandchild,) = eventually(lambda: town.journal.pids(queue, "grandchild"))
    worker.kill()
    eventually(lambda: not is_alive(grandchild), 2, "the grandchild to be gone")


def test_a_restarted_worker_of_the_same_name_hides_no_orphans(
    town: System, server: Server, queue: str
) -> None:
    first = town.worker(server, "--queues", queue, name="phoenix", threads=2)
    job = server.submit("nap", {"seconds": 1.5, "tag": queue}, queue=queue)
    last = server.submit("nap", {"seconds": 60}, queue=queue, max_attempts=1)
    server.started(job["id"])
    server.started(last["id"])
    first.kill()
    second = town.worker(server, "--queues", queue, name="phoenix")
    eventually(lambda: len(town.journal.of(queue, "start")) == 2, RECOVERY_SECONDS, "the orphan to run again")
    ended = server.ended(last["id"], within=1)
    assert (ended["status"], ended["error"]["type"], ended["attempt"]) == ("failed", "lost", 1)
    assert last["id"] in {dead["id"] for dead in server.get("/dlq", queue=queue)["jobs"]}
    assert server.ended(job["id"])["attempt"] == 2
    second.kill()


def resume_and_report(server: Server, session: str, held: Job) -> frames.ToWorker:
    """Connect under a session and report that the held job completed; what the coordinator says to that."""
    hello = frames.Hello(frames.PROTOCOL, session, "ghost", 1, ["no-such-type"])
    report = frames.Report(held["id"], held["claim_id"], "completed", b'"a ghost wrote this"')
    with connect(f"ws://127.0.0.1:{server.port}/workers/connect", compression=None) as socket:
        socket.send(codec.encode(hello))
        try:
            socket.send(codec.encode(frames.Reports(1, [report])))
        except ConnectionClosed:
            pass  # refused already; the reason is still to be read
        while True:
            frame = codec.decode_to_worker(socket.recv(timeout=5))
            if isinstance(frame, frames.Refused | frames.Ack):
                if isinstance(frame, frames.Ack):
                    socket.send(codec.encode(frames.Goodbye()))
                return frame


def test_a_worker_beats_as_often_as_its_coordinator_asks_whatever_its_own_settings_say(
    town: System, server: Server, queue: str
) -> None:
    """Its own idea of the timeout is 30 s here, the coordinator's is 2 s: it must not be given up meanwhile."""
    worker = town.worker(server, "--queues", queue, WORKER_HEARTBEAT_TIMEOUT_SEC=30)
    job = server.submit("nap", {"seconds": 3.5, "tag": queue}, queue=queue)
    ended = server.ended(job["id"])
    assert (ended["attempt"], len(town.journal.of(queue, "start"))) == (1, 1), worker.output
    worker.kill()


def test_frames_that_make_no_sense_close_their_connection_and_nothing_else(server: Server) -> None:
    nonsense: list[bytes | str] = [
        b"",
        b"\xff" * 100,
        "{}",
        '{"frame":"hello"}',
        "[" * 5000,
        b"\x81\xa5frame\xa5hello",
    ]
    for data in nonsense:
        with connect(f"ws://127.0.0.1:{server.port}/workers/connect", compression=None) as socket:
            socket.send(data)
            with pytest.raises(ConnectionClosed):
                socket.recv(timeout=5)
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_compression_that_a_client_offers_is_not_agreed_on(server: Server) -> None:
    """A small frame could inflate to any size; what is not negotiated cannot be sent."""
    with connect(f"ws://127.0.0.1:{server.port}/workers/connect", compression="deflate") as socket:
        assert socket.request is not None
        assert "permessage-deflate" in socket.request.headers["Sec-WebSocket-Extensions"]
        assert socket.response is not None
        assert "Sec-WebSocket-Extensions" not in socket.response.headers
