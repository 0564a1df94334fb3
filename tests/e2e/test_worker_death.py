"""`kill -9` of a worker's supervisor: nothing it started lives on, its job runs elsewhere, its word counts no more."""

import signal
import time
from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from stoker.ids import new_id
from stoker.wire import codec, frames
from tests.e2e.conftest import HEARTBEAT_TIMEOUT_SECONDS
from tests.e2e.system import Job, Server, System, Worker, descendants, eventually, is_alive

RECOVERY_SECONDS = HEARTBEAT_TIMEOUT_SECONDS + 5


@pytest.fixture
def queue() -> str:
    """A queue that only the workers of this test serve."""
    return f"q-{new_id()[-12:]}"


@pytest.fixture
def pair(town: System, server: Server, queue: str) -> Iterator[tuple[Worker, Worker]]:
    """Two workers with a thread each."""
    workers = town.pair(server, "--queues", queue)
    yield workers
    for worker in workers:
        worker.kill()


def running_on(server: Server, job: Job, pair: tuple[Worker, Worker]) -> tuple[Worker, Worker]:
    """The worker that runs the job, and the other one."""
    worker_id = server.started(job["id"])["worker_id"]
    (pid,) = [row["pid"] for row in server.get("/workers")["workers"] if row["id"] == worker_id]
    return pair if pair[0].pid == pid else (pair[1], pair[0])


def test_children_and_grandchildren_are_gone_in_two_seconds_and_the_job_runs_elsewhere(
    town: System, server: Server, queue: str, pair: tuple[Worker, Worker]
) -> None:
    job = server.submit("parent", {"seconds": 60, "tag": queue, "own_session": True}, queue=queue)
    victim, _ = running_on(server, job, pair)
    killed_claim = server.job(job["id"])["claim_id"]
    eventually(lambda: town.journal.pids(queue, "start"))
    family = descendants(victim.pid) | set(town.journal.pids(queue, "grandchild"))
    assert len(family) >= 3, "the child, the grandchild and the guardian"

    victim.kill()
    died = time.monotonic()
    eventually(
        lambda: not any(map(is_alive, family)),
        2,
        lambda: f"{[pid for pid in family if is_alive(pid)]} to be gone",
    )
    eventually(
        lambda: len(town.journal.pids(queue, "start")) == 2, RECOVERY_SECONDS, "the job to run elsewhere"
    )
    assert time.monotonic() - died < RECOVERY_SECONDS
    again = server.started(job["id"])
    assert (again["attempt"], again["claim_id"] > killed_claim) == (2, True)
    lost = again["attempts"][0]
    assert (lost["outcome"], lost["charged"], lost["error"]["type"]) == ("lost", True, "lost")
    server.post(f"/jobs/{job['id']}/cancel")
    server.ended(job["id"], within=4)


def test_grandchildren_die_also_when_the_worker_had_to_start_over_before(
    town: System, server: Server, queue: str
) -> None:
    """A paused worker loses its session and goes on under a new one; the guardian must follow."""
    worker = town.worker(server, "--queues", queue)
    first = server.submit("nap", {"seconds": 60}, queue=queue, max_attempts=1)
    server.started(first["id"])
    worker.signal(signal.SIGSTOP)
    try:
        assert server.ended(first["id"], within=RECOVERY_SECONDS)["status"] == "failed"
    finally:
        worker.signal(signal.SIGCONT)
    job = server.submit(
        "parent", {"seconds": 60, "tag": queue, "own_session": True}, queue=queue, max_attempts=1
    )
    server.started(job["id"])
    (grandchild,) = eventually(lambda: town.journal.pids(queue, "grandchild"))
    worker.kill()
    eventually(lambda: not is_alive(grandchild), 2, "the grandchild to be gone")


def test_a_late_report_over_the_websocket_is_refused(
    town: System, server: Server, queue: str, pair: tuple[Worker, Worker]
) -> None:
    job = server.submit("nap", {"seconds": 3, "tag": queue}, queue=queue)
    victim, _ = running_on(server, job, pair)
    held = server.job(job["id"])
    victim.kill()
    eventually(
        lambda: server.job(job["id"])["claim_id"] > held["claim_id"], RECOVERY_SECONDS, "another claim"
    )

    answer = resume_and_report(server, held["worker_id"], held)
    assert isinstance(answer, frames.Refused)
    assert answer.new_session, "a session that was given up cannot come back"
    ended = server.ended(job["id"])
    assert (ended["status"], ended["result"], ended["attempt"]) == ("completed", queue, 2)


def test_a_late_report_by_a_new_session_is_refused_as_stale(
    town: System, server: Server, queue: str, pair: tuple[Worker, Worker]
) -> None:
    """A worker that came back under a new session has no claim on what the old one held, nor on anybody else's."""
    job = server.submit("nap", {"seconds": 3, "tag": queue}, queue=queue)
    victim, _ = running_on(server, job, pair)
    held = server.job(job["id"])
    victim.kill()
    current = eventually(
        lambda: found if (found := server.job(job["id"]))["claim_id"] > held["claim_id"] else None,
        RECOVERY_SECONDS,
    )
    for claim_id in (held["claim_id"], current["claim_id"], current["claim_id"] + 1):
        answer = resume_and_report(server, new_id(), {**held, "claim_id": claim_id})
        assert isinstance(answer, frames.Ack)
        assert answer.stale == [frames.ClaimRef(job["id"], claim_id)]
    ended = server.ended(job["id"])
    assert (ended["status"], ended["result"]) == ("completed", queue)


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


def test_a_job_that_loses_its_worker_on_the_last_attempt_is_a_dead_letter(
    town: System, server: Server, queue: str, pair: tuple[Worker, Worker]
) -> None:
    job = server.submit("nap", {"seconds": 60, "tag": queue}, queue=queue, max_attempts=1)
    victim, _ = running_on(server, job, pair)
    victim.kill()
    ended = server.ended(job["id"], within=RECOVERY_SECONDS)
    assert (ended["status"], ended["error"]["type"], ended["attempt"]) == ("failed", "lost", 1)
    assert job["id"] in {dead["id"] for dead in server.get("/dlq", queue=queue)["jobs"]}
    assert len(town.journal.of(queue, "start")) == 1


def test_a_worker_that_was_paused_beyond_its_lease_has_no_say_and_starts_over(
    town: System, server: Server, queue: str, pair: tuple[Worker, Worker]
) -> None:
    job = server.submit("nap", {"seconds": 4, "tag": queue}, queue=queue)
    victim, other = running_on(server, job, pair)
    (child,) = town.journal.pids(queue, "start")
    victim.signal(signal.SIGSTOP)
    try:
        eventually(
            lambda: len(town.journal.pids(queue, "start")) == 2, RECOVERY_SECONDS, "the job to run elsewhere"
        )
    finally:
        victim.signal(signal.SIGCONT)
    eventually(lambda: not is_alive(child), 3, "what the paused worker ran to be killed")
    ended = server.ended(job["id"])
    assert (ended["status"], ended["attempt"], ended["claim_id"]) == ("completed", 2, 2)
    eventually(
        lambda: {victim.pid, other.pid} <= {row["pid"] for row in server.live_workers()}, 5, "both to be back"
    )


def test_a_restarted_worker_of_the_same_name_hides_no_orphans(
    town: System, server: Server, queue: str
) -> None:
    first = town.worker(server, "--queues", queue, name="phoenix")
    job = server.submit("nap", {"seconds": 1, "tag": queue}, queue=queue)
    server.started(job["id"])
    first.kill()
    town.worker(server, "--queues", queue, name="phoenix")
    eventually(lambda: len(town.journal.of(queue, "start")) == 2, RECOVERY_SECONDS, "the orphan to run again")
    assert server.ended(job["id"])["attempt"] == 2


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
    job = server.submit("nap", {"seconds": 5, "tag": queue}, queue=queue)
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
