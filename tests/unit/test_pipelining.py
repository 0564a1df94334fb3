"""Clients that send several requests at once and leave: their requests end, and the log has nothing to complain about."""

import asyncio
import logging
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import uvicorn

from stoker.api.server.http_guard import GuardedProtocol
from stoker.coordinator.jobs import Submitted
from stoker.store.submissions import Submission
from stoker.wire.http import HttpAssignment
from tests.unit.test_api_server import served
from tests.unit.test_api_service import FakeHttpWorkers, FakeJobs, FakeService
from tests.unit.test_http_guard import HOST, POST, Patient, dial, until_closed

GET = b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"
BODY = b'{"payload":1}'
SUBMIT = POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
LEASE = b"POST /workers/w-1/lease?wait=20 HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\n\r\n"
EVENTS = b"GET /events HTTP/1.1\r\n" + HOST + b"\r\n"


class Complaints(logging.Handler):
    """What the server and its loop complained about."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.texts.append(f"{record.name}: {record.getMessage().strip()} {error!r}")


@pytest.fixture
def complaints(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The test server is told to be quiet, and sets up its loggers by itself: here it is listened to."""
    handler = Complaints()
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
    configure = uvicorn.Config.configure_logging

    def audible(config: uvicorn.Config) -> None:
        configure(config)
        for logger in loggers:
            logger.addHandler(handler)
            logger.setLevel(logging.WARNING)

    monkeypatch.setattr(uvicorn.Config, "configure_logging", audible)
    levels = [logger.level for logger in loggers]
    yield handler.texts
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)


class Held(FakeJobs):
    """Its submissions are answered when the test says so."""

    def __init__(self, fake: FakeService) -> None:
        super().__init__(fake)
        self.arrived = threading.Event()
        self.may_answer = threading.Event()
        self.answered = threading.Event()

    async def submit(self, jobs: Sequence[Submission]) -> Submitted:
        self.arrived.set()
        await asyncio.to_thread(self.may_answer.wait, 10)
        asyncio.get_running_loop().call_later(0.05, self.answered.set)
        return await super().submit(jobs)


def leave(connection: socket.socket) -> None:
    """Hang up without a word: what the server still writes is answered with a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("behind", [GET, SUBMIT, 5 * GET, POST + b"Content-Length: 100\r\n\r\n{", b"GET /jo"])
def test_a_client_that_leaves_with_requests_in_the_line_is_no_defect(
    behind: bytes, complaints: list[str]
) -> None:
    service = FakeService()
    service.jobs = held = Held(service)
    with served(service) as port:
        connection = dial(port)
        connection.sendall(SUBMIT + behind)
        assert held.arrived.wait(10)
        leave(connection)
        with dial(port) as another:  # by its answer the server has seen the other one leave
            another.sendall(GET)
            assert another.recv(100).startswith(b"HTTP/1.1 200")
        held.may_answer.set()
        assert held.answered.wait(10)
    assert complaints == []


@pytest.mark.parametrize("count", [1, 2, 3, 10])
@pytest.mark.parametrize("request_", [GET, SUBMIT, GET + SUBMIT, SUBMIT + EVENTS, EVENTS + GET, LEASE + GET])
def test_a_client_that_leaves_at_once_is_no_defect(
    request_: bytes, count: int, complaints: list[str]
) -> None:
    service = FakeService()
    service.http_workers = Patient(service)
    with served(service) as port:
        for _ in range(20):
            connection = dial(port)
            connection.sendall(count * request_)
            leave(connection)
        with dial(port) as another:
            another.sendall(GET)
            assert another.recv(100).startswith(b"HTTP/1.1 200")
    assert complaints == []


def test_a_lease_with_a_request_behind_it_is_given_up_when_its_client_leaves(complaints: list[str]) -> None:
    """It waited on, and its jobs were lost with it."""
    service = FakeService()
    service.http_workers = patient = Patient(service)
    with served(service) as port:
        connection = dial(port)
        connection.sendall(LEASE + GET)
        assert patient.waiting.wait(10)
        leave(connection)
        assert patient.given_up.wait(10)
    assert complaints == []


def test_a_lease_with_a_request_behind_it_is_given_up_when_its_client_sends_no_more() -> None:
    service = FakeService()
    service.http_workers = patient = Patient(service)
    with served(service) as port, dial(port) as connection:
        connection.sendall(LEASE + GET)
        assert patient.waiting.wait(10)
        connection.shutdown(socket.SHUT_WR)
        assert patient.given_up.wait(10)
        assert until_closed(connection) == b""


class Generous(FakeHttpWorkers):
    """Has a job for a lease when the test says so, and is told when it reached nobody."""

    def __init__(self, fake: FakeService) -> None:
        super().__init__(fake)
        self.waiting = threading.Event()
        self.may_give = threading.Event()
        self.came_back = threading.Event()

    async def lease(self, worker_id: str, max_jobs: int, wait: float) -> list[HttpAssignment]:
        self.waiting.set()
        while not self.may_give.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                self.came_back.set()  # it was broken off before it had a job, which is as good
                raise
        return []

    def undelivered(self, worker_id: str, jobs: Any) -> None:
        self.came_back.set()


def test_jobs_for_a_client_that_left_with_a_request_in_the_line_go_back(complaints: list[str]) -> None:
    service = FakeService()
    service.http_workers = generous = Generous(service)
    with served(service) as port:
        connection = dial(port)
        connection.sendall(LEASE + GET)
        assert generous.waiting.wait(10)
        leave(connection)
        generous.may_give.set()
        assert generous.came_back.wait(10)
    assert complaints == []


def test_a_stream_with_a_request_behind_it_ends_when_its_client_leaves(complaints: list[str]) -> None:
    with served(FakeService()) as port:
        connection = dial(port)
        connection.sendall(EVENTS + GET)
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        leave(connection)
        with dial(port) as another:
            another.sendall(GET)
            assert another.recv(100).startswith(b"HTTP/1.1 200")
    assert complaints == []


HANDSHAKE = (
    b"GET /workers/connect HTTP/1.1\r\n"
    + HOST
    + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def test_a_handshake_behind_a_request_that_is_not_answered_yet_does_not_take_its_connection(
    complaints: list[str],
) -> None:
    """The answer would have been written between the frames of the WebSocket."""
    service = FakeService()
    service.jobs = held = Held(service)
    with served(service) as port, dial(port) as connection:
        connection.sendall(SUBMIT + HANDSHAKE)
        assert held.arrived.wait(10)
        held.may_answer.set()
        answers = until_closed(connection)
    assert answers.startswith(b"HTTP/1.1 202")
    assert b"101 Switching" not in answers
    assert complaints == []


class Impatient(GuardedProtocol):
    head_seconds = body_seconds = 0.2


@pytest.mark.parametrize(
    "behind",
    [
        POST + b"Content-Length: 100\r\n\r\n{",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"nonsense\r\n\r\n",
    ],
)
def test_a_request_is_answered_before_the_one_behind_it_is_refused(
    behind: bytes, complaints: list[str]
) -> None:
    """The refusal was written in the place of its answer, and then the answer failed."""
    service = FakeService()
    service.jobs = held = Held(service)
    with served(service, Impatient) as port, dial(port) as connection:
        connection.sendall(SUBMIT)
        assert held.arrived.wait(10)
        connection.sendall(behind)
        threading.Timer(0.5, held.may_answer.set).start()
        answers = until_closed(connection)
    assert answers.startswith(b"HTTP/1.1 202")
    assert [text for text in complaints if "Invalid HTTP request" not in text] == []
