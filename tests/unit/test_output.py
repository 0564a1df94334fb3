"""Output and progress on their way through a coordinator: whose are heard, who is woken, when it is over."""

import asyncio
import io
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stoker.clock import SECOND
from stoker.coordinator.assembly import Coordinator
from stoker.coordinator.job_output import retention as retention_module
from stoker.coordinator.job_output.output import JobOutput, is_over
from stoker.coordinator.job_output.retention import LogRetention
from stoker.coordinator.observers import Observers
from stoker.coordinator.sessions import Sessions, WorkerSession
from stoker.domain.errors import MissingError
from stoker.domain.job import Job
from stoker.domain.retry import RetryPolicy
from stoker.logs.log import JobLog
from stoker.settings import Settings
from stoker.store.logs import Selection
from stoker.store.sqlite.logs import SqliteLogs
from stoker.store.sqlite.store import SqliteStore
from stoker.store.upkeep import Retention
from stoker.wire import codec, frames
from stoker.wire.frames import PROTOCOL, Frame, Hello, Output, OutputChunk, ProgressNote, Report
from tests.conformance.steps import a_job
from tests.support import jobs
from tests.support.clock import FakeClock
from tests.support.in_loop import in_loop
from tests.support.jobs import a_submission
from tests.support.output import piece
from tests.support.turns import turns, until

WAIT = 60.0
"""Longer than any test may take: who waits is woken, or the test fails."""


class FakeWorker:
    """The other end of a worker's connection."""

    def __init__(self) -> None:
        self._to_coordinator: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.got: list[Frame] = []

    async def receive(self) -> bytes | str | None:
        return await self._to_coordinator.get()

    def send_now(self, data: bytes | str) -> bool:
        return False

    async def send(self, data: bytes | str) -> None:
        self.got.append(codec.decode_to_worker(data))

    async def close(self, code: int, reason: str) -> None:
        self._to_coordinator.put_nowait(None)

    def says(self, *said: Frame | None) -> None:
        for frame in said:
            self._to_coordinator.put_nowait(None if frame is None else codec.encode(frame))

    async def assigned(self, job: Job) -> frames.Assignment:
        await until(lambda: job.id in self._jobs())
        return self._jobs()[job.id]

    def _jobs(self) -> dict[str, frames.Assignment]:
        return {job.id: job for frame in self.got if isinstance(frame, frames.Assign) for job in frame.jobs}

    async def acknowledged(self, number: int) -> None:
        await until(lambda: any(isinstance(f, frames.Ack) and f.number == number for f in self.got))


class House:
    """A coordinator over real stores, without threads, and the workers that dial in."""

    def __init__(self, folder: Path, clock: FakeClock, store: SqliteStore) -> None:
        self.clock = clock
        self.store = store
        self.logs = SqliteLogs.open(folder / "stoker-logs.db", threads=False)
        self.coordinator = Coordinator(
            Settings(retention_completed_sec=60, retention_failed_sec=120),
            store,
            clock,
            JobLog(stream=io.StringIO()),
            self.logs,
        )
        self._connections: list[asyncio.Task[None]] = []

    async def worker(self, session: str = "w1") -> FakeWorker:
        worker = FakeWorker()
        self._connections.append(asyncio.create_task(self.coordinator.workers.serve(worker)))
        worker.says(Hello(PROTOCOL, session, session, 4, ["echo"]))
        await until(lambda: bool(worker.got))
        return worker

    async def job(self, **spec: Any) -> Job:
        submitted = await self.coordinator.jobs.submit([a_submission(a_job(self.store, type="echo", **spec))])
        return submitted.accepted[0].job

    async def running(self, worker: FakeWorker, **spec: Any) -> Job:
        job = await self.job(**spec)
        await worker.assigned(job)
        return await self.coordinator.jobs.get(job.id)

    async def text(self, job: Job, **which: int) -> bytes:
        page = await self.coordinator.output.page(Selection(job.id, **which))
        return b"".join(entry.data for entry in page.entries)

    async def close(self) -> None:
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self.coordinator.stop()
        await self.logs.close()
        await self.store.close()


@pytest.fixture
def house(tmp_path: Path, clock: FakeClock) -> House:
    @asynccontextmanager
    async def opened() -> AsyncIterator[House]:
        store = await SqliteStore.open(tmp_path / "stoker.db", clock, threads=False)
        house = House(tmp_path, clock, store)
        house.coordinator.start()
        yield house
        await house.close()

    return in_loop(opened)


def wrote(job: Job, data: bytes, offset: int = 0, claim: int | None = None) -> Output:
    return Output([OutputChunk(job.id, job.claim_id if claim is None else claim, "stdout", offset, data)])


def ended(job: Job, number: int = 1, **fields: Any) -> frames.Reports:
    return frames.Reports(number, [Report(job.id, job.claim_id, **{"kind": "completed", **fields})])


def progressed(
    job: Job, done: float, total: float | None = None, message: str | None = None
) -> frames.Progress:
    return frames.Progress([ProgressNote(job.id, job.claim_id, done, total, message)])


# ── output ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_a_worker_sends_right_before_its_report_is_kept(house: House) -> None:
    worker = await house.worker()
    job = await house.running(worker)
    worker.says(wrote(job, b"first\n"), wrote(job, b"last\n", 6), ended(job))
    await worker.acknowledged(1)
    page = await house.coordinator.output.page(Selection(job.id))
    assert [entry.data for entry in page.entries] == [b"first\nlast\n"]
    assert page.ended


async def test_only_claims_that_the_session_holds_are_heard(house: House) -> None:
    worker, other = await house.worker("w1"), await house.worker("w2")
    job = await house.running(worker)
    stranger = other if job.worker_id == "w1" else worker
    owner = worker if stranger is other else other
    stranger.says(wrote(job, b"a stranger\n"), progressed(job, 1))
    owner.says(wrote(job, b"an old claim\n", claim=0), wrote(job, b"a later claim\n", claim=2))
    owner.says(wrote(job, b"negative\n", -1), wrote(job, b"far away\n", 2**62))
    owner.says(ended(job), wrote(job, b"after the report\n"), progressed(job, 2))
    await owner.acknowledged(1)
    stranger.says(frames.Heartbeat(7, 0, []))
    await until(lambda: any(isinstance(frame, frames.Renewed) for frame in stranger.got))
    assert await house.text(job) == b""
    assert house.coordinator.output.progress(job) is None


async def test_a_session_that_was_given_up_is_not_heard_any_more(clock: FakeClock) -> None:
    sessions = Sessions()
    session = WorkerSession(Hello(PROTOCOL, "w1", "w1", 4, ["echo"]), lambda frame: None)
    sessions.add(session)
    appended: list[Any] = []

    class Store:
        def now_us(self) -> int:
            return clock.now_us()

    class Kept:
        def append(self, pieces: list[Any]) -> None:
            appended.extend(pieces)

    job_output = JobOutput(Store(), Kept(), sessions, Observers())  # type: ignore[arg-type]  # what it uses of them
    claim = jobs.a_claim()
    session.hold(claim)
    chunk = OutputChunk(claim.id, claim.claim_id, "log", 0, b"x")
    job_output.take(session, [chunk])
    sessions.remove(session, clock.now_us())
    job_output.take(session, [chunk])
    assert [(piece.job_id, piece.stream, piece.at) for piece in appended] == [
        (claim.id, "log", clock.now_us())
    ]


async def test_each_attempt_has_its_own_output(house: House) -> None:
    worker = await house.worker()
    job = await house.running(worker, max_attempts=1)
    worker.says(wrote(job, b"first try\n"), ended(job, kind="error"))
    await worker.acknowledged(1)
    worker.got.clear()
    await house.coordinator.jobs.retry(job.id)
    again = await worker.assigned(job)
    worker.says(Output([OutputChunk(job.id, again.claim_id, "stdout", 0, b"second try\n")]))
    await turns()
    assert await house.text(job) == b"first try\nsecond try\n"
    assert await house.text(job, claim_id=again.claim_id) == b"second try\n"


async def test_logs_of_an_unknown_job(house: House) -> None:
    with pytest.raises(MissingError):
        await house.coordinator.output.page(Selection("nope"), wait=WAIT)


# ── following ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def follow(house: House, which: Selection, seen: list[bytes]) -> None:
    after = 0
    while True:
        page = await house.coordinator.output.page(which, after, WAIT)
        seen += [entry.data for entry in page.entries]
        after = page.position
        if page.ended or page.closing:
            return


async def test_a_follower_waits_for_the_start_sees_lines_live_and_ends_with_the_job(house: House) -> None:
    job = await house.job()
    seen: list[bytes] = []
    following = asyncio.create_task(follow(house, Selection(job.id), seen))
    await turns()
    worker = await house.worker()
    await worker.assigned(job)
    job = await house.coordinator.jobs.get(job.id)
    for number, line in enumerate((b"one\n", b"two\n", b"six\n")):
        worker.says(wrote(job, line, 4 * number))
        await until(lambda line=line: line in seen)  # type: ignore[misc]
    assert not following.done()
    worker.says(wrote(job, b"the last word\n", 12), ended(job))
    await following
    assert b"".join(seen) == b"one\ntwo\nsix\nthe last word\n"


async def test_a_follower_of_a_job_that_is_cancelled_before_it_starts(house: House) -> None:
    job = await house.job()
    following = asyncio.create_task(follow(house, Selection(job.id), []))
    await turns()
    await house.coordinator.jobs.cancel(job.id)
    await following


async def test_a_follower_of_one_claim_ends_with_it_although_the_job_goes_on(house: House) -> None:
    worker = await house.worker()
    job = await house.running(worker)
    seen: list[bytes] = []
    following = asyncio.create_task(follow(house, Selection(job.id, claim_id=job.claim_id), seen))
    await turns()
    worker.says(wrote(job, b"oops\n"), ended(job, kind="error"))
    await following
    assert seen == [b"oops\n"]
    assert (await house.coordinator.jobs.get(job.id)).status == "scheduled"


async def test_a_coordinator_that_leaves_lets_followers_go_without_calling_it_the_end(house: House) -> None:
    job = await house.job()
    waiting = asyncio.create_task(house.coordinator.output.page(Selection(job.id), 0, WAIT))
    await turns()
    await house.coordinator.stop()
    page = await waiting
    assert (page.closing, page.ended) == (True, False)


async def test_who_stops_following_leaves_nothing_behind(house: House) -> None:
    job = await house.job()
    job_output = house.coordinator._job_output
    waiting = asyncio.create_task(house.coordinator.output.page(Selection(job.id), 0, WAIT))
    await until(lambda: len(job_output._followers) == 1)
    waiting.cancel()
    await until(lambda: len(job_output._followers) == 0)


@pytest.mark.parametrize(
    ("job", "which", "over"),
    [
        ({"status": "queued"}, {}, False),
        ({"status": "failed"}, {}, True),
        ({"status": "failed"}, {"claim_id": 9}, True),
        ({"status": "running", "claim_id": 2}, {"claim_id": 1}, True),
        ({"status": "running", "claim_id": 2}, {"claim_id": 2}, False),
        ({"status": "scheduled", "claim_id": 2}, {"claim_id": 2}, True),
        ({"status": "queued", "claim_id": 2}, {"claim_id": 3}, False),
        ({"status": "running", "attempt": 2}, {"attempt": 1}, True),
        ({"status": "running", "attempt": 2}, {"attempt": 2}, False),
    ],
)
def test_when_a_selection_is_over(job: dict[str, Any], which: dict[str, Any], over: bool) -> None:
    assert is_over(jobs.a_job(**job), Selection("j", **which)) is over


# ── progress ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_progress_is_the_last_word_of_the_attempt_that_runs(house: House) -> None:
    worker = await house.worker()
    job = await house.running(worker)
    assert house.coordinator.output.progress(job) is None
    worker.says(progressed(job, 1, 8), progressed(job, 3, 8, "halfway"))
    await until(lambda: (now := house.coordinator.output.progress(job)) is not None and now.done == 3)
    now = house.coordinator.output.progress(job)
    assert now is not None
    assert (now.total, now.message, now.percent) == (8, "halfway", 37.5)
    worker.says(ended(job, kind="error"))
    await worker.acknowledged(1)
    assert house.coordinator.output.progress(job) is None
    assert house.coordinator._job_output._progress == {}


async def test_progress_of_a_lost_worker_is_forgotten(house: House) -> None:
    worker = await house.worker()
    job = await house.running(worker)
    worker.says(progressed(job, 1))
    await until(lambda: house.coordinator.output.progress(job) is not None)
    house.clock.advance(3600)
    house.coordinator.observers.expired(
        await house.store.expire(house.store.now_us() - SECOND, RetryPolicy())
    )
    assert house.coordinator._job_output._progress == {}


@pytest.mark.parametrize(
    ("done", "total", "shown"),
    [
        (5, 10, (10, 50.0)),
        (20, 10, (10, 100.0)),
        (-1, 10, (10, 0.0)),
        (1, 3, (3, 33.33)),
        (5, None, (None, None)),
        (5, 0, (None, None)),
        (5, -3, (None, None)),
        (5, math.inf, (None, None)),
        (5, math.nan, (None, None)),
        (1e308, 1e-308, (1e-308, 100.0)),
    ],
)
async def test_whatever_a_job_says_progress_can_be_shown(
    house: House, done: float, total: float | None, shown: tuple[float | None, float | None]
) -> None:
    worker = await house.worker()
    job = await house.running(worker)
    worker.says(progressed(job, math.nan), progressed(job, done, total, "m" * 1000))
    await until(lambda: house.coordinator.output.progress(job) is not None)
    now = house.coordinator.output.progress(job)
    assert now is not None
    assert (now.total, now.percent) == shown
    assert now.message == "m" * 500


# ── retention ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_output_goes_when_its_job_is_purged_and_not_before(house: House) -> None:
    worker = await house.worker()
    old, failed, fresh = [await house.running(worker) for _ in range(3)]
    for job in (old, failed, fresh):
        worker.says(wrote(job, b"words\n"))
    worker.says(ended(old, 1), ended(failed, 2, kind="invalid"))
    await worker.acknowledged(2)
    retention = LogRetention(house.store, house.logs, spared_us=60 * SECOND)
    house.clock.advance(61)
    assert await retention.once() == 0
    assert await house.store.purge(Retention(60 * SECOND, 120 * SECOND), 100) == 1
    assert await retention.once() == 1
    assert (await house.logs.read(Selection(old.id))).entries == []
    assert await house.text(failed) == await house.text(fresh) == b"words\n"


async def test_the_keeper_gets_around(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_module, "KEEP_BATCH", 2)
    job = await house.job()
    house.logs.append([piece(job=id, at=1) for id in ("gone-1", job.id, "gone-2", "gone-3")])
    retention = LogRetention(house.store, house.logs, spared_us=0)
    assert [await retention.once() for _ in range(4)] == [1, 2, 0, 0]
    assert [written.job_id for written in await house.logs.written(0, 2, 10)] == [job.id]
