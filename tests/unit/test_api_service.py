"""The services of a coordinator, each small enough to read, for the tests of the API."""

import asyncio
import contextlib
import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, cast

import httpx
import msgspec
from msgspec.structs import replace

from stoker.api.app import create_app
from stoker.clock import Clock, SystemClock
from stoker.coordinator.bulk import Bulks
from stoker.coordinator.connection import Socket
from stoker.coordinator.dead_letters import DeadLetterService
from stoker.coordinator.event_updates import Message, StreamHello
from stoker.coordinator.events import Events
from stoker.coordinator.http_workers import HttpWorkers
from stoker.coordinator.job_output.output import JobProgress
from stoker.coordinator.job_output.service import OutputService
from stoker.coordinator.job_types import TypeState, type_states
from stoker.coordinator.jobs import JobService, Submitted
from stoker.coordinator.known_types import KnownTypes
from stoker.coordinator.queue_state import QueueState, queue_states
from stoker.coordinator.queues import QueueService
from stoker.coordinator.readiness import Readiness
from stoker.coordinator.run_workers import RunWorkers
from stoker.coordinator.schedules import Schedules
from stoker.coordinator.services import Services
from stoker.coordinator.stats import StatsService
from stoker.coordinator.waits import EndedJob, Waited, Waits
from stoker.coordinator.workers import WorkerService
from stoker.domain.edit import Changes, edited
from stoker.domain.errors import IdempotencyMismatch, IdMismatch, JobPruned, MissingError, StateConflict
from stoker.domain.explain import Explanation, Facts, explain
from stoker.domain.job import NO_DEFAULTS, Job, JobDefaults
from stoker.domain.lifecycle import FINAL
from stoker.domain.scaling import ScalingState
from stoker.domain.series import GaugeRow, Point, Range, Tally, TallyRow, points, sums
from stoker.domain.short_ids import ShortId
from stoker.ids import new_id
from stoker.settings import Settings
from stoker.store.bulk import Bulk, BulkAction
from stoker.store.logs import LogPage, Selection
from stoker.store.reads import (
    Attempt,
    Count,
    DeadLetterGroup,
    DeadLetterGroups,
    JobFilter,
    JobQuery,
    JobSummary,
    Page,
)
from stoker.store.sessions import Session
from stoker.store.submissions import Accepted, IdempotencyKey, Submission
from stoker.wire.frames import ClaimRef
from stoker.wire.http import (
    HttpAssignment,
    HttpClaim,
    HttpHello,
    HttpOrders,
    HttpReceipt,
    HttpReport,
    HttpWelcome,
)
from stoker.wire.run import RunHello, RunOutcome
from tests.support.jobs import accepted

TOKEN = "a-token-that-nobody-guesses"
JSON = {"Content-Type": "application/json"}


class FakeJobs(JobService):
    """Keeps jobs in a dictionary."""

    def __init__(self, fake: "FakeService") -> None:
        self._fake = fake

    def _accept(self, job: Job, key: IdempotencyKey | None) -> Accepted:
        fake = self._fake
        if key is not None and (key.client, key.key) in fake.keys:
            return self._repeat(key)
        if job.digest is not None and job.id in fake.pruned:
            raise JobPruned(job.id)
        if job.digest is not None and job.id in fake.stored:
            if fake.stored[job.id].digest != job.digest:
                raise IdMismatch(job.id)
            if key is not None:
                fake.keys[key.client, key.key] = (key.digest, job.id)
            return accepted(fake.stored[job.id], repeated=True)
        job = replace(job, seq=len(fake.stored) + 1)
        fake.stored[job.id] = job
        if key is not None:
            fake.keys[key.client, key.key] = (key.digest, job.id)
            fake.expiries[key.key] = key.expires_at
        return accepted(job, repeated=False)

    def _repeat(self, key: IdempotencyKey) -> Accepted:
        digest, id = self._fake.keys[key.client, key.key]
        if digest != key.digest:
            raise IdempotencyMismatch(key.key)
        return accepted(self._fake.stored[id], repeated=True)

    async def submit(self, jobs: Sequence[Submission]) -> Submitted:
        fake = self._fake
        fake.may_fail()
        await fake.pause.wait()
        fake.calls.append([len(submission.batch) for submission in jobs])
        before, keys = dict(fake.stored), dict(fake.keys)
        try:
            made = [self._accept(job, submission.key) for submission in jobs for job in submission.batch]
        except Exception:
            fake.stored, fake.keys = before, keys
            raise
        return Submitted(made, fake.warnings)

    async def known_ids(self, ids: Sequence[str]) -> set[str]:
        return self._fake.stored.keys() & set(ids)

    async def known_key(self, client: str, key: str) -> bool:
        return (client, key) in self._fake.keys

    async def get(self, id: str) -> Job:
        self._fake.may_fail()
        if id not in self._fake.stored:
            raise MissingError(f"there is no job {id}")
        return self._fake.stored[id]

    async def lookup(self, part: ShortId, limit: int) -> list[JobSummary]:
        stored = self._fake.stored
        found = [stored[id] for id in sorted(part.among(stored), reverse=True)[:limit]]
        return [JobSummary(*(getattr(job, field) for field in JobSummary.__struct_fields__)) for job in found]

    async def attempts(self, id: str) -> list[Attempt]:
        self._fake.asked.append(("attempts", id))
        return self._fake.history.get(id, [])

    async def why(self, id: str) -> tuple[Job, Explanation]:
        job = await self.get(id)
        return job, explain(job, Facts(self._fake.clock.now_us()))

    async def page(self, query: JobQuery) -> Page:
        fake = self._fake
        fake.asked.append(query)
        jobs = list(fake.stored.values())[query.offset : query.offset + query.limit]
        return Page(jobs, len(fake.stored), fake.capped, fake.next_seq)

    async def cancel(self, id: str) -> Job:
        job = await self.get(id)
        if job.status in FINAL and job.status != "cancelled":
            raise StateConflict(f"job {id} is already {job.status}")
        self._fake.stored[id] = replace(job, status="cancelled")
        return self._fake.stored[id]

    async def retry(self, id: str) -> Job:
        job = await self.get(id)
        if job.status not in ("failed", "cancelled"):
            raise StateConflict(f"job {id} is {job.status}; only failed and cancelled jobs run again")
        self._fake.stored[id] = replace(job, status="queued")
        return self._fake.stored[id]

    async def edit(self, id: str, changes: Changes) -> Job:
        self._fake.stored[id] = edited(await self.get(id), changes, self._fake.clock.now_us())
        return self._fake.stored[id]


class FakeTypes(KnownTypes):
    def __init__(self, fake: "FakeService") -> None:
        self._fake = fake

    async def has(self, type: str) -> bool:
        return type in self._fake.announced

    def defaults(self, type: str) -> JobDefaults:
        return self._fake.announced.get(type, NO_DEFAULTS)

    async def states(self) -> list[TypeState]:
        fake = self._fake
        return type_states(fake.sessions, fake.notes, lambda type: 1_500_000 if type == "echo" else None)


class FakeWaits(Waits):
    """Never waits, unlike the real one."""

    def __init__(self, fake: "FakeService") -> None:
        self._fake = fake

    async def for_job(self, id: str, seconds: float) -> Job:
        self._fake.asked.append(("wait", seconds))
        return await self._fake.jobs.get(id)

    async def for_any(self, ids: Collection[str], seconds: float, limit: int) -> Waited:
        fake = self._fake
        fake.asked.append(("wait_many", list(ids), seconds, limit))
        known = [fake.stored[id] for id in ids if id in fake.stored]
        ended = [EndedJob(job, fake.history.get(job.id, [])) for job in known if job.status in FINAL][:limit]
        missing = [id for id in ids if id not in fake.stored]
        return Waited(ended, missing, len(known) - len(ended), Counter(job.status for job in known))

    @contextlib.contextmanager
    def watching(self, id: str) -> Iterator[Callable[[float], Awaitable[bool]]]:
        async def news(seconds: float) -> bool:
            change = self._fake.changes.pop(0)
            self._fake.stored[id] = replace(self._fake.stored[id], **change)
            return True

        yield news


class FakeOutput(OutputService):
    def __init__(self, fake: "FakeService") -> None:
        self._fake = fake

    def progress(self, job: Job | JobSummary) -> JobProgress | None:
        return self._fake.progresses.get(job.id)

    async def page(self, which: Selection, after: int = 0, wait: float = 0.0) -> LogPage:
        self._fake.asked.append((which, after, wait))
        await self._fake.jobs.get(which.job_id)
        return LogPage([], after, more=False, cut=False, written_bytes=0, ended=True)


class FakeEvents(Events):
    def __init__(self, fake: "FakeService") -> None:
        self._fake = fake

    async def follow(self, position: str | None) -> AsyncGenerator[Message, None]:
        """Ends at once, unlike the real one: a test reads all of an answer."""
        self._fake.asked.append(("follow", position))
        yield StreamHello("life", 7)
        for message in self._fake.messages:
            yield message


class FakeDeadLetters(DeadLetterService):
    def __init__(self, fake: "FakeService") -> None:
        self._fake = fake

    async def replay(
        self, ids: Sequence[str] | None, filter: JobFilter | None, limit: int | None = None
    ) -> int:
        self._fake.asked.append(("replay", ids, filter, limit))
        return 1 if ids is None else len(ids)

    async def groups(self, limit: int) -> DeadLetterGroups:
        self._fake.asked.append(("groups", limit))
        groups = self._fake.groups
        return DeadLetterGroups(groups, len(groups), sum(group.count for group in groups), 0)

    async def keys_taken(self, ids: Sequence[str] | None, filter: JobFilter | None) -> int:
        return self._fake.taken_keys

    async def discard(
        self, ids: Sequence[str] | None, filter: JobFilter | None, limit: int | None = None
    ) -> int:
        self._fake.asked.append(("discard", ids, filter, limit))
        return 1 if ids is None else len(ids)


class FakeBulks(Bulks):
    def __init__(self, fake: "FakeService") -> None:
        self._fake = fake

    async def start(self, action: BulkAction, filter: JobFilter) -> Bulk:
        bulk = Bulk(new_id(), action, filter, "running", 10_000, True, 0, 0, self._fake.clock.now_us())
        self._fake.bulk_rows[bulk.id] = bulk
        return bulk

    async def get(self, id: str) -> Bulk:
        if id not in self._fake.bulk_rows:
            raise MissingError(f"there is no bulk operation {id}")
        return self._fake.bulk_rows[id]

    async def latest(self) -> list[Bulk]:
        return list(self._fake.bulk_rows.values())

    async def stop(self, id: str) -> Bulk:
        bulk = await self.get(id)
        now = self._fake.clock.now_us()
        self._fake.bulk_rows[id] = replace(bulk, status="stopped", finished_at=now)
        return self._fake.bulk_rows[id]


class NoSchedules:
    """What is done with schedules is tested with a store: tests/conformance and tests/e2e."""

    def __getattr__(self, name: str) -> object:
        raise MissingError("there are no schedules here")


class FakeWorkers(WorkerService):
    def __init__(self, fake: "FakeService") -> None:
        self._fake = fake

    async def all(self) -> list[Session]:
        return self._fake.sessions

    async def drain(self, worker_id: str) -> Session:
        for session in self._fake.sessions:
            if worker_id in (session.id, session.name):
                return replace(session, status="draining")
        raise MissingError(f"there is no worker {worker_id}")

    async def serve(self, socket: Socket) -> None:
        """Echoes frames; "stop" ends the connection, "fail" breaks it."""
        while (frame := await socket.receive()) is not None:
            if frame == "fail":
                raise RuntimeError("broken on purpose")
            if frame == "stop":
                await socket.close(1000, "as you wish")
                return
            await socket.send(frame)


class FakeHttpWorkers(HttpWorkers):
    def __init__(self, fake: "FakeService") -> None:
        self._fake = fake

    async def register(self, hello: HttpHello) -> HttpWelcome:
        self._fake.asked.append(hello)
        return HttpWelcome("w-1", 5.0, 30.0)

    async def admit(self, worker_id: str, secret: str | None) -> None:
        self._fake.secrets.append(secret)

    async def lease(self, worker_id: str, max_jobs: int, wait: float) -> list[HttpAssignment]:
        self._fake.asked.append(("lease", worker_id, max_jobs, wait))
        payload = msgspec.Raw(b'{"big": 1606938044258990275541962092341162602522202993782792835301376}')
        return [HttpAssignment("j", 7, "echo", payload, 1, 4, 1, None, None, "default", {"k": "v"})]

    def undelivered(self, worker_id: str, jobs: Sequence[HttpAssignment]) -> None:
        self._fake.asked.append(("undelivered", worker_id, jobs))

    async def heartbeat(self, worker_id: str, held: Sequence[HttpClaim]) -> HttpOrders:
        if worker_id != "w-1":
            raise MissingError("this session was given up; register again")
        return HttpOrders(list(held), [], drain=False)

    async def report(self, worker_id: str, reports: Sequence[HttpReport]) -> HttpReceipt:
        self._fake.asked.append(reports)
        return HttpReceipt([HttpClaim(report.id, report.claim_id) for report in reports], [])


class FakeRunWorkers(RunWorkers):
    def __init__(self, fake: "FakeService") -> None:
        self._fake = fake

    async def register(self, hello: RunHello) -> HttpWelcome:
        self._fake.asked.append(hello)
        return HttpWelcome(hello.id, 5.0, 30.0)

    async def heartbeat(self, worker_id: str) -> None:
        self._fake.asked.append(("run_heartbeat", worker_id))

    async def complete(self, ref: ClaimRef, outcome: RunOutcome) -> None:
        self._fake.asked.append(("run_complete", ref, outcome))


class FakeQueues(QueueService):
    def __init__(self, fake: "FakeService") -> None:
        self._fake = fake

    async def all(self) -> list[QueueState]:
        return queue_states(self._fake.tallies, self._fake.paused, {})

    async def set_paused(self, queue: str, paused: bool) -> QueueState:
        self._fake.paused.pop(queue, None)
        if paused:
            self._fake.paused[queue] = self._fake.clock.now_us()
        return QueueState(queue, {}, self._fake.paused.get(queue), None)


class FakeStats(StatsService):
    def __init__(self, fake: "FakeService") -> None:
        self._fake = fake

    async def stats(self) -> dict[str, object]:
        self._fake.may_fail()
        return {
            "queue_depth": len(self._fake.stored),
            "paused_depth": 0,
            "workers": 0,
            "threads": 0,
            "threads_used": 0,
            "jobs_by_status": {},
            "jobs_total": len(self._fake.stored),
            "success_rate": None,
            "success_rate_pct": None,
            "uptime_sec": 1.5,
            "uptime_seconds": 1.5,
            "pending_thread_seconds": None,
            "autoscaler": None,
        }

    def scaling_decided(self, state: ScalingState) -> None:
        self._fake.asked.append(state)

    @contextlib.contextmanager
    def stream(self, what: str) -> Iterator[None]:
        yield

    async def series(self, wanted: Range, queue: str | None, type: str | None) -> list[Point]:
        self._fake.asked.append((wanted, queue, type))
        of_all = queue is None and type is None
        return points(wanted, self._fake.tally_rows, self._fake.gauge_rows, of_all=of_all)

    async def breakdown(self, wanted: Range, by: Literal["queue", "type"]) -> dict[str, Tally]:
        self._fake.asked.append((wanted, by))
        return sums(self._fake.tally_rows, by)

    async def metrics(self) -> bytes:
        return b"stoker_queue_depth 0\n"


class FakeReadiness(Readiness):
    def __init__(self, fake: "FakeService") -> None:
        self._fake = fake

    async def reasons(self) -> list[str]:
        return self._fake.reasons


class FakeService(Services):
    """The services of a coordinator, faked one by one. Keeps what they share, remembers what they were asked, and fails as
    it is told to."""

    def __init__(self, settings: Settings | None = None, clock: Clock | None = None) -> None:
        self.settings = settings or Settings()
        self.clock = clock or SystemClock()
        self.stored: dict[str, Job] = {}
        self.keys: dict[tuple[str, str], tuple[bytes, str]] = {}
        self.expiries: dict[str, int] = {}
        self.pruned: set[str] = set()
        self.calls: list[list[int]] = []
        """How many jobs each submission of each call had."""
        self.history: dict[str, list[Attempt]] = {}
        self.progresses: dict[str, JobProgress] = {}
        self.sessions: list[Session] = []
        self.tallies: list[Count] = []
        self.paused: dict[str, int] = {}
        self.notes: dict[str, bytes] = {}
        self.announced: dict[str, JobDefaults] = {}
        self.messages: list[Message] = []
        self.changes: list[dict[str, Any]] = []
        self.bulk_rows: dict[str, Bulk] = {}
        self.tally_rows: list[TallyRow] = []
        self.gauge_rows: list[GaugeRow] = []
        self.groups: list[DeadLetterGroup] = []
        self.reasons: list[str] = []
        self.warnings: list[str] = []
        self.next_seq: int | None = None
        self.capped = False
        self.taken_keys = 0
        self.fails_with: Exception | None = None
        self.asked: list[object] = []
        self.secrets: list[str | None] = []
        self.pause = asyncio.Event()
        self.pause.set()
        self._fake_all()

    def _fake_all(self) -> None:
        self.jobs = FakeJobs(self)
        self.types = FakeTypes(self)
        self.waits = FakeWaits(self)
        self.output = FakeOutput(self)
        self.events = FakeEvents(self)
        self.dead_letters = FakeDeadLetters(self)
        self.bulks = FakeBulks(self)
        self.schedules = cast(Schedules, NoSchedules())
        self.workers = FakeWorkers(self)
        self.http_workers = FakeHttpWorkers(self)
        self.run_workers = FakeRunWorkers(self)
        self.queues = FakeQueues(self)
        self.stats = FakeStats(self)
        self.readiness = FakeReadiness(self)

    def may_fail(self) -> None:
        if self.fails_with is not None:
            raise self.fails_with


@asynccontextmanager
async def api(service: Services) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the app, in this process."""
    transport = httpx.ASGITransport(app=create_app(service))
    headers = {} if service.settings.token is None else {"Authorization": f"Bearer {service.settings.token}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
        yield client


async def call(service: Services, method: str, path: str, **request: object) -> httpx.Response:
    """One request, one answer."""
    async with api(service) as client:
        return await client.request(method, path, **request)  # type: ignore[arg-type]


def ask(service: Services, method: str, path: str, **request: object) -> httpx.Response:
    """`call`, for tests with nothing else to await."""
    return asyncio.run(call(service, method, path, **request))


def test_a_repeat_returns_the_job_of_the_first() -> None:
    service = FakeService()
    first = ask(service, "POST", "/jobs", json={}, headers={"Idempotency-Key": "k"})
    again = ask(service, "POST", "/jobs", json={}, headers={"Idempotency-Key": "k"})
    assert again.json()["id"] == first.json()["id"]
    assert len(service.stored) == 1
    assert hashlib.sha256().digest_size == len(service.keys["local", "k"][0])
