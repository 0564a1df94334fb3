"""What a job writes reaches those who read and follow it, and stays: over a real coordinator, with a worker that says
exactly what the test wants."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from websockets.sync.client import ClientConnection, connect

from stoker.ids import new_id
from stoker.wire import codec, frames
from stoker.wire.frames import MAX_OUTPUT_BYTES, Frame, Output, OutputChunk, Report, Reports
from tests.e2e.system import STOKER, Server, System, resident_kb

CUT = "[stoker: output cut at 1 MiB]\n"
F = TypeVar("F", bound=Frame)


class Voice:
    """A worker in the test's own hands."""

    def __init__(self, socket: ClientConnection, server: Server) -> None:
        self._socket = socket
        self._server = server
        self.say(frames.Hello(frames.PROTOCOL, new_id(), "voice", 4, ["speak"]))
        self.hear(frames.Welcome)

    def say(self, frame: Frame) -> None:
        self._socket.send(codec.encode(frame))

    def hear(self, kind: type[F]) -> F:
        while not isinstance(frame := codec.decode_to_worker(self._socket.recv(timeout=20)), kind):
            pass
        return frame

    def job(self, **fields: Any) -> frames.Assignment:
        self._server.submit("speak", **fields)
        return self.assignment()

    def assignment(self) -> frames.Assignment:
        (job,) = self.hear(frames.Assign).jobs
        return job

    def writes(self, job: frames.Assignment, text: str, offset: int = 0) -> int:
        """Where the next piece begins."""
        data = text.encode()
        self.say(Output([OutputChunk(job.id, job.claim_id, "stdout", offset, data)]))
        return offset + len(data)

    def ends(self, job: frames.Assignment) -> None:
        self.say(Reports(1, [Report(job.id, job.claim_id, "completed", b"1")]))
        self.hear(frames.Ack)


@contextmanager
def voice(server: Server) -> Iterator[Voice]:
    url = f"ws://127.0.0.1:{server.port}/workers/connect"
    with connect(url, compression=None, max_size=None) as socket:
        yield Voice(socket, server)


def followed(system: System, server: Server, id: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [str(STOKER), "logs", id, "--follow"],
        env=system.environ({"STOKER_API_URL": server.url}),
        stdout=subprocess.PIPE,
        text=True,
    )


def test_curl_and_the_command_line_follow_a_job_from_before_its_start_to_its_end(system: System) -> None:
    server = system.serve()
    queued = server.submit("speak")
    path = f"/jobs/{queued['id']}/logs"
    with (
        followed(system, server, queued["id"]) as terminal,
        server.http.stream("GET", path, params={"follow": 1}) as curl,
        voice(server) as worker,
    ):
        assert terminal.stdout is not None
        job = worker.assignment()
        lines = curl.iter_lines()
        offset = 0
        for line in ("first", "second", "grüße"):
            offset = worker.writes(job, f"{line}\n", offset)
            assert next(lines) == line
            assert terminal.stdout.readline() == f"{line}\n"
        worker.say(frames.Progress([frames.ProgressNote(job.id, job.claim_id, 1, 4, "on it")]))
        worker.writes(job, "the end", offset)
        assert terminal.stdout.read(7) == "the end"
        assert server.job(job.id)["progress"] == {"done": 1, "total": 4, "message": "on it", "percent": 25}
        worker.ends(job)
        assert list(lines) == ["the end"]
        assert terminal.stdout.read() == ""
        assert terminal.wait(20) == 0
    assert server.job(job.id)["progress"] is None


def test_a_hundred_thousand_lines_are_cut_and_the_coordinator_stays_small(system: System) -> None:
    server = system.serve()
    with voice(server) as worker:
        job = worker.job()
        offset = worker.writes(job, "warm up\n")
        server.http.get(f"/jobs/{job.id}/logs")
        before = resident_kb(server.pid)
        for start in range(0, 100_000, 1000):
            text = "".join(
                f"line {number} says something of its own\n" for number in range(start, start + 1000)
            )
            offset = worker.writes(job, text, offset)
        worker.ends(job)
    answer = server.http.get(f"/jobs/{job.id}/logs")
    assert offset > 3 * MAX_OUTPUT_BYTES
    assert answer.text.endswith(f"\n{CUT}")
    assert MAX_OUTPUT_BYTES <= len(answer.content) <= MAX_OUTPUT_BYTES + len(CUT) + 1
    document = server.get(f"/jobs/{job.id}/logs", format="json", tail=1)
    assert (document["cut"], document["written_bytes"]) == (True, offset)
    assert [item["stream"] for item in document["entries"]] == ["stoker"]
    assert resident_kb(server.pid) - before < 24 * 1024
    assert sum(file.stat().st_size for file in _files(system)) < 2 * MAX_OUTPUT_BYTES


def _files(system: System) -> list[Path]:
    return list(system.folder.glob("stoker-logs.db*"))


def test_output_survives_the_death_of_the_coordinator(system: System) -> None:
    server = system.serve()
    with voice(server) as worker:
        job = worker.job()
        worker.writes(job, "before\n")
        worker.ends(job)
        assert server.http.get(f"/jobs/{job.id}/logs").text == "before\n"
        server.kill()
    again = system.serve()
    assert again.http.get(f"/jobs/{job.id}/logs").text == "before\n"
    again.terminate()
    assert again.exit_code() == 0


def test_a_stopping_coordinator_does_not_wait_for_its_followers(system: System) -> None:
    server = system.serve()
    queued = server.submit("speak")
    with (
        followed(system, server, queued["id"]) as terminal,
        httpx.stream("GET", f"{server.url}/jobs/{queued['id']}/logs?follow=1", timeout=60) as curl,
    ):
        server.terminate()
        assert server.exit_code(4) == 0
        with pytest.raises(httpx.RemoteProtocolError):  # broken off, not ended
            curl.read()
        again = system.serve(port=server.port)
        with voice(again) as worker:
            job = worker.assignment()
            worker.writes(job, "at last\n")
            worker.ends(job)
        assert terminal.stdout is not None
        assert terminal.stdout.read() == "at last\n"
        assert terminal.wait(20) == 0
