"""The app behind a real server: uploads that are refused, connections that end early, and the WebSocket."""

import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
import uvicorn
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from stoker.api.app import create_app
from stoker.api.server.http_guard import GuardedProtocol
from stoker.api.server.security import Guard
from stoker.api.server.websocket_protocol import WorkerProtocol
from stoker.settings import Settings
from tests.unit.test_api_service import JSON, TOKEN, FakeService

MIB = 1024 * 1024


class Server(uvicorn.Server):
    """Says when it listens, and where."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = threading.Event()
        self.port = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.port = self.servers[0].sockets[0].getsockname()[1]
        self.listening.set()


@contextmanager
def served(service: FakeService, http: type[GuardedProtocol] = GuardedProtocol) -> Iterator[int]:
    config = uvicorn.Config(
        create_app(service),
        port=0,
        loop="uvloop",
        http=http,
        ws=WorkerProtocol,
        ws_per_message_deflate=False,
        log_level="critical",
        timeout_graceful_shutdown=1,
    )
    server = Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert server.listening.wait(10)
        yield server.port
    finally:
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served(FakeService()) as port:
        yield port


def exchange(port: int, request: bytes) -> bytes:
    """Send these bytes and read until the server closes or has answered once."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer and (part := connection.recv(65536)):
            answer += part
        return answer


def test_twenty_megabytes_are_413_and_the_connection_lives(port: int) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        answer = client.post("/jobs", content=b"x" * (20 * MIB), headers=JSON)
        assert answer.status_code == 413
        assert answer.json()["type"] == "urn:stoker:problem:too-large"
        assert client.get("/health").status_code == 200


def test_a_length_alone_is_refused_before_any_byte_of_it(port: int) -> None:
    head = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    answer = exchange(port, head % 10**12)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in answer.lower()


def test_a_stream_without_end_is_cut_and_not_kept(port: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    chunk = b"100000\r\n" + b"x" * MIB + b"\r\n"
    head = (
        b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    sent = 0
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(head)
        try:
            while sent < 200:
                connection.sendall(chunk)
                sent += 1
        except OSError:
            pass
    assert sent < 200
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kb < 100 * 1024


def test_who_is_refused_need_not_upload(port: int) -> None:
    head = b"POST /jobs HTTP/1.1\r\nHost: evil.example\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    assert exchange(port, head).startswith(b"HTTP/1.1 403")


def test_a_client_that_hangs_up_disturbs_nobody(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(
            b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )
    assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200


def test_head_over_the_wire(port: int) -> None:
    answer = exchange(port, b"HEAD /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\n")


# --- WebSocket -----------------------------------------------------------------------------------------


def dial(port: int, path: str = "/workers/connect", **headers: str) -> ClientConnection:
    return connect(
        f"ws://127.0.0.1:{port}{path}", additional_headers=headers, compression=None, open_timeout=10
    )


def test_frames_pass_both_ways(port: int) -> None:
    with dial(port) as socket:
        assert socket.response is not None
        assert socket.response.headers["x-request-id"]
        for frame in (b"\x00\xff binary", "text é", b"x" * MIB):
            socket.send(frame)
            assert socket.recv(timeout=10) == frame
        socket.send("stop")
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=10)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1000, "as you wish")


def test_a_broken_connection_ends_with_1011(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    with dial(port) as socket:
        socket.send("fail")
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1011
        assert "broken" not in closed.value.rcvd.reason


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/workers/connect", {"Origin": "http://evil.example"}, 403),
        ("/jobs", {}, 404),
        ("/nope", {}, 404),
    ],
)
def test_handshakes_are_refused_with_a_problem(
    port: int, path: str, headers: dict[str, str], status: int
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        dial(port, path, **headers)
    response = refused.value.response
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x-request-id"]


def test_a_defect_in_a_handshake_is_a_problem(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guard, "authorise", lambda *_: 1 / 0)
    with pytest.raises(InvalidStatus) as refused:
        dial(port, **{"X-Request-ID": "r-1"})
    response = refused.value.response
    assert (response.status_code, response.headers["x-request-id"]) == (500, "r-1")
    assert response.headers["content-type"] == "application/problem+json"


def test_the_websocket_needs_the_token_too() -> None:
    with served(FakeService(Settings(token=TOKEN))) as port:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            with pytest.raises(InvalidStatus) as refused:
                dial(port, **headers)
            assert refused.value.response.status_code == 401
        with dial(port, Authorization=f"Bearer {TOKEN}") as socket:
            socket.send("hello")
            assert socket.recv(timeout=10) == "hello"


@pytest.mark.parametrize("size", [20 * MIB, 40 * MIB])
def test_a_client_that_wants_no_other_answer_still_gets_to_see_why_its_body_was_refused(
    port: int, size: int
) -> None:
    head = (
        b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % size)
        for _ in range(size // MIB):
            connection.sendall(b"x" * MIB)
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in answer


def test_a_body_of_unknown_length_that_is_refused_is_told_so(port: int) -> None:
    head = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(20):
            connection.sendall(b"100000\r\n" + b"x" * MIB + b"\r\n")
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("encoding", ["gzip", "br, gzip"])
def test_a_compressed_body_is_refused_by_its_label(port: int, encoding: str) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
    answer = httpx.post(f"http://127.0.0.1:{port}/jobs", content=b'{"payload": 1}', headers=headers)
    assert answer.status_code == 415
    assert encoding in answer.json()["detail"]
