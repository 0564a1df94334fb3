"""Workers of the `/run` shapes: what is sent, what their answers mean, restarts, and several coordinators."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker.coordinator.endpoint_answers import EndpointAnswer, read_run_answer, run_report
from stoker.coordinator.observers import JobObserver, Observers
from stoker.coordinator.run_workers import RunWorkers
from stoker.domain.errors import EndpointNotListed, MissingError, StaleClaim, StateConflict
from stoker.domain.job import Job
from stoker.domain.retry import RetryPolicy
from stoker.store.sessions import Expired
from stoker.store.sqlite.store import SqliteStore
from stoker.wire.frames import Assignment, ClaimRef
from stoker.wire.http import HttpHello
from stoker.wire.run import RunHello, RunOutcome, job_ref, read_job_ref, run_job
from tests.support.clock import FakeClock
from tests.support.in_loop import in_loop
from tests.support.turns import ENOUGH
from tests.support.web_service import WebService, http, web_service
from tests.unit.test_push_workers import Gate, Shop, always, error_type

REF = ClaimRef("job", 3)
ACCEPTED = http(202, b"")
OLD_SECONDS = 10


class Expiries(JobObserver):
    """Passes on which sessions were given up."""

    def __init__(self, tell: Callable[[Expired], None]) -> None:
        self._tell = tell

    def expired(self, expired: Expired) -> None:
        self._tell(expired)


class RunShop(Shop):
    """One coordinator with the adapter."""

    def __init__(self, name: str, store: SqliteStore, clock: FakeClock, service: WebService) -> None:
        self.name = name
        self.lives = 0
        self.taken_over: list[str] = []
        self.expired: list[Expired] = []
        super().__init__(store, clock, service)

    def _listen(self) -> None:
        super()._listen()
        self.lives += 1
        self.run = RunWorkers(
            self.workers,
            self.store,
            self.sessions,
            self.sink,
            RetryPolicy(),
            new_id=lambda: f"{self.name}{self.lives}-{len(self.sessions) + len(self.expired)}",
            observers=Observers(Expiries(self._on_expired)),
            take_over=self.taken_over.append,
        )

    def _on_expired(self, expired: Expired) -> None:
        self.expired.append(expired)
        for id in expired.sessions:
            session = self.sessions.get(id)
            if session is not None:
                self.sessions.remove(session, self.clock.now_us())
            self.workers.forget(id)

    async def join(self, id: str = "box") -> str:
        await self.run.register(RunHello(id, f"{self.service.url}/jobs"))
        return self.run._ids[id]

    async def accepted(self, **fields: Any) -> Job:
        """A job that the worker has accepted, and the store knows it."""
        job = await self.send(type="odd", **fields)

        for _ in range(ENOUGH):
            if (await self.get(job)).started_at is not None:
                return job
            await asyncio.sleep(0)
        raise AssertionError("it was not accepted")

    async def complete(self, job: Job, claim_id: int = 1, **fields: Any) -> None:
        outcome = RunOutcome(success=True, result=msgspec.Raw(b'"done"'))
        await self.run.complete(ClaimRef(job.id, claim_id), msgspec.structs.replace(outcome, **fields))

    async def look(self) -> None:
        await self.run.look(await self.store.sessions())


@pytest.fixture
def pair(tmp_path: Path, clock: FakeClock) -> tuple[RunShop, RunShop]:
    """Two coordinators on one store, and a web service that accepts everything."""

    @asynccontextmanager
    async def make() -> AsyncIterator[tuple[RunShop, RunShop]]:
        store = await SqliteStore.open(tmp_path / "s.db", clock, threads=False)
        async with web_service() as service:
            service.reply = always(ACCEPTED)
            pair = RunShop("a", store, clock, service), RunShop("b", store, clock, service)
            yield pair
            for shop in pair:
                await shop.workers.close()
        await store.close()

    return in_loop(make)


# ── what is said ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("payload", "text"),
    [(b'"hi \\"you\\""', 'hi "you"'), (b'{"a": 1}', '{"a": 1}'), (b"null", "null"), (b'""', "")],
)
def test_the_payload_is_sent_as_text(payload: bytes, text: str) -> None:
    assert run_job(Assignment("job", 3, "odd", payload)).payload == text


@pytest.mark.parametrize(("seconds", "sent"), [(None, b"null"), (30.0, b"30"), (1.5, b"1.5")])
def test_whole_seconds_are_sent_as_whole_numbers(seconds: float | None, sent: bytes) -> None:
    job = run_job(Assignment("job", 3, "odd", b"1", timeout_sec=seconds))
    assert (
        msgspec.json.encode(job) == b'{"job_id":"job.3","type":"odd","payload":"1","timeout_sec":%b}' % sent
    )


def test_a_claim_has_one_name() -> None:
    assert read_job_ref(job_ref(REF)) == REF
    assert [read_job_ref(text) for text in ("job", "job.", ".3", "job.x", "job.-1", "job.²", "")] == [
        None
    ] * 7


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_means_accepted_whatever_it_says(status: int) -> None:
    assert read_run_answer(REF, EndpointAnswer(status, b'{"result": 1}')) is None
    assert read_run_answer(REF, EndpointAnswer(status, None)) is None


@pytest.mark.parametrize(
    ("status", "error"),
    [(429, "dispatch_failed"), (503, "dispatch_failed"), (500, "bad_answer"), (302, "bad_answer")],
)
def test_any_other_answer_fails_the_attempt(status: int, error: str) -> None:
    report = read_run_answer(REF, EndpointAnswer(status, b""))
    assert report is not None
    assert (report.kind, msgspec.json.decode(report.error or b"")["type"]) == ("error", error)


@pytest.mark.parametrize(
    ("body", "kind", "result", "message"),
    [
        (b'{"success": true, "result": "text"}', "completed", b'"text"', None),
        (b'{"success": true, "result": {"a": 1}}', "completed", b'{"a": 1}', None),
        (b'{"success": true}', "completed", b"null", None),
        (b'{"success": true, "result": "x", "error": ""}', "completed", b'"x"', None),
        (b'{"success": false, "error": "no"}', "error", None, "no"),
        (b'{"success": false, "result": "", "error": ""}', "error", None, "the worker gave no reason"),
    ],
)
def test_what_a_report_means(body: bytes, kind: str, result: bytes | None, message: str | None) -> None:
    report = run_report(REF, msgspec.json.decode(body, type=RunOutcome))
    said = None if report.error is None else msgspec.json.decode(report.error)["message"]
    assert (report.kind, report.result, said) == (kind, result, message)


# ── one coordinator ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_job_is_sent_accepted_and_reported(pair: tuple[RunShop, RunShop]) -> None:
    shop, _ = pair
    session = await shop.join()
    job = await shop.accepted()
    (request,) = shop.service.received
    assert (request.path, request.job["job_id"]) == ("/jobs/run", f"{job.id}.1")
    await shop.submit(type="odd")
    assert await shop.dispatch_once() == 0, "it has one thread"
    await shop.complete(job)
    done = await shop.get(job)
    assert (done.status, done.result, done.worker_id) == ("completed", b'"done"', session)
    await shop.complete(job)  # once more, which changes nothing
    assert await shop.dispatch_once() == 1


async def test_it_must_be_on_the_list(pair: tuple[RunShop, RunShop]) -> None:
    shop, _ = pair
    with pytest.raises(EndpointNotListed):
        await shop.run.register(RunHello("box", f"{shop.service.url}/other"))
    assert await shop.store.sessions() == []


async def test_registering_again_takes_its_jobs_from_it(pair: tuple[RunShop, RunShop]) -> None:
    shop, _ = pair
    first = await shop.join()
    job = await shop.accepted()
    second = await shop.join()
    assert (await shop.get(job)).status == "queued"
    assert [session.id for session in shop.sessions] == [second]
    assert [row.status for row in await shop.store.sessions() if row.id == first] == ["lost"]
    with pytest.raises(StaleClaim, match="is queued"):
        await shop.complete(job)
    assert await shop.dispatch_once() == 1
    with pytest.raises(StaleClaim, match="is now claim 2"):
        await shop.complete(job)
    await shop.complete(job, 2)


async def test_a_failure_is_retried(pair: tuple[RunShop, RunShop]) -> None:
    shop, _ = pair
    await shop.join()
    job = await shop.accepted()
    await shop.complete(job, success=False, error="no luck")
    failed = await shop.get(job)
    assert (failed.status, error_type(failed)) == ("scheduled", "worker_error")
    await shop.complete(job, success=False, error="no luck")  # sent again


async def test_after_a_crash_accepted_jobs_go_on_and_others_go_back(
    pair: tuple[RunShop, RunShop], clock: FakeClock
) -> None:
    shop, _ = pair
    await shop.join("one")
    accepted = await shop.accepted()
    gate = shop.service.reply = Gate(ACCEPTED)
    await shop.join("two")
    shop.service.arrived.clear()
    other = await shop.send(type="odd")
    await shop.arrival()
    await shop.restart()
    gate.open.set()
    clock.advance(OLD_SECONDS)
    await shop.run.heartbeat("one")
    await shop.run.heartbeat("two")
    assert [(await shop.get(job)).status for job in (accepted, other)] == ["running", "queued"]
    assert (await shop.get(other)).attempt == 0
    await shop.complete(accepted)
    assert (await shop.get(accepted)).status == "completed"


async def test_a_report_outlives_a_store_that_is_away(pair: tuple[RunShop, RunShop]) -> None:
    shop, _ = pair
    await shop.join()
    job = await shop.accepted()
    shop.store.failures = 1
    await shop.complete(job, success=False, error="no luck")
    assert (await shop.get(job)).status == "scheduled"


async def test_jobs_of_other_workers_are_not_its_business(pair: tuple[RunShop, RunShop]) -> None:
    shop, _ = pair
    gate = shop.service.reply = Gate()
    await shop.register()
    job = await shop.send()
    await shop.arrival()
    with pytest.raises(StateConflict, match="another way"):
        await shop.complete(job)
    gate.open.set()
    await shop.end(job)


async def test_only_who_is_registered_can_beat(pair: tuple[RunShop, RunShop]) -> None:
    shop, _ = pair
    await shop.workers.register(HttpHello("plain", 1, ("a",)))
    for id in ("nobody", "plain"):
        with pytest.raises(MissingError, match="register again"):
            await shop.run.heartbeat(id)


# ── several coordinators ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_report_may_reach_another_coordinator(pair: tuple[RunShop, RunShop]) -> None:
    here, there = pair
    session = await here.join()
    job = await here.accepted()
    await there.complete(job)
    assert (await here.get(job)).status == "completed"
    assert there.taken_over == [session], "it is the one that sends jobs now"
    await here.look()
    assert here.session(session).held == {}
    here.session(session).draining = True  # as the notifications would do it
    again = await there.accepted()
    await here.complete(again)
    assert (here.taken_over, here.session(session).held) == ([session], {})
    assert (await here.get(again)).status == "completed"
    await here.accepted()


async def test_one_that_registered_elsewhere_is_let_go(pair: tuple[RunShop, RunShop]) -> None:
    here, there = pair
    await here.join()
    await there.join()
    await here.look()
    assert list(here.sessions) == []
    assert len(list(there.sessions)) == 1
    await there.look()
    assert len(list(there.sessions)) == 1


async def test_who_hears_the_heartbeat_sends_the_jobs(
    pair: tuple[RunShop, RunShop], clock: FakeClock
) -> None:
    here, there = pair
    session = await here.join()
    job = await here.accepted()
    clock.advance(OLD_SECONDS)
    await there.run.heartbeat("box")
    assert there.taken_over == [session]
    assert (await here.get(job)).status == "running", "what it accepted goes on"
    here.session(session).draining = True  # as the notifications would do it
    await there.run.heartbeat("box")
    assert there.taken_over == [session]
    await there.complete(job)
    there.session(session).draining = True
    await here.run.heartbeat("box")
    assert (here.taken_over, here.session(session).draining) == ([session], False)
    assert here.session(session).held == {}, "what was reported there is not held here"
    await here.accepted()


async def test_what_another_coordinator_sent_takes_the_thread_here(pair: tuple[RunShop, RunShop]) -> None:
    here, there = pair
    session = await here.join()
    here.session(session).draining = True
    await there.run.heartbeat("box")
    job = await there.accepted()
    await here.run.heartbeat("box")
    assert list(here.session(session).held) == [job.id]
    await here.submit(type="odd")
    assert await here.dispatch_once() == 0
    await here.complete(job)
    assert await here.dispatch_once() == 1


async def test_an_order_to_drain_is_not_undone_by_a_heartbeat(pair: tuple[RunShop, RunShop]) -> None:
    here, there = pair
    session = await here.join()
    await here.store.set_session_status(session, "draining")
    here.session(session).draining = True
    for shop in pair:
        await shop.run.heartbeat("box")
        assert shop.session(session).draining
    assert (here.taken_over, there.taken_over) == ([], [])
