"""The bounds of a connection, on a real server: what is too much, too slow or not HTTP is refused with a problem."""

import asyncio
import json
import resource
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import httpx
import pytest

from stoker.api.server.exchange import Header
from stoker.api.server.http_guard import MAX_HEAD_BYTES, MAX_URL_BYTES, GuardedProtocol
from stoker.coordinator.jobs import Submitted
from stoker.store.submissions import Submission
from stoker.wire.http import HttpAssignment
from tests.unit.test_api_server import MIB, served
from tests.unit.test_api_service import FakeHttpWorkers, FakeJobs, FakeService

HOST = b"Host: localhost\r\n"
POST = b"POST /jobs HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"


class Hasty(GuardedProtocol):
    head_seconds = 0.4
    body_seconds = 0.6


class Brief(GuardedProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.timeout_keep_alive = 0.3  # type: ignore[assignment]  # whole seconds in uvicorn's settings


class Few(GuardedProtocol):
    max_connections = 3


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served(FakeService()) as port:
        yield port


@pytest.fixture(scope="module")
def hasty() -> Iterator[int]:
    with served(FakeService(), Hasty) as port:
        yield port


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def until_closed(connection: socket.socket) -> bytes:
    received = b""
    while part := connection.recv(65536):
        received += part
    return received


def is_cut_off(connection: socket.socket) -> bool:
    """Whether somebody who never stops sending is stopped."""
    deadline = time.monotonic() + 10
    try:
        while time.monotonic() < deadline:
            connection.sendall(b"x" * MIB)
    except OSError:
        return True
    return False


def parsed(raw: bytes) -> Answer:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return Answer(int(first.split()[1]), headers, body)


def the_problem(raw: bytes, status: int, name: str) -> None:
    answer = parsed(raw)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["connection"] == "close"
    document = json.loads(answer.body)
    assert (document["type"], document["status"]) == (f"urn:stoker:problem:{name}", status)
    assert document["request_id"] == answer.headers["x-request-id"]


def test_a_head_without_end_is_refused_and_not_kept(port: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with dial(port) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"X-Big: ")
        assert is_cut_off(connection)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024


@pytest.mark.parametrize("headers", [b"X-Big: " + b"x" * MAX_HEAD_BYTES, b"A: b\r\n" * (MAX_HEAD_BYTES // 4)])
@pytest.mark.parametrize("end", [b"\r\n\r\n", b""])
def test_a_head_that_is_too_large_is_told_so(port: int, headers: bytes, end: bytes) -> None:
    with dial(port) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n" + HOST + headers + end)
        the_problem(until_closed(connection), 431, "head-too-large")


def test_a_large_head_within_the_bound_is_served(port: int) -> None:
    answer = httpx.get(f"http://127.0.0.1:{port}/health", headers={"X-Big": "x" * (MAX_HEAD_BYTES - 1000)})
    assert answer.status_code == 200


@pytest.mark.parametrize("split", [1, 30, 1000])
def test_a_head_after_a_large_body_in_the_same_packet_is_served(port: int, split: int) -> None:
    body = b'{"payload": "' + b"x" * 200_000 + b'"}'
    post = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    get = b"GET /health HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n"
    with dial(port) as connection:
        connection.sendall(post + get[:split])
        answers = connection.recv(16)
        connection.sendall(get[split:])
        answers += until_closed(connection)
    assert answers.count(b"HTTP/1.1 202") == 1
    assert answers.count(b"HTTP/1.1 200") == 1


def test_a_head_that_never_ends_has_its_time(hasty: int) -> None:
    began = time.monotonic()
    with dial(hasty) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nX-Slow: ")
        time.sleep(0.2)
        connection.sendall(b"x")
        the_problem(until_closed(connection), 408, "too-slow")
    assert time.monotonic() - began < 3


def test_who_says_nothing_is_sent_away_without_a_word(hasty: int) -> None:
    with dial(hasty) as connection:
        assert until_closed(connection) == b""


def test_a_second_head_has_its_time_too(hasty: int) -> None:
    with dial(hasty) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"\r\nGET /hea")
        the_problem(until_closed(connection), 408, "too-slow")


def test_a_body_that_makes_no_progress_is_given_up(hasty: int) -> None:
    with dial(hasty) as connection:
        connection.sendall(POST + b"Content-Length: 30\r\n\r\n{")
        the_problem(until_closed(connection), 408, "too-slow")
    assert httpx.get(f"http://127.0.0.1:{hasty}/health").status_code == 200


def test_a_body_that_is_slow_but_goes_on_is_served(hasty: int) -> None:
    body = b'{"payload":1}'
    with dial(hasty) as connection:
        connection.sendall(POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
        for byte in body:
            connection.sendall(bytes([byte]))
            time.sleep(0.1)
        assert parsed(until_closed(connection)).status == 202


def test_an_idle_connection_is_kept_as_long_as_ever(hasty: int) -> None:
    with dial(hasty) as connection:
        for _ in range(2):
            connection.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            time.sleep(1)


def test_a_connection_is_closed_when_no_request_has_come_for_a_while() -> None:
    with served(FakeService(), Brief) as port, dial(port) as connection:
        began = time.monotonic()
        while time.monotonic() < began + 0.7:  # longer than it may be idle
            connection.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        last = time.monotonic()
        assert until_closed(connection) == b""
        assert time.monotonic() >= last + 0.2


def test_no_header_of_an_answer_can_begin_another_line() -> None:
    class Answering(GuardedProtocol):
        def answer(self, status: int, headers: Sequence[Header], body: bytes) -> bool:
            for value in (b"a\r\nb: c", b"a\nb", b"a\rb", b"a\0b"):
                with pytest.raises(ValueError, match="line end"):
                    super().answer(status, [(b"x-name", value)], body)
            return super().answer(status, headers, body)

    with served(FakeService(), Answering) as port, dial(port) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
        assert parsed(until_closed(connection)).status == 200


def test_a_refused_upload_that_stops_is_not_answered_twice(hasty: int) -> None:
    with dial(hasty) as connection:
        connection.sendall(POST + b"Content-Length: 20000000\r\n\r\n" + b"x" * 1000)
        assert connection.recv(65536).startswith(b"HTTP/1.1 413")
        connection.sendall(b"x" * 1000)
        assert until_closed(connection) == b""


@pytest.mark.parametrize(
    "request_",
    [
        b"what is this\r\n\r\n",
        b"FROB /jobs HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /jobs HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /jobs HTTP/1.1\r\nno colon here\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_not_http_is_told_so_in_a_problem(port: int, request_: bytes) -> None:
    with dial(port) as connection:
        connection.sendall(request_)
        the_problem(until_closed(connection), 400, "unreadable")


def test_a_method_that_the_parser_knows_and_the_path_does_not_is_405(port: int) -> None:
    answer = httpx.request("PURGE", f"http://127.0.0.1:{port}/jobs")
    assert (answer.status_code, answer.json()["type"]) == (405, "urn:stoker:problem:method-not-allowed")


def test_a_url_that_is_too_long_is_414(port: int) -> None:
    for size in (MAX_URL_BYTES, 20 * MAX_URL_BYTES):
        with dial(port) as connection:
            connection.sendall(b"GET /jobs?x=" + b"x" * size + b" HTTP/1.1\r\n" + HOST + b"\r\n")
            the_problem(until_closed(connection), 414, "url-too-long")


def test_what_was_asked_before_the_nonsense_is_answered(port: int) -> None:
    with dial(port) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n" + b"nonsense\r\n\r\n")
        assert parsed(until_closed(connection)).status == 200


class Slow(FakeJobs):
    async def submit(self, jobs: Sequence[Submission]) -> Submitted:
        await asyncio.sleep(0.2)
        return await super().submit(jobs)


def test_a_client_that_has_said_all_gets_its_answers() -> None:
    body = b'{"payload":1}'
    service = FakeService()
    service.jobs = Slow(service)
    with served(service) as port, dial(port) as connection:
        connection.sendall(2 * (POST + b"Content-Length: %d\r\n\r\n" % len(body) + body))
        connection.shutdown(socket.SHUT_WR)
        assert until_closed(connection).count(b"HTTP/1.1 202") == 2


class Patient(FakeHttpWorkers):
    """Its leases wait until they are given up."""

    def __init__(self, fake: FakeService) -> None:
        super().__init__(fake)
        self.waiting = threading.Event()
        self.given_up = threading.Event()

    async def lease(self, worker_id: str, max_jobs: int, wait: float) -> list[HttpAssignment]:
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up.set()
        raise AssertionError


@pytest.mark.parametrize("early", [True, False])
def test_a_lease_is_given_up_when_its_client_sends_no_more(early: bool) -> None:
    service = FakeService()
    service.http_workers = patient = Patient(service)
    with served(service) as port, dial(port) as connection:
        connection.sendall(
            b"POST /workers/w-1/lease?wait=20 HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\n\r\n"
        )
        assert early or patient.waiting.wait(10)
        connection.shutdown(socket.SHUT_WR)
        assert patient.given_up.wait(10)
        assert until_closed(connection) == b""


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        (b"http://localhost/health", b"localhost", 200),
        (b"http://LOCALHOST:80/health", b"localhost:80", 200),
        (b"http://evil.com/health", b"evil.com", 403),
        (b"http://evil.com/health", b"localhost", 400),
        (b"http://localhost@evil.com/health", b"localhost", 400),
        (b"http://localhost:80/health", b"localhost", 400),
        (b"https://evil.com?/health", b"localhost", 400),
    ],
)
def test_an_address_as_target_must_be_of_the_host_that_is_judged(
    port: int, target: bytes, host: bytes, status: int
) -> None:
    with dial(port) as connection:
        connection.sendall(
            b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n"
        )
        assert parsed(until_closed(connection)).status == status


def test_two_hosts_are_refused(port: int) -> None:
    with dial(port) as connection:
        connection.sendall(
            b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.com\r\nConnection: close\r\n\r\n"
        )
        assert parsed(until_closed(connection)).status == 400


def test_connections_beyond_the_limit_are_answered_and_those_that_are_there_go_on() -> None:
    with served(FakeService(), Few) as port:
        kept = [dial(port) for _ in range(3)]
        for connection in kept:
            assert asked(connection, b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n").startswith(b"HTTP/1.1 200")
        for _ in range(3):
            with dial(port) as refused:
                answer = until_closed(refused)
                assert answer.startswith(b"HTTP/1.1 503 ")
                assert b"\r\nretry-after: 1\r\n" in answer
                assert b"has 3 connections already" in answer
        for connection in kept:
            assert asked(connection, b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n").startswith(b"HTTP/1.1 200")
        kept.pop().close()
        until_answered(port)
        for connection in kept:
            connection.close()


def asked(connection: socket.socket, request: bytes) -> bytes:
    connection.sendall(request)
    return connection.recv(65_536)


def until_answered(port: int) -> None:
    """The server learns a moment later that a client left."""
    deadline = time.monotonic() + 5
    while True:
        with dial(port) as connection:
            try:
                if asked(connection, b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n").startswith(
                    b"HTTP/1.1 200"
                ):
                    return
            except ConnectionError:
                pass
        assert time.monotonic() < deadline
