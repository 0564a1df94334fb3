"""A coordinator small enough to read, for the tests of the API; and what a real one must offer."""

import asyncio
import contextlib
import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

import httpx
import msgspec

from stoker.api.app import create_app
from stoker.api.service import ProgressShown, Service, WorkerSocket
from stoker.clock import Clock, SystemClock
from stoker.coordinator.events import Message, StreamHello
from stoker.coordinator.job_types import TypeState, type_states
from stoker.coordinator.queues import QueueState, queue_states
from stoker.coordinator.schedules import Schedules
from stoker.coordinator.waits import EndedJob, Waited
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

if TYPE_CHECKING:
    from stoker.coordinator.coordinator import Coordinator

TOKEN = "a-token-that-nobody-guesses"
JSON = {"Content-Type": "application/json"}


class Submitted(msgspec.Struct):
    accepted: list[Accepted]
    warnings: list[str]


class FakeService:
    """Keeps jobs in a dictionary, remembers what it was asked, and fails as it is told to."""

    def __init__(self, settings: Settings | None = None, clock: Clock | None = None) -> None:
        self.settings = settings or Settings()
        self.clock = clock or SystemClock()
        self.jobs: dict[str, Job] = {}
        self.keys: dict[tuple[str, str], tuple[bytes, str]] = {}
        self.expiries: dict[str, int] = {}
        self.pruned: set[str] = set()
        self.calls: list[list[int]] = []
        """How many jobs each submission of each call had."""
        self.history: dict[str, list[Attempt]] = {}
        self.progresses: dict[str, ProgressShown] = {}
        self.sessions: list[Session] = []
        self.tallies: list[Count] = []
        self.paused: dict[str, int] = {}
        self.notes: dict[str, bytes] = {}
        self.announced: dict[str, JobDefaults] = {}
        self.messages: list[Message] = []
        self.changes: list[dict[str, object]] = []
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

    @property
    def schedules(self) -> Schedules:
        """What is done with schedules is tested with a store: tests/conformance and tests/e2e."""
        raise MissingError("there are no schedules here")

    def job(self, job: Job, key: IdempotencyKey | None) -> Accepted:
        if key is not None and (key.client, key.key) in self.keys:
            return self._repeat(key)
        if job.digest is not None and job.id in self.pruned:
            raise JobPruned(job.id)
        if job.digest is not None and job.id in self.jobs:
            if self.jobs[job.id].digest != job.digest:
                raise IdMismatch(job.id)
            if key is not None:
                self.keys[key.client, key.key] = (key.digest, job.id)
            return accepted(self.jobs[job.id], repeated=True)
        job = msgspec.structs.replace(job, seq=len(self.jobs) + 1)
        self.jobs[job.id] = job
        if key is not None:
            self.keys[key.client, key.key] = (key.digest, job.id)
            self.expiries[key.key] = key.expires_at
        return accepted(job, repeated=False)

    def _repeat(self, key: IdempotencyKey) -> Accepted:
        digest, id = self.keys[key.client, key.key]
        if digest != key.digest:
            raise IdempotencyMismatch(key.key)
        return accepted(self.jobs[id], repeated=True)

    def _may_fail(self) -> None:
        if self.fails_with is not None:
            raise self.fails_with

    async def submit(self, jobs: Sequence[Submission]) -> Submitted:
        self._may_fail()
        await self.pause.wait()
        self.calls.append([len(submission.batch) for submission in jobs])
        before, keys = dict(self.jobs), dict(self.keys)
        try:
            made = [self.job(job, submission.key) for submission in jobs for job in submission.batch]
        except Exception:
            self.jobs, self.keys = before, keys
            raise
        return Submitted(made, self.warnings)

    async def is_announced(self, type: str) -> bool:
        return type in self.announced

    def defaults(self, type: str) -> JobDefaults:
        return self.announced.get(type, NO_DEFAULTS)

    async def known_ids(self, ids: Sequence[str]) -> set[str]:
        return self.jobs.keys() & set(ids)

    async def known_key(self, client: str, key: str) -> bool:
        return (client, key) in self.keys

    async def get(self, id: str) -> Job:
        self._may_fail()
        if id not in self.jobs:
            raise MissingError(f"there is no job {id}")
        return self.jobs[id]

    async def lookup(self, part: ShortId, limit: int) -> list[JobSummary]:
        found = [self.jobs[id] for id in sorted(part.among(self.jobs), reverse=True)[:limit]]
        return [JobSummary(*(getattr(job, field) for field in JobSummary.__struct_fields__)) for job in found]

    async def wait(self, id: str, seconds: float) -> Job:
        self.asked.append(("wait", seconds))
        return await self.get(id)

    async def wait_many(self, ids: Collection[str], seconds: float, limit: int) -> Waited:
        """Never waits, unlike the real one."""
        self.asked.append(("wait_many", list(ids), seconds, limit))
        known = [self.jobs[id] for id in ids if id in self.jobs]
        ended = [EndedJob(job, self.history.get(job.id, [])) for job in known if job.status in FINAL][:limit]
        missing = [id for id in ids if id not in self.jobs]
        return Waited(ended, missing, len(known) - len(ended), Counter(job.status for job in known))

    async def attempts(self, id: str) -> list[Attempt]:
        self.asked.append(("attempts", id))
        return self.history.get(id, [])

    async def why(self, id: str) -> tuple[Job, Explanation]:
        job = await self.get(id)
        return job, explain(job, Facts(self.clock.now_us()))

    def progress(self, job: Job) -> ProgressShown | None:
        return self.progresses.get(job.id)

    async def logs(self, which: Selection, after: int = 0, wait: float = 0.0) -> LogPage:
        self.asked.append((which, after, wait))
        await self.get(which.job_id)
        return LogPage([], after, more=False, cut=False, written_bytes=0, ended=True)

    async def follow(self, position: str | None) -> AsyncGenerator[Message, None]:
        """Ends at once, unlike the real one: a test reads all of an answer."""
        self.asked.append(("follow", position))
        yield StreamHello("life", 7)
        for message in self.messages:
            yield message

    @contextlib.contextmanager
    def watching(self, id: str) -> Iterator[Callable[[float], Awaitable[bool]]]:
        async def news(seconds: float) -> bool:
            change = self.changes.pop(0)
            self.jobs[id] = msgspec.structs.replace(self.jobs[id], **change)
            return True

        yield news

    async def page(self, query: JobQuery) -> Page:
        self.asked.append(query)
        jobs = list(self.jobs.values())[query.offset : query.offset + query.limit]
        return Page(jobs, len(self.jobs), self.capped, self.next_seq)

    async def cancel(self, id: str) -> Job:
        job = await self.get(id)
        if job.status in FINAL and job.status != "cancelled":
            raise StateConflict(f"job {id} is already {job.status}")
        self.jobs[id] = msgspec.structs.replace(job, status="cancelled")
        return self.jobs[id]

    async def retry(self, id: str) -> Job:
        job = await self.get(id)
        if job.status not in ("failed", "cancelled"):
            raise StateConflict(f"job {id} is {job.status}; only failed and cancelled jobs run again")
        self.jobs[id] = msgspec.structs.replace(job, status="queued")
        return self.jobs[id]

    async def replay(
        self, ids: Sequence[str] | None, filter: JobFilter | None, limit: int | None = None
    ) -> int:
        self.asked.append(("replay", ids, filter, limit))
        return 1 if ids is None else len(ids)

    async def dead_letter_groups(self, limit: int) -> DeadLetterGroups:
        self.asked.append(("groups", limit))
        return DeadLetterGroups(self.groups, len(self.groups), sum(group.count for group in self.groups), 0)

    async def edit(self, id: str, changes: Changes) -> Job:
        self.jobs[id] = edited(await self.get(id), changes, self.clock.now_us())
        return self.jobs[id]

    async def keys_taken(self, ids: Sequence[str] | None, filter: JobFilter | None) -> int:
        return self.taken_keys

    async def discard(
        self, ids: Sequence[str] | None, filter: JobFilter | None, limit: int | None = None
    ) -> int:
        self.asked.append(("discard", ids, filter, limit))
        return 1 if ids is None else len(ids)

    async def start_bulk(self, action: BulkAction, filter: JobFilter) -> Bulk:
        bulk = Bulk(new_id(), action, filter, "running", 10_000, True, 0, 0, self.clock.now_us())
        self.bulk_rows[bulk.id] = bulk
        return bulk

    async def bulk(self, id: str) -> Bulk:
        if id not in self.bulk_rows:
            raise MissingError(f"there is no bulk operation {id}")
        return self.bulk_rows[id]

    async def bulks(self) -> list[Bulk]:
        return list(self.bulk_rows.values())

    async def stop_bulk(self, id: str) -> Bulk:
        bulk = await self.bulk(id)
        now = self.clock.now_us()
        self.bulk_rows[id] = msgspec.structs.replace(bulk, status="stopped", finished_at=now)
        return self.bulk_rows[id]

    async def series(self, wanted: Range, queue: str | None, type: str | None) -> list[Point]:
        self.asked.append((wanted, queue, type))
        return points(wanted, self.tally_rows, self.gauge_rows, of_all=queue is None and type is None)

    async def breakdown(self, wanted: Range, by: Literal["queue", "type"]) -> dict[str, Tally]:
        self.asked.append((wanted, by))
        return sums(self.tally_rows, by)

    async def workers(self) -> Sequence[Session]:
        return self.sessions

    async def drain(self, worker_id: str) -> Session:
        for session in self.sessions:
            if worker_id in (session.id, session.name):
                return msgspec.structs.replace(session, status="draining")
        raise MissingError(f"there is no worker {worker_id}")

    async def queues(self) -> Sequence[QueueState]:
        return queue_states(self.tallies, self.paused, {})

    async def types(self) -> Sequence[TypeState]:
        return type_states(self.sessions, self.notes, lambda type: 1_500_000 if type == "echo" else None)

    async def set_paused(self, queue: str, paused: bool) -> QueueState:
        self.paused.pop(queue, None)
        if paused:
            self.paused[queue] = self.clock.now_us()
        return QueueState(queue, {}, self.paused.get(queue), None)

    async def stats(self) -> dict[str, object]:
        self._may_fail()
        return {
            "queue_depth": len(self.jobs),
            "paused_depth": 0,
            "workers": 0,
            "threads": 0,
            "threads_used": 0,
            "jobs_by_status": {},
            "jobs_total": len(self.jobs),
            "success_rate": None,
            "success_rate_pct": None,
            "uptime_sec": 1.5,
            "uptime_seconds": 1.5,
            "pending_thread_seconds": None,
            "autoscaler": None,
        }

    def scaling_decided(self, state: ScalingState) -> None:
        self.asked.append(state)

    def stream(self, what: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    async def not_ready(self) -> Sequence[str]:
        return self.reasons

    async def metrics(self) -> bytes:
        return b"stoker_queue_depth 0\n"

    async def http_register(self, hello: HttpHello) -> HttpWelcome:
        self.asked.append(hello)
        return HttpWelcome("w-1", 5.0, 30.0)

    async def run_register(self, hello: RunHello) -> HttpWelcome:
        self.asked.append(hello)
        return HttpWelcome(hello.id, 5.0, 30.0)

    async def run_heartbeat(self, worker_id: str) -> None:
        self.asked.append(("run_heartbeat", worker_id))

    async def run_complete(self, ref: ClaimRef, outcome: RunOutcome) -> None:
        self.asked.append(("run_complete", ref, outcome))

    async def http_admit(self, worker_id: str, secret: str | None) -> None:
        self.secrets.append(secret)

    async def http_lease(self, worker_id: str, max_jobs: int, wait: float) -> Sequence[HttpAssignment]:
        self.asked.append(("lease", worker_id, max_jobs, wait))
        payload = msgspec.Raw(b'{"big": 1606938044258990275541962092341162602522202993782792835301376}')
        return [HttpAssignment("j", 7, "echo", payload, 1, 4, 1, None, None, "default", {"k": "v"})]

    def http_undelivered(self, worker_id: str, jobs: Sequence[HttpAssignment]) -> None:
        self.asked.append(("undelivered", worker_id, jobs))

    async def http_heartbeat(self, worker_id: str, held: Sequence[HttpClaim]) -> HttpOrders:
        if worker_id != "w-1":
            raise MissingError("this session was given up; register again")
        return HttpOrders(list(held), [], drain=False)

    async def http_report(self, worker_id: str, reports: Sequence[HttpReport]) -> HttpReceipt:
        self.asked.append(reports)
        return HttpReceipt([HttpClaim(report.id, report.claim_id) for report in reports], [])

    async def worker_socket(self, socket: WorkerSocket) -> None:
        """Echoes frames; "stop" ends the connection, "fail" breaks it."""
        while (frame := await socket.receive()) is not None:
            if frame == "fail":
                raise RuntimeError("broken on purpose")
            if frame == "stop":
                await socket.close(1000, "as you wish")
                return
            await socket.send(frame)


@asynccontextmanager
async def api(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the app, in this process."""
    transport = httpx.ASGITransport(app=create_app(service))
    headers = {} if service.settings.token is None else {"Authorization": f"Bearer {service.settings.token}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
        yield client


async def call(service: Service, method: str, path: str, **request: object) -> httpx.Response:
    """One request, one answer."""
    async with api(service) as client:
        return await client.request(method, path, **request)  # type: ignore[arg-type]


def ask(service: Service, method: str, path: str, **request: object) -> httpx.Response:
    """`call`, for tests with nothing else to await."""
    return asyncio.run(call(service, method, path, **request))


def the_real_one(coordinator: "Coordinator") -> Service:
    """Type-checked only: the coordinator offers what the API asks for."""
    return coordinator


def test_a_repeat_returns_the_job_of_the_first() -> None:
    service = FakeService()
    first = ask(service, "POST", "/jobs", json={}, headers={"Idempotency-Key": "k"})
    again = ask(service, "POST", "/jobs", json={}, headers={"Idempotency-Key": "k"})
    assert again.json()["id"] == first.json()["id"]
    assert len(service.jobs) == 1
    assert hashlib.sha256().digest_size == len(service.keys["local", "k"][0])
