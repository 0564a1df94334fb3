"""The SDK's own HTTP client against a server that does exactly what a test tells it: raw bytes over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker import errors
from stoker.client import http1, requests, sync_http, target, transport
from stoker.client.http1 import AnswerReader, ExchangeError
from stoker.client.requests import ApiRequest
from stoker.client.transport import Transport

Step = bytes | Callable[[socket.socket], None]
"""What a server sends after a request, or does."""

READ = requests.get("/stats")
CHANGE = requests.post("/dlq/replay", {"all": True})
"""A request that must not be sent twice."""


def ok(body: bytes = b"{}", more: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (more, len(body), body)


class RawServer:
    """Answers the requests of its connections by a script: one list of steps for each connection, in order."""

    def __init__(self, scripts: list[list[Step]], family: int = socket.AF_INET) -> None:
        host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
        self._listener = socket.create_server((host, 0), family=family)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://{'[::1]' if ':' in host else host}:{self.port}"
        self.received: list[bytes] = []
        self.connections = 0
        self.closed_by_client = threading.Semaphore(0)
        self._scripts = iter(scripts)
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._sockets.append(connection)
                self.connections += 1
                thread = threading.Thread(target=self._serve, args=(connection, next(self._scripts, [])))
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket, script: list[Step]) -> None:
        with connection, contextlib.suppress(OSError):
            for step in script:
                if not self._read_request(connection):
                    self.closed_by_client.release()
                    return
                if isinstance(step, bytes):
                    connection.sendall(step)
                else:
                    step(connection)
            if script and connection.fileno() >= 0 and not connection.recv(1):
                self.closed_by_client.release()

    def _read_request(self, connection: socket.socket) -> bool:
        head = b""
        while b"\r\n\r\n" not in head:
            part = connection.recv(65536)
            if not part:
                return False
            head += part
        head, _, body = head.partition(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
        )
        while len(body) < length:
            body += connection.recv(65536)
        self.received.append(head + b"\r\n\r\n" + body)
        return True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for connection in self._sockets:
            connection.close()


@contextlib.contextmanager
def serving(*scripts: list[Step], family: int = socket.AF_INET) -> Iterator[RawServer]:
    server = RawServer(list(scripts), family)
    try:
        yield server
    finally:
        server.close()


def close(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def piecemeal(data: bytes) -> Callable[[socket.socket], None]:
    def send(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for position in range(len(data)):
            connection.sendall(data[position : position + 1])

    return send


Ask = Callable[..., Any]


@pytest.fixture(params=["threads", "loop"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Sends requests one after another over one transport, blocking or on a loop; the answers, or the first error."""

    def blocking(url: str, *asked: ApiRequest, pauses: tuple[float, ...] = ()) -> list[Any]:
        with Transport(url, pauses=pauses) as way:
            return [way.send(one) for one in asked]

    def on_loop(url: str, *asked: ApiRequest, pauses: tuple[float, ...] = ()) -> list[Any]:
        async def main() -> list[Any]:
            way = Transport(url, pauses=pauses)
            try:
                return [await way.send_async(one) for one in asked]
            finally:
                await way.aclose()

        return asyncio.run(main())

    return blocking if request.param == "threads" else on_loop


# --- what is sent


def test_a_request_is_one_write_with_the_headers_that_a_server_needs(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_TOKEN", "a-token-that-is-long-enough")
    with serving([ok(), ok()]) as server:
        ask(f"{server.url}/prefix/", requests.get("/jobs", limit=5, name="a b&c"), CHANGE)
        read, change = server.received
        assert server.connections == 1
    host = f"Host: 127.0.0.1:{server.port}\r\n".encode()
    assert read.startswith(b"GET /prefix/jobs?limit=5&name=a+b%26c HTTP/1.1\r\n" + host)
    assert b"\r\nAuthorization: Bearer a-token-that-is-long-enough\r\n" in read
    assert b"Content-" not in read
    assert change.startswith(b"POST /prefix/dlq/replay HTTP/1.1\r\n" + host)
    assert change.endswith(b'Content-Type: application/json\r\nContent-Length: 12\r\n\r\n{"all":true}')


def test_a_change_without_a_body_says_so(ask: Ask) -> None:
    with serving([ok()]) as server:
        ask(server.url, requests.post("/queues/a/pause"))
    assert server.received[0].endswith(b"Content-Length: 0\r\n\r\n")


def test_a_header_cannot_be_smuggled_in(ask: Ask) -> None:
    wrong = ApiRequest(method="GET", path="/stats", headers={"X-Note": "a\r\nX-Admin: yes"})
    with serving([ok()]) as server, pytest.raises(errors.ArgumentError, match="X-Note"):
        ask(server.url, wrong)
    assert server.received == []


# --- what comes


@pytest.mark.parametrize(
    "answer",
    [
        ok(b'{"a":1}'),
        piecemeal(ok(b'{"a":1}')),
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok(b'{"a":1}'),
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n4;x=y\r\n":1}\r\n0\r\nTrailer: x\r\n\r\n',
        piecemeal(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{"a":1}\r\n0\r\n\r\n'),
    ],
    ids=["whole", "byte by byte", "after interim answers", "in chunks", "in chunks, byte by byte"],
)
def test_an_answer_is_read_however_it_comes_and_the_connection_is_kept(ask: Ask, answer: Step) -> None:
    with serving([answer, answer]) as server:
        assert ask(server.url, READ, READ) == [{"a": 1}, {"a": 1}]
        assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        ok(b'{"a":1}', b"Connection: close\r\n"),
        b'HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\n{"a":1}',
        ok(b'{"a":1}') + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    ],
    ids=["close", "http 1.0", "an answer too many"],
)
def test_a_connection_that_cannot_be_kept_is_closed(ask: Ask, answer: Step) -> None:
    with serving([answer], [answer]) as server:
        assert ask(server.url, READ, READ) == [{"a": 1}, {"a": 1}]
        assert server.connections == 2


def test_an_answer_may_end_with_the_connection(ask: Ask) -> None:
    def until_the_end(connection: socket.socket) -> None:
        connection.sendall(b'HTTP/1.1 200 OK\r\n\r\n{"a":1}')
        close(connection)

    with serving([until_the_end], [until_the_end]) as server:
        assert ask(server.url, READ, READ) == [{"a": 1}, {"a": 1}]


def test_an_answer_without_a_body(ask: Ask) -> None:
    with serving([b"HTTP/1.1 204 No Content\r\n\r\n", ok(b"1")]) as server:
        assert ask(server.url, READ, READ) == [None, 1]
        assert server.connections == 1


def test_a_large_answer_to_a_large_request(ask: Ask) -> None:
    large = b'"' + b"x" * 5_000_000 + b'"'
    with serving([ok(large)]) as server:
        (answer,) = ask(server.url, requests.post("/echo", "y" * 3_000_000, str))
    assert len(answer) == 5_000_000
    assert len(server.received[0]) > 3_000_000


def test_a_refusal_that_comes_before_the_whole_request_was_read_is_heard(ask: Ask) -> None:
    def refuse(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        connection.shutdown(socket.SHUT_WR)

    with serving([refuse]) as server, pytest.raises(errors.InvalidInput, match="413"):
        ask(server.url, CHANGE)


def test_seconds_to_wait_are_read(ask: Ask) -> None:
    busy = b"HTTP/1.1 503 Busy\r\nretry-after: 1.5\r\nX-Request-ID: r-1\r\nContent-Length: 0\r\n\r\n"
    with serving([busy]) as server, pytest.raises(errors.Unavailable, match="503 Busy") as caught:
        ask(server.url, READ)
    assert (caught.value.retry_after, caught.value.request_id) == (1.5, "r-1")


@pytest.mark.parametrize(
    "garbage",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 two hundred\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 70_000,
    ],
)
def test_what_is_no_http_is_an_error_and_the_connection_is_closed(ask: Ask, garbage: bytes) -> None:
    with serving([garbage], [garbage]) as server:
        with pytest.raises(errors.ConnectionFailed):
            ask(server.url, READ)
        assert server.closed_by_client.acquire(timeout=10)


def test_an_answer_without_end_is_given_up(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "BODY_MAX_BYTES", 1_000)
    with serving([ok(b"x" * 2_000)]) as server, pytest.raises(errors.ConnectionFailed, match="larger than"):
        ask(server.url, READ)


# --- connections that end


def test_a_kept_connection_that_the_server_closed_is_replaced_without_a_pause(ask: Ask) -> None:
    def answer_and_close(connection: socket.socket) -> None:
        connection.sendall(ok(b"1"))
        close(connection)

    with serving([answer_and_close], [answer_and_close], [ok(b"2")]) as server:
        assert ask(server.url, READ, READ, READ, pauses=()) == [1, 1, 2]


def test_a_kept_connection_that_ends_with_the_next_request_is_replaced_if_that_may_be_repeated(
    ask: Ask,
) -> None:
    with serving([ok(b"1"), close], [ok(b"2")]) as server:
        assert ask(server.url, READ, READ) == [1, 2]
    with serving([ok(b"1"), close], [ok(b"2")]) as server:
        with pytest.raises(errors.ConnectionFailed, match=r"closed|reset"):
            ask(server.url, READ, CHANGE)
        assert len(server.received) == 2, "the change was not sent again"


def test_a_change_does_not_go_to_a_connection_that_the_server_has_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = threading.Event()

    def answer_and_close(connection: socket.socket) -> None:
        connection.sendall(ok(b"1"))
        close(connection)
        closed.set()

    with serving([answer_and_close], [ok(b"2")]) as server, Transport(server.url, pauses=()) as way:
        assert way.send(READ) == 1
        assert closed.wait(10)
        assert way.send(CHANGE) == 2


def test_an_answer_that_breaks_off_is_asked_for_again_if_that_is_safe(ask: Ask) -> None:
    def half(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        close(connection)

    with serving([half], [half], [ok(b"1")]) as server:
        assert ask(server.url, READ, pauses=(0, 0)) == [1]
    with serving([half], [ok(b"1")]) as server:
        with pytest.raises(errors.ConnectionFailed, match="within its answer"):
            ask(server.url, CHANGE, pauses=(0, 0))
        assert server.connections == 1


def test_a_server_that_is_silent_is_given_up_after_the_time_of_the_wait(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "ANSWER_TIMEOUT_SECONDS", 0.05)
    with serving([lambda _: None]) as server:
        with pytest.raises(errors.ConnectionFailed, match=r"no answer within 0\.1 s"):
            ask(server.url, ApiRequest(method="GET", path="/jobs/x", wait_seconds=0.05))
        assert server.closed_by_client.acquire(timeout=10)


@pytest.mark.parametrize("proxied", [False, True])
def test_a_server_that_is_silent_is_asked_once_more_and_not_six_times(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, proxied: bool
) -> None:
    monkeypatch.setattr(transport, "ANSWER_TIMEOUT_SECONDS", 0.05)
    silence: list[Step] = [lambda _: None]
    with serving(*[silence] * 6) as server:
        if proxied:
            monkeypatch.setenv("HTTP_PROXY", server.url)
        with pytest.raises(errors.ConnectionFailed):
            ask("http://stoker.example:8080" if proxied else server.url, READ, pauses=(0, 0, 0, 0, 0))
        assert len(server.received) == 2


def test_a_connection_that_cannot_be_opened_is_tried_again_even_for_a_change(ask: Ask) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(errors.ConnectionFailed, match=r"refused|failed") as caught:
            ask(url, CHANGE, pauses=(0, 0))
    assert isinstance(caught.value.__cause__, ExchangeError)
    assert not caught.value.__cause__.sent


def test_a_host_that_does_not_exist_is_an_error(ask: Ask) -> None:
    with pytest.raises(errors.ConnectionFailed):
        ask("http://no-such-host.invalid:8080", READ)


# --- threads, loops and processes


def test_threads_have_connections_of_their_own_and_share_them_afterwards() -> None:
    together = threading.Barrier(4)

    def meet(connection: socket.socket) -> None:
        together.wait(10)
        connection.sendall(ok(b"1"))

    scripts: list[list[Step]] = [[meet, ok(b"2"), ok(b"2"), ok(b"2"), ok(b"2")] for _ in range(4)]
    with serving(*scripts) as server, Transport(server.url, pauses=()) as way:
        answers: list[Any] = []
        threads = [threading.Thread(target=lambda: answers.append(way.send(READ))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [1] * 4
        assert [way.send(READ) for _ in range(4)] == [2] * 4
        assert server.connections == 4


def test_closing_while_a_thread_is_served_closes_its_connection_afterwards() -> None:
    asked, closed = threading.Event(), threading.Event()

    def late(connection: socket.socket) -> None:
        asked.set()
        closed.wait(10)
        connection.sendall(ok(b"1"))

    with serving([late], [ok(b"2")]) as server, Transport(server.url, pauses=()) as way:
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(way.send(READ)))
        thread.start()
        asked.wait(10)
        way.close()
        closed.set()
        thread.join()
        assert server.closed_by_client.acquire(timeout=10)
        assert answers == [1]
        assert way.send(READ) == 2, "the next call opens a new connection"


def test_no_more_than_some_connections_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_http, "MAX_IDLE", 1)
    together = threading.Barrier(3)

    def meet(connection: socket.socket) -> None:
        together.wait(10)
        connection.sendall(ok(b"1"))

    with serving([meet], [meet], [meet]) as server, Transport(server.url, pauses=()) as way:
        threads = [threading.Thread(target=way.send, args=(READ,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.closed_by_client.acquire(timeout=10)
        assert server.closed_by_client.acquire(timeout=10)


def test_two_loops_at_once_have_connections_of_their_own() -> None:
    both = threading.Barrier(2)

    def meet(connection: socket.socket) -> None:
        both.wait(10)
        connection.sendall(ok(b"1"))

    with serving([meet, ok(b"2")], [meet, ok(b"2")]) as server:
        way = Transport(server.url, pauses=())
        answers: list[Any] = []

        async def main() -> None:
            answers.append(await way.send_async(READ))
            answers.append(await way.send_async(READ))
            await way.aclose_loop()

        threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == [1, 1, 2, 2]
        assert server.connections == 2
        way.close()


def test_the_end_of_a_loop_closes_its_connections_by_itself() -> None:
    with serving([ok(b"1")], [ok(b"2")]) as server:
        way = Transport(server.url, pauses=())
        assert asyncio.run(way.send_async(READ)) == 1
        assert server.closed_by_client.acquire(timeout=10)
        assert asyncio.run(way.send_async(READ)) == 2


def test_a_cancelled_request_closes_its_connection() -> None:
    asked = threading.Event()

    def say(connection: socket.socket) -> None:
        asked.set()

    async def main() -> Any:
        way = Transport(server.url, pauses=())
        task = asyncio.create_task(way.send_async(READ))
        await asyncio.to_thread(asked.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        answer = await way.send_async(READ)
        await way.aclose()
        return answer

    with serving([say], [ok(b"2")]) as server:
        assert asyncio.run(main()) == 2
        assert server.closed_by_client.acquire(timeout=10)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_opens_connections_of_its_own_and_leaves_the_parents_alone() -> None:
    with serving([ok(b"1"), ok(b"3")], [ok(b"2")]) as server, Transport(server.url, pauses=()) as way:
        assert way.send(READ) == 1
        context = multiprocessing.get_context("fork")
        answers = context.SimpleQueue()

        def child() -> None:
            answers.put(way.send(READ))
            way.close()

        process = context.Process(target=child)
        process.start()
        process.join(20)
        assert (process.exitcode, answers.get()) == (0, 2)
        assert way.send(READ) == 3, "on the connection that the parent had"
        answers.close()


# --- addresses


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6 here")
def test_ipv6(ask: Ask) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 on loopback")
    with serving([ok(b"1")], family=socket.AF_INET6) as server:
        assert ask(server.url, READ) == [1]
    assert f"Host: [::1]:{server.port}\r\n".encode() in server.received[0]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://stoker:8080", ("stoker", 8080, "", "stoker:8080", False)),
        ("http://Stoker/", ("stoker", 80, "", "stoker", False)),
        ("https://a.example/stoker/", ("a.example", 443, "/stoker", "a.example", True)),
        ("https://[::1]:9", ("::1", 9, "", "[::1]:9", True)),
        ("http://name:word@stoker:8080", None),
        ("http://stöker:8080", None),
        ("ftp://stoker", None),
        ("http://stoker:99999", None),
    ],
)
def test_which_urls_need_no_httpx(url: str, expected: Any) -> None:
    found = target.own_target(url, {})
    assert found == (None if expected is None else target.ServerTarget(*expected))


@pytest.mark.parametrize(
    ("environ", "own"),
    [
        ({}, True),
        ({"HTTP_PROXY": "http://proxy:3128"}, False),
        ({"all_proxy": "socks5://proxy"}, False),
        ({"HTTPS_PROXY": "http://proxy:3128"}, True),
        ({"HTTP_PROXY": ""}, True),
        ({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "localhost, .example.org"}, True),
        ({"HTTP_PROXY": "http://proxy:3128", "no_proxy": "*"}, True),
        ({"HTTP_PROXY": "http://proxy:3128", "no_proxy": "ample.org"}, False),
    ],
)
def test_a_proxy_is_left_to_httpx(environ: dict[str, str], own: bool) -> None:
    assert (target.own_target("http://api.example.org:8080", environ) is not None) is own


def test_a_request_goes_through_the_proxy_that_the_environment_names(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving([ok(b"1")]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert ask("http://stoker.example:8080", READ) == [1]
    assert proxy.received[0].startswith(b"GET http://stoker.example:8080/stats HTTP/1.1\r\n")


def test_an_answer_that_a_proxy_garbled_is_an_error_of_the_sdk(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving([ok(b"not packed", b"Content-Encoding: gzip\r\n")]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with pytest.raises(errors.ConnectionFailed):
            ask("http://stoker.example:8080", READ)


@pytest.mark.parametrize("proxy", ["ftp://proxy:3128", "socks5://127.0.0.1:1"])
def test_a_proxy_that_cannot_be_used_is_an_error_of_the_sdk(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(errors.ConnectionFailed, match=r"ALL_PROXY"):
        ask("http://stoker.example:8080", READ)


def test_the_end_of_a_loop_closes_its_connections_to_a_proxy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving([ok(b"1")], [ok(b"2")]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        way = Transport("http://stoker.example:8080", pauses=())
        assert asyncio.run(way.send_async(READ)) == 1
        assert proxy.closed_by_client.acquire(timeout=10)
        assert asyncio.run(way.send_async(READ)) == 2


# --- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    made = subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"),
            *("-keyout", str(path), "-out", str(path.with_suffix(".crt"))),
        ],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("there is no openssl here")
    path.write_bytes(path.read_bytes() + path.with_suffix(".crt").read_bytes())
    return path


@contextlib.contextmanager
def serving_tls(certificate: Path, answers: list[bytes]) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                raw, _ = listener.accept()
                with contextlib.suppress(OSError), context.wrap_socket(raw, server_side=True) as secured:
                    for answer in answers:
                        secured.recv(65536)
                        secured.sendall(answer)
                    secured.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"https://localhost:{listener.getsockname()[1]}"
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def test_tls_with_a_certificate_that_is_trusted(
    ask: Ask, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.with_suffix(".crt")))
    with serving_tls(certificate, [ok(b"1"), ok(b"2")]) as url:
        assert ask(url, READ, READ) == [1, 2]


def test_a_certificate_that_is_not_trusted_is_refused(ask: Ask, certificate: Path) -> None:
    began = time.monotonic()
    with serving_tls(certificate, [ok(b"1")]) as url:
        with pytest.raises(errors.ConnectionFailed, match=r"certificate.*SSL_CERT_FILE"):
            ask(url, READ, pauses=(60,))
        with pytest.raises(errors.ConnectionFailed, match=r"Hostname mismatch|SSL_CERT_FILE"):
            ask(url.replace("localhost", "127.0.0.1"), READ, pauses=(60,))
    assert time.monotonic() - began < 30, "another try would not help"


def test_tls_to_a_server_without_it_is_refused_with_advice(ask: Ask) -> None:
    def serve() -> None:
        raw, _ = listener.accept()
        with raw:
            raw.recv(65536)
            raw.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(errors.ConnectionFailed, match="does not speak TLS"):
            ask(f"https://127.0.0.1:{listener.getsockname()[1]}", READ, pauses=(60,))
        thread.join(10)
    assert time.monotonic() - began < 30


# --- the reader alone


def test_every_split_of_an_answer_is_read_alike() -> None:
    data = ok(b'{"a":1}', b"X-A: b\r\n")
    for split in range(1, len(data)):
        reader = AnswerReader()
        assert reader.feed(data[:split]) is None
        answer = reader.feed(data[split:])
        assert answer is not None
        assert (answer.status, answer.header("x-a"), answer.body) == (200, "b", b'{"a":1}')
        assert reader.reusable
