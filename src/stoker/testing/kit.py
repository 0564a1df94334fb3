"""The test kit that `app.testing()` opens: submit, run, advance the clock, crash, and look at what happened.

    def test_a_welcome_is_sent_after_a_day() -> None:
        with app.testing() as t:
            signup.submit("ada@example.org")
            t.run_until_idle()
            t.advance(days=1)
            assert [call.arguments for call in t.done(send_mail)] == [{"to": "ada@example.org"}]

Tasks run in the test's own process and thread, called by the code that calls them in a worker, so mocks, monkeypatching and
assertions work in them. Jobs go through the API of a real coordinator into a real store (SQLite in memory), and a real
supervisor runs them. Only time and processes are simulated: see `stoker.testing.system`.
"""

from __future__ import annotations

import inspect
import threading
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from stoker.client.errors import ArgumentError, StokerError
from stoker.client.job import JobHandle
from stoker.clock import SECOND
from stoker.domain.job import Job
from stoker.domain.lifecycle import Status
from stoker.store.reads import JobFilter, JobQuery
from stoker.testing.client import KitTransport
from stoker.testing.system import System

if TYPE_CHECKING:
    from stoker.client.app import Stoker
    from stoker.client.task import Task

START: Final = datetime(2030, 1, 1, tzinfo=UTC)
"""The default time at which a test begins, so that every run of it sees the same times."""
PAGE: Final = 1_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WAITING: Final[tuple[Status, ...]] = ("blocked", "scheduled", "queued")

_open = threading.Lock()


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a task, as a test sees it."""

    id: str
    """The id of the job."""
    task: str
    """The name of the task."""
    arguments: dict[str, Any]
    """The arguments of the function by name, decoded as a worker decodes them."""
    status: str
    """The status of the job."""
    queue: str
    """The queue of the job."""
    priority: int
    """0 is high, 1 normal, 2 low."""
    run_at: datetime
    """When the job may start."""
    attempt: int
    """The number of attempts so far."""
    handle: JobHandle[Any]
    """The handle of the job."""


class Kit:
    """A running Stoker for one test: `with app.testing() as t:`.

    `now` is the time at which the test begins, 1 January 2030 by default; `settings` are those of the coordinator, such as
    `{"retry_backoff_base_sec": 3}`.
    """

    def __init__(
        self, app: Stoker, *, now: datetime | None = None, settings: dict[str, Any] | None = None
    ) -> None:
        if now is not None and now.tzinfo is None:
            raise ArgumentError(
                f"now={now.isoformat()} has no time zone; say which, such as datetime(2030, 1, 1, tzinfo=UTC)",
                "now",
            )
        self.app = app
        """The app under test."""
        self._start = now or START
        self._settings = settings
        self._system: System | None = None
        self._transport: Any = None

    # ── the block ──────────────────────────────────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        if not _open.acquire(blocking=False):
            raise StokerError(
                "a block of app.testing() is open already, and there can be one at a time; "
                "leave it first, or use its `t` here too"
            )
        try:
            self._system = System(self.app, _us(self._start), self._settings)
            self._system.open()
            self._transport = self.app.__dict__.get("transport")
            self.app.__dict__["transport"] = KitTransport(self._system)
        except BaseException:
            _open.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._transport is None:
                del self.app.__dict__["transport"]
            else:
                self.app.__dict__["transport"] = self._transport
            self._of().close()
        finally:
            _open.release()

    def _of(self) -> System:
        if self._system is None or self._system.closed:
            raise StokerError("the block of app.testing() is not open; use: with app.testing() as t: ...")
        return self._system

    # ── time ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def now(self) -> datetime:
        """Return the time of the test. It stands still until the test moves it, or waits for a job."""
        return _moment(self._of().clock.us)

    def run_until_idle(self) -> None:
        """Run every job that is due now, in order of priority, including the due jobs that they submit.

        The clock stands still, except for the time it takes to notice a worker that died (`crash`).
        """
        self._of().run_due()

    def advance(
        self,
        by: timedelta | None = None,
        /,
        *,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> None:
        """Move the clock forward: `t.advance(hours=2)`. Jobs, retries and schedules run on the way, each at its time."""
        span = by or timedelta()
        span += timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        if span < timedelta():
            raise ArgumentError(f"the clock cannot go back by {-span}", "by")
        system = self._of()
        system.pass_time(system.clock.us + span // timedelta(microseconds=1))

    def advance_to(self, moment: datetime) -> None:
        """Move the clock forward to a time: `t.advance_to(datetime(2030, 1, 2, 3, tzinfo=UTC))`."""
        self.advance(moment - self.now)

    # ── jobs ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def enqueued(self, task: Task[..., Any] | str | None = None) -> list[Call]:
        """Return the jobs of a task, or of all tasks, that wait for their first or next attempt; the oldest first."""
        return self._calls(task, _WAITING)

    def done(self, task: Task[..., Any] | str | None = None) -> list[Call]:
        """Return the jobs of a task, or of all tasks, that completed; the oldest first."""
        return self._calls(task, ("completed",))

    def failed(self, task: Task[..., Any] | str | None = None) -> list[Call]:
        """Return the jobs of a task, or of all tasks, that failed for good; the oldest first."""
        return self._calls(task, ("failed",))

    def crash(self, job: JobHandle[Any] | str, *, after: bool = False) -> None:
        """Make the job's running or next attempt end as if its worker had been killed.

        The task is not called in that attempt; with `after` it runs to its end, and the worker dies before it can report
        that. The coordinator notices when the lease of the worker ends, which moves the clock by some seconds, and gives the
        job to another worker.
        """
        system = self._of()
        job_id = job if isinstance(job, str) else job.id
        if job_id in system.sent_jobs.running:
            system.sent_jobs.silenced.add(job_id)
            return
        found = self._handle(job_id).refresh()
        if found.is_final:
            raise ArgumentError(f"job {job_id} is {found.status}: it has no next attempt", "job")
        system.sent_jobs.to_crash[job_id] = after

    def _handle(self, job_id: str) -> JobHandle[Any]:
        return self.app.job(job_id)

    def _calls(self, task: Task[..., Any] | str | None, statuses: tuple[Status, ...]) -> list[Call]:
        system = self._of()
        name = task if task is None or isinstance(task, str) else task.name
        found: list[Job] = []
        before: int | None = None
        while True:
            query = JobQuery(JobFilter(statuses, type=name), PAGE, before_seq=before)
            page = system.call(system.store.page(query))
            found += page.jobs
            before = page.next_before_seq
            if before is None or not page.jobs:
                return [self._call(job) for job in reversed(found)]

    def _call(self, job: Job) -> Call:
        return Call(
            id=job.id,
            task=job.type,
            arguments=self._arguments(job),
            status=job.status,
            queue=job.queue,
            priority=job.priority,
            run_at=_moment(job.run_at),
            attempt=job.attempt,
            handle=self._handle(job.id),
        )

    def _arguments(self, job: Job) -> dict[str, Any]:
        task = self.app.tasks.get(job.type)
        if task is None:
            return {"payload": msgspec.json.decode(job.payload)}
        args, kwargs = task.bind(bytes(job.payload))
        return dict(inspect.signature(task.function).bind(*args, **kwargs).arguments)


def _us(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _moment(us: int) -> datetime:
    return _EPOCH + timedelta(seconds=us // SECOND, microseconds=us % SECOND)
