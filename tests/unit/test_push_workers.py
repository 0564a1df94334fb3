"""Workers that are web services: who may be dialled, what their answers mean, and that a claim ends once."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.coordinator.dispatch import Dispatch
from stoker.coordinator.durations import Durations, Key
from stoker.coordinator.endpoint_answers import EndpointAnswer, read_answer, rest_seconds
from stoker.coordinator.http_workers import HttpWorkers
from stoker.coordinator.observers import JobObserver, Observers
from stoker.coordinator.push_workers import PushSession
from stoker.coordinator.reports import ReportSink, each
from stoker.coordinator.run_times import RunTimes
from stoker.coordinator.sessions import Sessions
from stoker.domain.errors import EndpointNotListed, MissingError, StateConflict, StoreUnavailable
from stoker.domain.job import Job
from stoker.domain.lifecycle import Status
from stoker.domain.retry import RetryPolicy
from stoker.settings import SettingsError, load
from stoker.store.outcomes import Completions, Finish
from stoker.store.sqlite.store import SqliteStore
from stoker.wire.frames import Assign, Assignment, Cancel, ClaimRef
from stoker.wire.http import HttpClaim, HttpHello, HttpOrders, HttpReport
from stoker.worker_endpoints import find_listed, parse
from tests.support.clock import FakeClock
from tests.support.dispatching import dispatch_once
from tests.support.in_loop import in_loop
from tests.support.jobs import a_job, a_submission
from tests.support.turns import until
from tests.support.web_service import Received, WebService, echo, http, said, web_service

MAX_RESULT = 1_000
SOON_SECONDS = 10.0
REF = ClaimRef("job", 3)


# ── who may be dialled ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("listed", "wanted"),
    [
        ("http://svc", "http://svc"),
        ("http://svc", "http://svc/"),
        ("http://svc", "http://svc:80/any/where"),
        ("http://svc:80/", "http://SVC/jobs"),
        ("https://svc", "https://svc:443/jobs/"),
        ("http://svc:9000/jobs", "http://svc:9000/jobs"),
        ("http://svc:9000/jobs/", "http://svc:9000/jobs"),
        ("http://svc:9000/jobs", "http://svc:9000/jobs/a.b/c"),
        ("http://[::1]:9000", "http://[::1]:9000/x"),
    ],
)
def test_an_entry_covers_itself_and_what_is_below_it(listed: str, wanted: str) -> None:
    assert find_listed(wanted, [listed]) == parse(wanted)


@pytest.mark.parametrize(
    "wanted",
    [
        "https://svc:9000/jobs",
        "http://svc/jobs",
        "http://svc:9001/jobs",
        "http://svc.evil.example:9000/jobs",
        "http://svc:9000",
        "http://svc:9000/jobsx",
        "http://svc:9000/other",
        "http://svc:9000/jobs/../other",
        "http://svc:9000/jobs/..",
        "http://svc:9000/jobs/./x",
        "http://svc:9000/jobs/%2e%2e/other",
        "http://svc:9000/jobs//x",
        "http://svc:9000/jobs\\..\\other",
        "http://svc:9000/jobs?to=x",
        "http://svc:9000/jobs#x",
        "http://svc:9000@evil.example/jobs",
        "http://user:pw@svc:9000/jobs",
        "http://svc:9000\n.evil.example/jobs",
        "http://\u0455vc:9000/jobs",
        "http://svc.:9000/jobs",
        "http://svc:0/jobs",
        "http://svc:99999/jobs",
        "ftp://svc:9000/jobs",
        "svc:9000/jobs",
        "http:///jobs",
        "",
    ],
)
def test_anything_else_is_not_on_the_list(wanted: str) -> None:
    assert find_listed(wanted, ["http://svc:9000/jobs"]) is None


def test_a_colon_without_a_port_is_refused_since_it_would_mean_port_80() -> None:
    with pytest.raises(ValueError, match="no port after the colon"):
        parse("http://10.0.0.5:")
    with pytest.raises(SettingsError, match="STOKER_ENDPOINTS"):
        load({"STOKER_ENDPOINTS": "http://10.0.0.5:"})


def test_an_empty_list_covers_nothing() -> None:
    assert find_listed("http://127.0.0.1:9000", []) is None


_PIECES = st.sampled_from(
    [*"abz019.-_~@:/%\\?#[]\t ", "..", "//", "http://", "https://", "svc", "%2e", "é", "::1", ":80"]
)


@given(st.lists(_PIECES, max_size=12).map("".join))
def test_the_dialler_understands_an_address_as_the_list_did(tail: str) -> None:
    try:
        ours = parse("http://" + tail)
    except ValueError:
        return
    theirs = httpx.URL(str(ours))
    assert (theirs.scheme, theirs.host, theirs.port or 80) == (ours.scheme, ours.host, ours.port)
    assert (theirs.path, theirs.query, theirs.userinfo) == (ours.path or "/", b"", b"")


def test_the_setting_is_a_list_of_addresses_in_one_spelling() -> None:
    loaded = load({"STOKER_ENDPOINTS": "http://SVC:80/jobs, https://b.example:8443"})
    assert loaded.endpoints == ("http://svc/jobs", "https://b.example:8443")
    assert load({}).endpoints == ()


@pytest.mark.parametrize(
    "text", ["svc", "http://u:p@svc", "http://svc?x", "http://svc/..", "http://ok,ftp://svc"]
)
def test_a_wrong_list_refuses_to_start(text: str) -> None:
    with pytest.raises(SettingsError, match=r"STOKER_ENDPOINTS=.*: must be addresses"):
        load({"STOKER_ENDPOINTS": text})


# ── what an answer means ─────────────────────────────────────────────────────────────────────────────────────────────


def kind_and_type(status: int, body: bytes | None) -> tuple[str, str | None]:
    report = read_answer(REF, EndpointAnswer(status, body))
    assert report is not None
    assert (report.id, report.claim_id) == (REF.id, REF.claim_id)
    return report.kind, None if report.error is None else msgspec.json.decode(report.error)["type"]


ERROR = b'{"error": {"type": "Cold", "message": "the torch is out"}}'
HOPELESS = b'{"error": {"type": "Cold", "message": "no torch", "retryable": false}}'


@pytest.mark.parametrize(
    ("status", "body", "kind", "error"),
    [
        (200, b'{"result": 1}', "completed", None),
        (200, b'{"result": null}', "completed", None),
        (200, b'{"result": [1], "error": null, "took": 3}', "completed", None),
        (200, ERROR, "error", "Cold"),
        (200, b'{"result": null, "error": {"type": "Cold", "message": "out"}}', "error", "Cold"),
        (422, ERROR, "error", "Cold"),
        (500, ERROR, "error", "Cold"),
        (500, HOPELESS, "invalid", "Cold"),
        (429, ERROR, "error", "dispatch_failed"),
        (503, b"", "error", "dispatch_failed"),
        (200, b"", "error", "bad_answer"),
        (200, b"{}", "error", "bad_answer"),
        (200, b"[1]", "error", "bad_answer"),
        (200, b"<html>", "error", "bad_answer"),
        (200, b'{"result": 1, "error": {"type": "a", "message": "b"}}', "error", "bad_answer"),
        (200, b'{"error": {"type": "a"}}', "error", "bad_answer"),
        (200, b'{"error": {"type": "", "message": "b"}}', "error", "bad_answer"),
        (200, b'{"error": "\xff"}', "error", "bad_answer"),
        (200, b'{"result": ' + b"[" * 100_000, "error", "bad_answer"),
        (201, b'{"result": 1}', "error", "bad_answer"),
        (204, b"", "error", "bad_answer"),
        (301, b'{"result": 1}', "error", "bad_answer"),
        (404, b"not found", "error", "bad_answer"),
        (500, b'{"result": 1}', "error", "bad_answer"),
        (200, None, "invalid", "result_too_large"),
        (500, None, "error", "bad_answer"),
    ],
)
def test_every_answer_ends_the_attempt_in_one_way(
    status: int, body: bytes | None, kind: str, error: str | None
) -> None:
    assert kind_and_type(status, body) == (kind, error)


def test_later_is_no_end() -> None:
    assert read_answer(REF, EndpointAnswer(202, b"whatever")) is None


@given(st.integers(100, 599), st.one_of(st.none(), st.binary(max_size=50)))
def test_no_answer_is_beyond_judgement(status: int, body: bytes | None) -> None:
    report = read_answer(REF, EndpointAnswer(status, body))
    assert (report is None) == (status == 202)


def test_an_unusable_answer_is_shown_shortened() -> None:
    report = read_answer(REF, EndpointAnswer(500, b"<html>" + b"x" * 10_000))
    assert report is not None
    assert report.error is not None
    assert len(msgspec.json.decode(report.error)["body"]) == 200


def test_rests_grow_and_are_bounded() -> None:
    assert [rest_seconds(n) for n in (1, 2, 3, 4)] == [1, 2, 4, 8]
    assert rest_seconds(10_000) == 30


# ── the whole way: dispatch, request, answer, report ─────────────────────────────────────────────────────────────────


class Fickle:
    """A store that can be made to fail, in front of the real one."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.failures = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def finish(self, finishes: Sequence[Finish]) -> list[Status | None]:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("not now")
        return await self._store.finish(finishes)


class Ends(JobObserver):
    """Passes on how attempts ended, those that completed like all others."""

    def __init__(self, tell: Callable[[Sequence[tuple[Finish, Status | None]]], None]) -> None:
        self._tell = tell

    def completed(self, completed: Sequence[Completions], durations: Mapping[Key, Durations]) -> None:
        self._tell([(Finish(*end), "completed") for end in each(completed)])

    def ended(self, ended: Sequence[tuple[Finish, Status | None]]) -> None:
        self._tell(ended)


class Shop:
    """What a coordinator has around its HTTP workers, on a real store, with one web service."""

    def __init__(self, store: SqliteStore, clock: FakeClock, service: WebService) -> None:
        self.store: Any = Fickle(store)
        self.clock = clock
        self.service = service
        self.ended: dict[str, asyncio.Future[Status | None]] = {}
        self._listen()

    def _listen(self) -> None:
        """A coordinator's life begins."""
        self.sessions = Sessions()
        self.dispatch = Dispatch(self.store, self.sessions, RunTimes(), "round_robin", Observers())
        self.sink = ReportSink(
            self.store,
            RunTimes(),
            RetryPolicy(),
            max_result_bytes=MAX_RESULT,
            spread=lambda: 0.0,
            wake=self.dispatch.wake,
            observers=Observers(Ends(self._finished)),
        )
        self.workers = HttpWorkers(
            self.store,
            self.sessions,
            self.sink,
            heartbeat_timeout_sec=30,
            new_id=lambda: f"w{len(self.sessions) + 1}",
            endpoints=[f"{self.service.url}/jobs"],
            max_result_bytes=MAX_RESULT,
        )

    async def restart(self) -> None:
        """As after a kill: nothing of what was in memory is left, and nobody was told."""
        for session in list(self.sessions):
            self.workers.forget(session.id)
        await self.workers.close()
        self._listen()

    def _finished(self, ended: Sequence[tuple[Finish, Status | None]]) -> None:
        for finish, status in ended:
            future = self._end_of(finish.claim.id)
            if not future.done():
                future.set_result(status)

    def _end_of(self, id: str) -> "asyncio.Future[Status | None]":
        return self.ended.setdefault(id, asyncio.get_running_loop().create_future())

    async def register(self, path: str = "/jobs", threads: int = 2) -> str:
        hello = HttpHello("web", threads, ("echo",), endpoint=f"{self.service.url}{path}")
        return (await self.workers.register(hello)).id

    async def submit(self, **fields: Any) -> Job:
        job = a_job(**{"payload": b'"hi"', **fields})
        await self.store.insert([a_submission(job)])
        return job

    async def send(self, **fields: Any) -> Job:
        """Submit a job and dispatch it."""
        job = await self.submit(**fields)
        assert await self.dispatch_once() == 1
        return job

    async def end(self, job: Job) -> Job:
        """The job once an end of an attempt is stored, or was refused."""
        async with asyncio.timeout(SOON_SECONDS):
            await self._end_of(job.id)
        del self.ended[job.id]
        return await self.get(job)

    async def get(self, job: Job) -> Job:
        (found,) = await self.store.get([job.id])
        assert isinstance(found, Job)
        return found

    async def arrival(self) -> Received:
        async with asyncio.timeout(SOON_SECONDS):
            await self.service.arrived.wait()
        self.service.arrived.clear()
        return self.service.received[-1]

    async def dispatch_once(self) -> int:
        return await dispatch_once(self.dispatch, self.store)

    async def again(self) -> int:
        """Dispatch once more, after the backoff."""
        self.clock.advance(400)
        await self.store.promote(10)
        return await self.dispatch_once()

    def session(self, id: str = "w1") -> PushSession:
        session = self.sessions.get(id)
        assert isinstance(session, PushSession)
        return session

    def rested(self, id: str = "w1") -> None:
        """The rest is over, without waiting for it."""
        line = self.workers.line(id)
        assert line is not None
        line._stop_resting()

    async def beat(self, id: str = "w1", *held: tuple[str, int]) -> HttpOrders:
        return await self.workers.heartbeat(id, [HttpClaim(*claim) for claim in held])

    async def report(self, job: Job, claim_id: int = 1, id: str = "w1") -> tuple[int, int]:
        report = HttpReport(job.id, claim_id, "completed", msgspec.Raw(b'"later"'))
        receipt = await self.workers.report(id, [report])
        return len(receipt.accepted), len(receipt.stale)


@pytest.fixture
def shop(tmp_path: Path, clock: FakeClock) -> Shop:
    @asynccontextmanager
    async def make() -> AsyncIterator[Shop]:
        store = await SqliteStore.open(tmp_path / "s.db", clock, threads=False)
        async with web_service() as service:
            shop = Shop(store, clock, service)
            yield shop
            await shop.workers.close()
        await store.close()

    return in_loop(make)


class Gate:
    """Holds answers back until it is opened."""

    def __init__(self, reply: bytes | None = None) -> None:
        self.open = asyncio.Event()
        self._reply = reply

    async def __call__(self, request: Received) -> bytes:
        await self.open.wait()
        return await echo(request) if self._reply is None else self._reply


def always(reply: bytes) -> Any:
    async def answer(request: Received) -> bytes:
        return reply

    return answer


def error_type(job: Job) -> str:
    assert job.error is not None
    return str(msgspec.json.decode(job.error)["type"])


async def test_a_job_is_posted_and_the_answer_is_its_result(shop: Shop) -> None:
    await shop.register("/jobs/weld/")
    job = await shop.send(payload=b'{"n": 12345678901234567890}', name="seam", timeout_sec=9.0)
    done = await shop.end(job)
    assert (done.status, done.result, done.worker_id) == ("completed", b'{"n": 12345678901234567890}', "w1")
    (request,) = shop.service.received
    assert (request.path, request.headers["idempotency-key"]) == ("/jobs/weld/", f"{job.id}:1")
    assert request.headers["content-type"] == "application/json"
    assert request.job == {
        "id": job.id,
        "claim_id": 1,
        "type": "echo",
        "payload": {"n": 12345678901234567890},
        "attempt": 1,
        "max_attempts": 4,
        "threads": 1,
        "timeout_sec": 9.0,
        "name": "seam",
        "queue": "default",
        "metadata": {},
    }
    assert shop.session().held == {}


async def test_one_that_is_not_listed_is_neither_registered_nor_dialled(shop: Shop) -> None:
    for path in ("", "/other", "/jobs/../other"):
        with pytest.raises(EndpointNotListed, match="STOKER_ENDPOINTS"):
            await shop.register(path)
    assert await shop.store.sessions() == []
    await shop.submit()
    assert await shop.dispatch_once() == 0
    assert shop.service.connections == 0


async def test_jobs_are_not_leased_by_a_worker_with_an_endpoint(shop: Shop) -> None:
    with pytest.raises(StateConflict, match="endpoint"):
        await shop.workers.lease(await shop.register(), 1, 0)


async def test_threads_bound_what_is_under_way(shop: Shop) -> None:
    gate = shop.service.reply = Gate()
    await shop.register(threads=2)
    jobs = [await shop.submit() for _ in range(3)]
    assert await shop.dispatch_once() == 2
    assert await shop.dispatch_once() == 0
    gate.open.set()
    await shop.end(jobs[0])
    await shop.end(jobs[1])
    assert await shop.dispatch_once() == 1
    assert (await shop.end(jobs[2])).status == "completed"


@pytest.mark.parametrize(
    ("reply", "status", "error"),
    [
        (said(500, error={"type": "Cold", "message": "out"}), "scheduled", "Cold"),
        (said(422, error={"type": "Cold", "message": "out", "retryable": False}), "failed", "Cold"),
        (said(503), "scheduled", "dispatch_failed"),
        (http(302, b"", "Location: /jobs/other"), "scheduled", "bad_answer"),
        (http(200, gzip.compress(b'{"result": 1}'), "Content-Encoding: gzip"), "scheduled", "bad_answer"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "scheduled", "bad_answer"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 500_000, "scheduled", "bad_answer"),
        (said(result="x" * MAX_RESULT), "failed", "result_too_large"),
        (said(result="x" * 2_000_000), "failed", "result_too_large"),
        (http(200, b'{"result": "\xff"}'), "failed", "invalid_result"),
    ],
)
async def test_other_answers_fail_the_attempt(shop: Shop, reply: bytes, status: str, error: str) -> None:
    shop.service.reply = always(reply)
    await shop.register()
    done = await shop.end(await shop.send())
    assert (done.status, error_type(done), done.attempt) == (status, error, 1)
    assert len(shop.service.received) == 1, "nothing is followed, nothing is sent twice"


async def test_an_endless_answer_is_not_read_to_its_end(shop: Shop) -> None:
    """The last chunk never comes: whoever waits for it waits for ever."""
    head, chunk = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"10000\r\n" + b"x" * 65_536 + b"\r\n",
    )
    shop.service.reply = always(head + chunk * 64)
    await shop.register()
    done = await shop.end(await shop.send())
    assert (done.status, error_type(done)) == ("failed", "result_too_large")


async def test_cookies_and_proxies_are_not_used(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    shop.service.reply = always(http(200, b'{"result": 1}', "Set-Cookie: a=b"))
    await shop.register()
    for _ in range(2):
        assert (await shop.end(await shop.send())).status == "completed"
    assert not [name for request in shop.service.received for name in request.headers if name == "cookie"]
    assert not [
        name for request in shop.service.received for name in request.headers if name == "authorization"
    ]


async def test_an_attempt_that_takes_too_long_ends_as_a_timeout(shop: Shop) -> None:
    shop.service.reply = Gate()
    await shop.register()
    job = await shop.send(timeout_sec=0.05)
    done = await shop.end(job)
    assert (done.status, error_type(done), done.attempt) == ("scheduled", "timeout", 1)
    (attempt,) = await shop.store.attempts(job.id)
    assert (attempt.kind, attempt.charged) == ("timeout", True)
    async with asyncio.timeout(SOON_SECONDS):
        await shop.service.broken_off.wait()
    assert (await shop.beat()).revoked == [HttpClaim(job.id, 1)]


async def test_a_cancel_breaks_the_request_off(shop: Shop) -> None:
    shop.service.reply = Gate()
    await shop.register()
    job = await shop.send()
    await shop.arrival()
    await shop.store.cancel([job.id])
    shop.session().send(Cancel([ClaimRef(job.id, 1)]))
    assert (await shop.end(job)).status == "cancelled"
    async with asyncio.timeout(SOON_SECONDS):
        await shop.service.broken_off.wait()
    assert (shop.session().held, shop.session().flights) == ({}, {})


async def test_a_cancel_in_the_moment_of_assignment_sends_nothing(shop: Shop) -> None:
    await shop.register()
    job = await shop.send()
    shop.session().send(Cancel([ClaimRef(job.id, 1)]))
    await shop.end(job)
    assert shop.service.received == []


# ── later ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def promised(shop: Shop, **fields: Any) -> Job:
    """A job that the service has answered with 202."""
    shop.service.reply = always(http(202))
    job = await shop.send(**fields)
    flight = shop.session().flights[job.id]
    await until(lambda: flight.later)
    return job


async def test_a_promised_job_is_reported_under_its_claim(shop: Shop) -> None:
    await shop.register()
    job = await promised(shop)
    shop.clock.advance(20)
    await shop.beat()
    assert (await shop.get(job)).status == "running", "held or not: it was promised"
    assert await shop.report(job, claim_id=2) == (0, 1)
    assert await shop.report(job) == (1, 0)
    done = await shop.get(job)
    assert (done.status, done.result) == ("completed", b'"later"')
    assert (shop.session().held, shop.session().flights) == ({}, {})
    assert await shop.report(job) == (1, 0), "sent again, accepted again"


async def test_a_promised_job_has_its_timeout_all_the_same(shop: Shop) -> None:
    await shop.register()
    job = await promised(shop, timeout_sec=0.1)
    done = await shop.end(job)
    assert (done.status, error_type(done)) == ("scheduled", "timeout")
    assert (await shop.beat()).revoked == [HttpClaim(job.id, 1)]
    assert await shop.report(job) == (0, 1)


async def test_a_cancel_of_a_promised_job_is_an_order_in_the_next_heartbeat(shop: Shop) -> None:
    await shop.register()
    job = await promised(shop)
    shop.session().send(Cancel([ClaimRef(job.id, 1)]))
    assert (await shop.beat()).cancel == [HttpClaim(job.id, 1)]
    assert (await shop.get(job)).status == "running"


async def test_a_report_may_come_before_the_answer(shop: Shop) -> None:
    shop.service.reply = Gate()
    await shop.register()
    job = await shop.send()
    await shop.arrival()
    assert await shop.report(job) == (1, 0)
    assert (await shop.get(job)).result == b'"later"'
    assert shop.session().flights == {}


async def test_a_claim_that_is_under_way_is_not_sent_again(shop: Shop) -> None:
    gate = shop.service.reply = Gate()
    await shop.register()
    job = await shop.send()
    await shop.arrival()
    shop.session().send(Assign([Assignment(job.id, 1, "echo", b'"hi"')]))
    gate.open.set()
    assert (await shop.end(job)).status == "completed"
    assert len(shop.service.received) == 1


# ── leases and the fence ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_heartbeat_need_not_name_what_is_under_way(shop: Shop) -> None:
    gate = shop.service.reply = Gate()
    await shop.register()
    job = await shop.send()
    shop.clock.advance(20)
    orders = await shop.beat()
    assert (orders.cancel, orders.revoked, (await shop.get(job)).status) == ([], [], "running")
    gate.open.set()
    assert (await shop.end(job)).status == "completed"


async def test_a_silent_worker_is_given_up_and_its_answer_refused(shop: Shop) -> None:
    """Even when the answer was read already: the store has another owner for the job by then."""
    gate = shop.service.reply = Gate(said(result="late"))
    await shop.register()
    job = await shop.send(max_attempts=2)
    await shop.arrival()
    shop.clock.advance(31)
    await shop.store.expire(shop.store.now_us() - 30_000_000, RetryPolicy())
    gate.open.set()
    done = await shop.end(job)
    assert (done.status, done.attempt, done.result) == ("queued", 1, None)
    with pytest.raises(MissingError):
        await shop.beat()


async def test_when_a_worker_is_given_up_its_requests_are_broken_off(shop: Shop) -> None:
    shop.service.reply = Gate()
    await shop.register()
    await shop.send()
    await shop.arrival()
    shop.workers.forget("w1")
    async with asyncio.timeout(SOON_SECONDS):
        await shop.service.broken_off.wait()
    assert shop.ended == {}, "nobody reports for it"


async def test_an_answer_is_kept_until_the_store_takes_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.coordinator.push_workers.STORE_RETRY_SECONDS", 0.0)
    shop.store.failures = 3
    await shop.register()
    assert (await shop.end(await shop.send())).status == "completed"
    assert len(shop.service.received) == 1


async def test_an_orderly_stop_hands_back_what_is_under_way_but_not_what_was_promised(shop: Shop) -> None:
    await shop.register()
    kept = await promised(shop)
    shop.service.reply = Gate()
    shop.service.arrived.clear()
    broken = await shop.send()
    await shop.arrival()
    await shop.workers.close()
    done = await shop.get(broken)
    assert (done.status, done.attempt) == ("queued", 0)
    (attempt,) = await shop.store.attempts(broken.id)
    assert (attempt.kind, attempt.charged) == ("handed_back", False)
    assert (await shop.get(kept)).status == "running"


async def test_after_a_restart_what_the_worker_holds_goes_on_and_the_rest_goes_back(shop: Shop) -> None:
    await shop.register()
    held, promised_and_lost = await promised(shop), await promised(shop)
    await shop.restart()
    await shop.beat("w1", (held.id, 1))
    assert (await shop.get(promised_and_lost)).status == "running", "it may still be on its way"
    shop.clock.advance(6)
    await shop.beat("w1", (held.id, 1))
    back = await shop.get(promised_and_lost)
    assert (back.status, back.attempt) == ("queued", 0)
    await shop.beat()
    assert (await shop.get(held)).status == "running"
    assert await shop.report(held) == (1, 0)


async def test_a_timeout_goes_on_after_a_restart(shop: Shop) -> None:
    await shop.register()
    job = await promised(shop, timeout_sec=100.0)
    await shop.restart()
    shop.clock.advance(99.95)
    await shop.beat("w1", (job.id, 1))
    assert error_type(await shop.end(job)) == "timeout"


async def test_an_endpoint_that_left_the_list_is_not_dialled_after_a_restart(shop: Shop) -> None:
    await shop.register()
    await shop.restart()
    shop.workers._endpoints = ()
    with pytest.raises(EndpointNotListed):
        await shop.beat()
    await shop.submit()
    assert await shop.dispatch_once() == 0


# ── an endpoint that is down ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_dead_endpoint_costs_few_attempts_and_is_tried_with_single_jobs(shop: Shop) -> None:
    shop.service.reply = always(said(429))
    await shop.register(threads=4)
    jobs = [await shop.submit() for _ in range(10)]
    assert await shop.dispatch_once() == 4
    for job in jobs[:4]:
        assert error_type(await shop.end(job)) == "dispatch_failed"
    session = shop.session()
    assert (session.resting, session.failures, await shop.dispatch_once()) == (True, 1, 0)
    shop.rested()
    assert await shop.dispatch_once() == 1
    assert await shop.dispatch_once() == 0
    await shop.end(jobs[4])
    assert (session.resting, session.failures) == (True, 2)
    shop.rested()
    shop.service.reply = echo
    assert await shop.dispatch_once() == 1
    assert (await shop.end(jobs[5])).status == "completed"
    assert (session.resting, session.failures, await shop.dispatch_once()) == (False, 0, 4)


async def test_a_promise_does_not_keep_a_worker_from_being_tried(shop: Shop) -> None:
    await shop.register(threads=2)
    await promised(shop)
    shop.session().failures = 1
    await shop.submit()
    assert await shop.dispatch_once() == 1


async def test_a_connection_that_is_refused_is_a_dispatch_failure_and_is_retried(shop: Shop) -> None:
    async with web_service() as service:
        shop.workers._endpoints = [service.url]
        await shop.workers.register(HttpHello("web", 1, ("echo",), endpoint=service.url))
    job = await shop.send()
    done = await shop.end(job)
    assert (done.status, error_type(done), done.attempt) == ("scheduled", "dispatch_failed", 1)
    assert shop.session().resting
    async with web_service(service.port):
        shop.rested()
        assert await shop.again() == 1
        assert (await shop.end(job)).status == "completed"
        await shop.workers.close()
