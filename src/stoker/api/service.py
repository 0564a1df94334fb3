"""What the API asks of a coordinator, as a protocol: the real one is `stoker.coordinator.coordinator.Coordinator`, and tests
bring a small one of their own. Errors are those of `stoker.domain.errors`."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol

from stoker.clock import Clock
from stoker.coordinator.events import Message
from stoker.coordinator.job_types import TypeState
from stoker.coordinator.queues import QueueState
from stoker.coordinator.schedules import Schedules
from stoker.coordinator.waits import Waited
from stoker.domain.edit import Changes
from stoker.domain.explain import Explanation
from stoker.domain.job import Job, JobDefaults
from stoker.domain.scaling import ScalingState
from stoker.domain.series import Point, Range, Tally
from stoker.domain.short_ids import ShortId
from stoker.settings import Settings
from stoker.store.bulk import Bulk, BulkAction
from stoker.store.logs import LogPage, Selection
from stoker.store.reads import Attempt, DeadLetterGroups, JobFilter, JobQuery, JobSummary, Page
from stoker.store.sessions import Session
from stoker.store.submissions import Accepted, Submission
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


class SubmissionResult(Protocol):
    """What became of a submission: one `Accepted` per job, in order, and what the submitter should know."""

    @property
    def accepted(self) -> Sequence[Accepted]: ...

    @property
    def warnings(self) -> Sequence[str]: ...


class ProgressShown(Protocol):
    """How far a running job says it is."""

    @property
    def done(self) -> float: ...

    @property
    def total(self) -> float | None: ...

    @property
    def message(self) -> str | None: ...

    @property
    def percent(self) -> float | None: ...


class WorkerSocket(Protocol):
    """One worker's connection, already let in."""

    async def receive(self) -> bytes | str | None:
        """The next frame; None when the connection is closed."""
        ...

    async def send(self, data: bytes | str) -> None:
        """Send a frame; nothing happens when the other side is gone, `receive` tells of it."""
        ...

    async def close(self, code: int, reason: str) -> None: ...


class Service(Protocol):
    """A coordinator, as far as the API is concerned."""

    @property
    def settings(self) -> Settings: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def schedules(self) -> Schedules:
        """What is done with schedules. Raises NotFound, Conflict, BadSchedule."""
        ...

    async def submit(self, jobs: Sequence[Submission]) -> SubmissionResult:
        """Store all or none. Raises IdempotencyMismatch, StoreUnavailable, Overloaded."""
        ...

    async def is_announced(self, type: str) -> bool:
        """Whether some worker serves this type or ever announced it, here or at another coordinator."""
        ...

    def defaults(self, type: str) -> JobDefaults:
        """What workers announced for the jobs of this type: for the fields that a submission leaves out."""
        ...

    async def known_ids(self, ids: Sequence[str]) -> set[str]:
        """Those of these ids that name a job."""
        ...

    async def known_key(self, client: str, key: str) -> bool:
        """Whether a submission under this key would be a repeat."""
        ...

    async def get(self, id: str) -> Job:
        """Raises NotFound."""
        ...

    async def lookup(self, part: ShortId, limit: int) -> Sequence[JobSummary]:
        """Jobs whose ids a part fits, the newest first."""
        ...

    async def wait(self, id: str, seconds: float) -> Job:
        """The job as soon as it is final, or as it is after `seconds`. Raises NotFound."""
        ...

    async def wait_many(self, ids: Collection[str], seconds: float, limit: int) -> Waited:
        """Those of these jobs that have ended, as soon as there are any, or after `seconds`. Raises Overloaded."""
        ...

    async def attempts(self, id: str) -> list[Attempt]: ...

    async def why(self, id: str) -> tuple[Job, Explanation]:
        """Raises NotFound."""
        ...

    def progress(self, job: Job) -> ProgressShown | None:
        """What the attempt that runs now said last; None for a job that does not run, or says nothing."""
        ...

    async def logs(self, which: Selection, after: int = 0, wait: float = 0.0) -> LogPage:
        """Output after a position, waiting up to `wait` seconds for some. Raises NotFound, StoreUnavailable."""
        ...

    def follow(self, position: str | None) -> AsyncGenerator[Message, None]:
        """Everything that happens, from a position on (`EPOCH:SEQ`); see `stoker.coordinator.events`."""
        ...

    def watching(self, id: str) -> AbstractContextManager[Callable[[float], Awaitable[bool]]]:
        """Register the caller as a watcher of this job. Yields a function that waits for a change of the job, for at most
        the given number of seconds, and returns False when this coordinator ends."""
        ...

    async def page(self, query: JobQuery) -> Page: ...

    async def cancel(self, id: str) -> Job:
        """Raises NotFound, Conflict."""
        ...

    async def edit(self, id: str, changes: Changes) -> Job:
        """Change a job that waits. Raises NotFound, Conflict, InvalidOption."""
        ...

    async def retry(self, id: str) -> Job:
        """Raises NotFound, Conflict."""
        ...

    async def replay(
        self, ids: Sequence[str] | None, filter: JobFilter | None, limit: int | None = None
    ) -> int:
        """Run dead letters again; exactly one of the first two is given."""
        ...

    async def keys_taken(self, ids: Sequence[str] | None, filter: JobFilter | None) -> int:
        """Return how many of these dead letters cannot be replayed, because other jobs hold their unique keys."""
        ...

    async def discard(
        self, ids: Sequence[str] | None, filter: JobFilter | None, limit: int | None = None
    ) -> int:
        """Take dead letters off the list; exactly one of the first two is given."""
        ...

    async def dead_letter_groups(self, limit: int) -> DeadLetterGroups: ...

    async def start_bulk(self, action: BulkAction, filter: JobFilter) -> Bulk:
        """Accept an operation on all jobs that match; it is worked off in the background."""
        ...

    async def bulk(self, id: str) -> Bulk:
        """Raises NotFound."""
        ...

    async def bulks(self) -> Sequence[Bulk]:
        """The latest ones."""
        ...

    async def stop_bulk(self, id: str) -> Bulk:
        """Raises NotFound."""
        ...

    async def workers(self) -> Sequence[Session]: ...

    async def drain(self, worker_id: str) -> Session:
        """Raises NotFound."""
        ...

    async def queues(self) -> Sequence[QueueState]:
        """Every queue that has jobs or is paused."""
        ...

    async def types(self) -> Sequence[TypeState]:
        """Everything that can be submitted."""
        ...

    async def set_paused(self, queue: str, paused: bool) -> QueueState:
        """Pause or resume a queue; as it is then."""
        ...

    async def stats(self) -> dict[str, object]: ...

    async def series(self, wanted: Range, queue: str | None, type: str | None) -> Sequence[Point]:
        """Every point of the range, for all jobs, or for those of a queue or type."""
        ...

    async def breakdown(self, wanted: Range, by: Literal["queue", "type"]) -> Mapping[str, Tally]: ...

    def scaling_decided(self, state: ScalingState) -> None:
        """An autoscaler tells what it decided."""
        ...

    def stream(self, what: str) -> AbstractContextManager[None]:
        """Count a client that follows `logs` or `events`, as long as the context lasts."""
        ...

    async def not_ready(self) -> Sequence[str]:
        """Why this coordinator cannot serve; empty when it can."""
        ...

    async def metrics(self) -> bytes:
        """Prometheus text exposition."""
        ...

    async def http_register(self, hello: HttpHello) -> HttpWelcome: ...

    async def http_admit(self, worker_id: str, secret: str | None) -> None:
        """Raises `WrongSecret` when this session began with another secret, `StateConflict` when it is none of plain
        HTTP."""
        ...

    async def http_lease(self, worker_id: str, max_jobs: int, wait: float) -> Sequence[HttpAssignment]:
        """Up to `max_jobs` jobs, waiting up to `wait` seconds for the first; none are taken once this is cancelled. Raises
        NotFound."""
        ...

    def http_undelivered(self, worker_id: str, jobs: Sequence[HttpAssignment]) -> None:
        """The answer with these jobs could not be sent: they go back."""
        ...

    async def http_heartbeat(self, worker_id: str, held: Sequence[HttpClaim]) -> HttpOrders:
        """Raises NotFound when the session is unknown or was given up: the worker must register again."""
        ...

    async def run_register(self, hello: RunHello) -> HttpWelcome:
        """Register a worker of the `/run` shapes, in place of an earlier session of it. Raises EndpointNotListed."""
        ...

    async def run_heartbeat(self, worker_id: str) -> None:
        """Raises NotFound."""
        ...

    async def run_complete(self, ref: ClaimRef, outcome: RunOutcome) -> None:
        """Store how such a worker ended a job. Raises StaleClaim, NotFound, Conflict."""
        ...

    async def http_report(self, worker_id: str, reports: Sequence[HttpReport]) -> HttpReceipt: ...

    async def worker_socket(self, socket: WorkerSocket) -> None:
        """Run one worker's connection until it ends."""
        ...
