"""A worker with very few file descriptors says so, makes do with what it has, and holds no job that it cannot run."""

import contextlib
import json
import os
import resource
import socket
import sys
from typing import Any

import httpx

from tests.e2e.system import APP, STOKER, Program, Server, System, Worker, eventually

COUNT = [sys.executable, "-c", "import sys; print(len(sys.stdin.read()))"]
COMMANDS = json.dumps({"count": COUNT})


def limited_worker(system: System, server: Server, files: int, threads: int) -> Worker:
    """A worker that may open so many files, whatever becomes of it."""
    argv: list[Any] = ["bash", "-c", f'ulimit -n {files}; exec "$@"', "bash", STOKER, "worker"]
    argv += ["--threads", threads, "--url", server.url, "--app", APP]
    env = system.environ({"STOKER_COMMANDS": COMMANDS})
    worker = Worker("limited", argv, folder=system.folder, env=env, log=system._log("worker"))
    system._programs.append(worker)
    return worker


def mixed_jobs(each: int) -> list[dict[str, Any]]:
    kinds: list[tuple[str, Any]] = [
        ("echo", 1),
        ("add", {"x": 1}),
        ("add_later", {"x": 1, "y": 1}),
        ("count", "x"),
    ]
    return [{"type": type, "payload": payload, "max_attempts": 1} for type, payload in kinds * each]


def unfinished(server: Server) -> int:
    by_status = server.get("/stats")["jobs_by_status"]
    return int(by_status["queued"] + by_status["running"])


def test_a_worker_that_cannot_have_one_thread_says_what_it_needs(system: System) -> None:
    worker = limited_worker(system, system.serve(), files=24, threads=2)
    assert worker.exit_code(30) == 1
    assert "may open 24 files, and a worker with one thread needs" in worker.output


def test_a_worker_with_few_descriptors_takes_fewer_threads_and_does_all_its_work(system: System) -> None:
    server = system.serve()
    worker = limited_worker(system, server, files=48, threads=8)
    (row,) = eventually(server.live_workers, 30, lambda: worker.output)
    assert 1 <= row["threads"] < 8
    (told,) = worker.events("threads_reduced")
    assert (told["threads"], told["asked"]) == (row["threads"], 8)
    server.post("/jobs/batch", {"jobs": mixed_jobs(60)})
    eventually(lambda: not unfinished(server), 60, lambda: f"{server.get('/stats')} {worker.output}")
    assert server.get("/stats")["jobs_by_status"]["completed"] == 240
    assert worker.events("child_cannot_start") == []


def test_a_worker_that_runs_out_of_descriptors_gives_its_jobs_back_and_recovers(system: System) -> None:
    server = system.serve()
    worker = system.worker(server, threads=2, STOKER_COMMANDS=COMMANDS)
    server.ended(server.submit("add", {"x": 1})["id"])
    before = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
    # What it has open stays, and so does its connection; but no process can be started.
    highest = max(map(int, os.listdir(f"/proc/{worker.pid}/fd")))
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (highest + 2, before[1]))
    ids = [server.submit(**job)["id"] for job in mixed_jobs(3)]
    eventually(lambda: worker.events("child_cannot_start"), 20, lambda: worker.output)
    told = worker.events("child_cannot_start")[0]
    assert "ulimit -n" in told["detail"]

    def handed_back() -> bool:
        seen = [attempt["outcome"] for id in ids for attempt in server.job(id)["attempts"]]
        return "handed_back" in seen

    eventually(handed_back, 20, lambda: str([server.job(id) for id in ids]))
    eventually(lambda: server.ended(ids[1])["status"] == "completed", 20, "what warm children run goes on")
    assert len(worker.events("child_cannot_start")) < 60, "it is not said over and over"
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, before)
    for id in ids:
        assert server.ended(id, within=40)["status"] == "completed", worker.output
    assert len(os.listdir(f"/proc/{worker.pid}/fd")) < 40
    assert worker.running


def limited_server(system: System, files: int) -> Program:
    argv: list[Any] = ["bash", "-c", f'ulimit -n {files}; exec "$@"', "bash", STOKER, "serve", "--port", 0]
    argv += ["--database", system.database]
    server = Program(argv, folder=system.folder, env=system.environ({}), log=system._log("limited"))
    system._programs.append(server)
    return server


def test_a_coordinator_that_may_open_too_few_files_says_how_many_it_needs(system: System) -> None:
    server = limited_server(system, 24)
    assert server.exit_code(30) == 1
    assert "may open 24 files, and a coordinator needs 48" in server.output


def test_a_coordinator_with_few_descriptors_answers_all_connections_and_recovers(system: System) -> None:
    server = limited_server(system, 64)
    (started,) = eventually(lambda: server.events("coordinator_started"), 30, lambda: server.output)
    url = httpx.URL(started["url"])

    def health() -> bytes:
        with socket.create_connection((url.host, url.port), timeout=5) as connection:
            with contextlib.suppress(ConnectionError):  # it may be refused before it has asked
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return connection.recv(4096)[:12]

    held = [socket.create_connection((url.host, url.port), timeout=5) for _ in range(24)]
    eventually(lambda: health() == b"HTTP/1.1 503")
    assert server.events("connections_turned_away")
    for connection in held:
        connection.close()
    eventually(lambda: health() == b"HTTP/1.1 200")
    assert httpx.post(url.join("/jobs"), json={"type": "echo"}).status_code == 202
