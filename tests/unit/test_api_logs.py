"""What jobs wrote, over HTTP: text and JSON, selections and tails, and streams that grow and end."""

import asyncio
import json
import re
import socket
import threading
import uuid
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from stoker.api.app import create_app
from stoker.api.handlers.logs import entry_views, last_lines
from stoker.coordinator.job_output.output import JobProgress
from stoker.domain.errors import StoreUnavailable
from stoker.domain.job import Job
from stoker.store.logs import Entry, LogPage, Selection, Stream
from tests.support.jobs import a_job
from tests.support.turns import turns, until
from tests.unit.test_api_server import exchange, served
from tests.unit.test_api_service import FakeOutput, FakeService, api, ask

NOW = 1_767_323_045_678_901


def entry(data: bytes, claim: int = 1, stream: Stream = "stdout") -> Entry:
    return Entry(claim, claim, stream, NOW, data)


class LogService(FakeService):
    """Has one job, and serves its entries one a page. `write` and `end` may be called from any thread."""

    def __init__(self, *entries: Entry, ended: bool = True, **job: Any) -> None:
        super().__init__()
        self.job_id = str(uuid.uuid4())
        self.stored[self.job_id] = a_job(id=self.job_id, status="completed" if ended else "running", **job)
        self.entries = list(entries)
        self.is_over = ended
        self.cut = self.closing = False
        self.breaks_at: int | None = None
        self.waiting = threading.Event()
        self.left = threading.Event()
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.output = LogOutput(self)

    @property
    def path(self) -> str:
        return f"/jobs/{self.job_id}/logs"

    def write(self, *entries: Entry) -> None:
        self._tell(lambda: self.entries.extend(entries))

    def end(self) -> None:
        self._tell(lambda: setattr(self, "is_over", True))

    def close(self) -> None:
        self._tell(lambda: setattr(self, "closing", True))

    def _tell(self, change: Callable[[], object]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(change)
        self._loop.call_soon_threadsafe(self._news.set)

    async def page(self, which: Selection, after: int = 0, wait: float = 0.0) -> LogPage:
        self._loop = asyncio.get_running_loop()
        await self.jobs.get(which.job_id)
        if self.breaks_at == after:
            raise StoreUnavailable("the disk is gone")
        if wait and after >= len(self.entries) and not self.is_over and not self.closing:
            await self._wait()
        page = self.entries[after : after + 1]
        position = after + len(page)
        more = position < len(self.entries)
        shown = [
            item
            for item in page
            if which.claim_id in (None, item.claim_id) and which.attempt in (None, item.attempt)
        ]
        return LogPage(
            shown, position, more, self.cut, 99, ended=self.is_over and not more, closing=self.closing
        )

    async def _wait(self) -> None:
        self._news.clear()
        self.waiting.set()
        try:
            await self._news.wait()
        except asyncio.CancelledError:
            self.left.set()
            raise


class LogOutput(FakeOutput):
    def __init__(self, fake: LogService) -> None:
        super().__init__(fake)
        self.page = fake.page  # type: ignore[method-assign]


# --- text ----------------------------------------------------------------------------------------------


def test_text_is_what_the_job_wrote_byte_for_byte() -> None:
    service = LogService(entry(b"one\n"), entry(b"\x00\xff\x1b[31m", stream="stderr"), entry(b"two", 2))
    answer = ask(service, "GET", service.path)
    assert answer.status_code == 200
    assert answer.content == b"one\n\x00\xff\x1b[31mtwo"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-request-id"]
    assert "content-length" not in answer.headers


def test_a_job_that_wrote_nothing_has_an_empty_log() -> None:
    service = LogService()
    answer = ask(service, "GET", service.path)
    assert (answer.status_code, answer.content) == (200, b"")


def test_attempts_and_claims_are_selected() -> None:
    service = LogService(entry(b"one\n", 1), entry(b"two\n", 2))
    assert ask(service, "GET", f"{service.path}?attempt=2").content == b"two\n"
    assert ask(service, "GET", f"{service.path}?claim=1").content == b"one\n"


def test_a_tail_spans_pages() -> None:
    service = LogService(entry(b"one\ntwo\nth"), entry(b"ree\n", stream="stderr"), entry(b"four\n"))
    assert ask(service, "GET", f"{service.path}?tail=2").content == b"three\nfour\n"
    assert ask(service, "GET", f"{service.path}?tail=100").content == b"one\ntwo\nthree\nfour\n"


@pytest.mark.parametrize("path", ["/jobs/0190a1b2-0000-7000-8000-00000000dead/logs", "/jobs/nope/logs"])
@pytest.mark.parametrize("query", ["", "?follow=1", "?format=json"])
def test_an_unknown_job_is_404(path: str, query: str) -> None:
    answer = ask(LogService(), "GET", path + query)
    assert answer.status_code == 404
    assert answer.json()["type"] == "urn:stoker:problem:not-found"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("tail=0", "tail"),
        ("tail=x", "tail"),
        ("format=xml", "format"),
        ("follow=maybe", "follow"),
        ("format=json&follow=1&wait=3", "wait"),
        ("wait=5", "wait"),
        ("after=-1", "after"),
        ("lines=3", "lines"),
    ],
)
def test_wrong_parameters_are_named(query: str, field: str) -> None:
    service = LogService()
    answer = ask(service, "GET", f"{service.path}?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field


def test_a_store_that_fails_is_told_while_it_still_can_be() -> None:
    service = LogService(entry(b"one\n"))
    service.breaks_at = 0
    assert ask(service, "GET", service.path).status_code == 503


def test_head_sends_no_body() -> None:
    service = LogService(entry(b"one\n"), ended=False)
    with served(service) as port:
        request = f"HEAD {service.path}?follow=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        answer = exchange(port, request.encode())
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\n")
    assert b"content-length" not in answer.lower(), "GET announces none"


# --- JSON ----------------------------------------------------------------------------------------------


def test_json_says_when_and_where() -> None:
    service = LogService(entry(b"one\n"), entry(b"[stoker: cut]\n", 2, "stoker"))
    service.cut = True
    document = ask(service, "GET", f"{service.path}?format=json").json()
    assert document == {
        "entries": [
            {
                "attempt": 1,
                "claim_id": 1,
                "stream": "stdout",
                "time": "2026-01-02T03:04:05.678901Z",
                "text": "one\n",
            },
            {
                "attempt": 2,
                "claim_id": 2,
                "stream": "stoker",
                "time": "2026-01-02T03:04:05.678901Z",
                "text": "[stoker: cut]\n",
            },
        ],
        "cut": True,
        "written_bytes": 99,
        "position": 2,
        "more": False,
        "ended": True,
    }


def test_json_goes_on_after_a_position_and_a_tail() -> None:
    service = LogService(entry(b"one\n"), entry(b"two\n"), ended=False)
    document = ask(service, "GET", f"{service.path}?format=json&after=1").json()
    assert [item["text"] for item in document["entries"]] == ["two\n"]
    document = ask(service, "GET", f"{service.path}?format=json&tail=1").json()
    assert [item["text"] for item in document["entries"]] == ["two\n"]
    assert (document["position"], document["ended"]) == (2, False)


async def test_json_waits_for_news() -> None:
    service = LogService(ended=False)
    async with api(service) as client:
        asking = asyncio.create_task(client.get(service.path, params={"format": "json", "wait": 60}))
        await until(service.waiting.is_set)
        service.write(entry(b"news\n"))
        document = (await asking).json()
    assert [item["text"] for item in document["entries"]] == ["news\n"]


def test_a_long_log_in_json_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.api.handlers.logs.JSON_BYTES", 8)
    service = LogService(*(entry(b"abcd") for _ in range(5)))
    texts, after = "", 0
    while True:
        part = ask(service, "GET", f"{service.path}?format=json&after={after}").json()
        texts += "".join(item["text"] for item in part["entries"])
        after = part["position"]
        assert part["ended"] is not part["more"]
        if part["ended"]:
            break
        assert len(part["entries"]) == 2
    assert texts == "abcd" * 5


def test_characters_that_span_entries_are_whole_and_what_is_no_text_is_replaced() -> None:
    euro = "€".encode()
    views = entry_views(
        [entry(b"a" + euro[:1]), entry(b"err", stream="stderr"), entry(euro[1:] + b"\xff" + euro[:2])]
    )
    assert [view.text for view in views] == ["a", "err", "€\ufffd\ufffd"]


@given(
    st.lists(st.binary(max_size=6).map(lambda data: data.replace(b"\x01", b"\n")), max_size=6),
    st.integers(1, 5),
)
def test_last_lines_are_those_of_the_whole(parts: list[bytes], count: int) -> None:
    whole = b"".join(parts)
    found = b"".join(item.data for item in last_lines([entry(part) for part in parts if part], count))
    assert found == b"".join(re.findall(rb"[^\n]*\n|[^\n]+", whole)[-count:])


# --- streams -------------------------------------------------------------------------------------------


def test_a_follower_sees_lines_live_and_the_stream_ends_with_the_job() -> None:
    service = LogService(entry(b"before\n"), ended=False)
    with (
        served(service) as port,
        httpx.stream("GET", f"http://127.0.0.1:{port}{service.path}?follow=1", timeout=30) as answer,
    ):
        assert answer.headers["transfer-encoding"] == "chunked"
        pieces = answer.iter_raw()
        assert next(pieces) == b"before\n"
        for line in (b"one\n", b"two\n"):
            assert service.waiting.wait(30)
            service.write(entry(line))
            assert next(pieces) == line
        service.end()
        assert list(pieces) == []


def test_following_in_json_is_a_document_a_line() -> None:
    service = LogService(entry(b"before\n"), ended=False)
    url = f"{service.path}?follow=1&format=json"
    with (
        served(service) as port,
        httpx.stream("GET", f"http://127.0.0.1:{port}{url}", timeout=30) as answer,
    ):
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = map(json.loads, answer.iter_lines())
        first = next(lines)
        assert [one["text"] for one in first["entries"]] == ["before\n"]
        assert service.waiting.wait(30)
        service.write(entry(b"one\n"))
        second = next(lines)
        assert ([one["text"] for one in second["entries"]], second["ended"]) == (["one\n"], False)
        assert second["position"] > first["position"]
        service.end()
        (last,) = lines
        assert (last["entries"], last["ended"]) == ([], True)


def test_following_begins_with_a_tail() -> None:
    service = LogService(entry(b"one\ntwo\n"), entry(b"three\n"), ended=False)
    with (
        served(service) as port,
        httpx.stream("GET", f"http://127.0.0.1:{port}{service.path}?follow=1&tail=1", timeout=30) as answer,
    ):
        pieces = answer.iter_raw()
        assert next(pieces) == b"three\n"
        assert service.waiting.wait(30)
        service.write(entry(b"four\n"))
        assert next(pieces) == b"four\n"
        service.end()
        assert list(pieces) == []


def test_a_client_that_leaves_ends_its_stream_at_once() -> None:
    service = LogService(ended=False)
    with served(service) as port:
        request = f"GET {service.path}?follow=1 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(request)
            assert service.waiting.wait(30)
            assert not service.left.is_set()
        assert service.left.wait(30)


def test_a_stream_that_breaks_is_not_taken_for_whole(capsys: pytest.CaptureFixture[str]) -> None:
    service = LogService(entry(b"one\n"), entry(b"two\n"))
    service.breaks_at = 1
    with served(service) as port, pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"http://127.0.0.1:{port}{service.path}", timeout=30)


def test_a_coordinator_that_leaves_breaks_off_what_is_followed() -> None:
    service = LogService(ended=False)
    with (
        served(service) as port,
        httpx.stream("GET", f"http://127.0.0.1:{port}{service.path}?follow=1", timeout=30) as answer,
    ):
        assert service.waiting.wait(30)
        service.close()
        with pytest.raises(httpx.RemoteProtocolError):
            answer.read()


async def test_a_stream_waits_for_a_slow_reader() -> None:
    """The next page is read when the one before has been taken: a slow client costs a page, not the whole log."""
    service = LogService(*(entry(b"%d\n" % number) for number in range(9)))
    taken = asyncio.Semaphore(0)
    sent: list[bytes] = []

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        if message.get("body"):
            sent.append(message["body"])
            await taken.acquire()

    scope = {
        "type": "http", "method": "GET", "path": service.path, "query_string": b"",
        "headers": [(b"host", b"localhost")], "scheme": "http",
    }  # fmt: skip
    answering = asyncio.ensure_future(create_app(service)(scope, receive, send))
    for count in range(1, 10):
        await turns(50)
        assert len(sent) == count
        taken.release()
    await answering


# --- progress ------------------------------------------------------------------------------------------


def test_progress_is_part_of_a_job() -> None:
    service = LogService(ended=False)
    job: Job = service.stored[service.job_id]
    assert ask(service, "GET", f"/jobs/{job.id}").json()["progress"] is None
    service.progresses[job.id] = JobProgress(3, 8, "halfway", 37.5)
    shown = {"done": 3, "total": 8, "message": "halfway", "percent": 37.5}
    assert ask(service, "GET", f"/jobs/{job.id}").json()["progress"] == shown
    assert ask(service, "GET", "/jobs").json()["jobs"][0]["progress"] == shown
    assert msgspec.json.decode(ask(service, "GET", "/db/jobs").content)["jobs"][0]["progress"] == shown
