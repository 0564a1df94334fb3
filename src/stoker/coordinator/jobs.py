"""Jobs, as the API uses them: submit, read, explain, change."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from stoker.bus.cache import JobCache
from stoker.coordinator.known_types import KnownTypes
from stoker.coordinator.observers import Observers
from stoker.coordinator.run_times import RunTimes
from stoker.coordinator.schema_watch import SchemaWatch
from stoker.coordinator.sessions import Sessions, kept_until
from stoker.coordinator.text_search import with_text
from stoker.coordinator.upkeep import Upkeep
from stoker.coordinator.workers import WorkerList
from stoker.domain.edit import Changes
from stoker.domain.errors import MissingError, StateConflict, Stopping, UniqueConflict
from stoker.domain.explain import Explanation, Facts, Hand, explain
from stoker.domain.job import Job
from stoker.domain.lifecycle import FINAL
from stoker.domain.short_ids import ShortId
from stoker.domain.unique import taken_by_replay
from stoker.store.base import Store
from stoker.store.reads import JobQuery, JobSummary, Page
from stoker.store.sessions import Session
from stoker.store.submissions import Accepted, Submission

REPEATABLE: Final = ("failed", "cancelled", "scheduled")

log = structlog.get_logger()


class Submitted(msgspec.Struct, frozen=True):
    """The result of a submission: one `Accepted` for each batch, in order, and warnings for the submitter."""

    accepted: list[Accepted]
    warnings: list[str]


class JobService:
    """Submits, reads, cancels, edits and replays jobs for the API. Raises the errors of `stoker.domain.errors`."""

    def __init__(
        self,
        store: Store,
        cache: JobCache,
        sessions: Sessions,
        *,
        types: KnownTypes,
        workers: WorkerList,
        run_times: RunTimes,
        observers: Observers,
        upkeep: Upkeep,
        schema: SchemaWatch,
        wake: Callable[[], None],
    ) -> None:
        """`wake` tells the dispatcher that there may be work."""
        self._store = store
        self._cache = cache
        self._sessions = sessions
        self._types = types
        self._workers = workers
        self._run_times = run_times
        self._observers = observers
        self._upkeep = upkeep
        self._schema = schema
        self._wake = wake
        self.attempts = store.attempts
        self.known_key = store.known_key
        self.leaving = False
        """Whether new jobs are refused, because the coordinator shuts down."""

    async def submit(self, jobs: Sequence[Submission]) -> Submitted:
        """Store all or none. Raises IdempotencyMismatch, StoreUnavailable, Overloaded."""
        if self.leaving:
            raise Stopping
        self._schema.check()
        # Woken before the commit, so that a job for which a worker is free is stored as already claimed.
        self._wake()
        accepted = await self._store.insert(jobs)
        self._observers.submitted(accepted)
        missing = False
        for item in accepted:
            if item.unique == "replaced":
                self._observers.changed(item.batch.ids)
            missing = missing or not self._sessions.serves(item.batch.template.type)
        return Submitted(accepted, await self._types.warnings(accepted) if missing else [])

    # ── reading ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def get(self, id: str) -> Job:
        """Return the job, perhaps from the cache. Raises MissingError."""
        cached = await self._cache.get(id)
        return cached if cached is not None else await self._stored(id)

    async def _stored(self, id: str) -> Job:
        asked_at = time.monotonic()
        (job,) = await self._store.get([id])
        if job is None:
            raise MissingError(f"there is no job {id}")
        self._cache.put(job, asked_at)
        return job

    async def known_ids(self, ids: Sequence[str]) -> set[str]:
        """Return those of these ids that name a job."""
        return {state.id for state in await self._store.states(ids)}

    async def lookup(self, part: ShortId, limit: int) -> list[JobSummary]:
        """Return jobs whose ids a part fits, the newest first."""
        found = await self._store.summaries(await self._store.ids_like(part, limit))
        return sorted(found, key=lambda job: job.id, reverse=True)

    async def page(self, query: JobQuery) -> Page:
        filter = await with_text(self._store, query.filter)
        return await self._store.page(replace(query, filter=filter))

    async def why(self, id: str) -> tuple[Job, Explanation]:
        """Return the job, and why it is where it is. Raises MissingError."""
        job = await self.get(id)
        if job.status != "queued":
            return job, explain(job, Facts(self._store.now_us(), _hands(await self._workers.all())))
        rows = await self._store.sessions()
        facts = Facts(
            self._store.now_us(),
            _hands(map(self._workers.with_use, rows)),
            (await self._store.paused()).get(job.queue),
            await self._store.line(job),
            self._run_times.us.get(job.type),
            kept_until(job.type, rows),
        )
        return job, explain(job, facts)

    # ── changing ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def cancel(self, id: str) -> Job:
        """Raises MissingError, StateConflict."""
        asked_at = self._store.now_us()
        (job,) = await self._store.cancel([id])
        if job is None:
            raise MissingError(f"there is no job {id}")
        if job.status in ("completed", "failed"):
            raise StateConflict(f"job {id} is {job.status} already and cannot be cancelled")
        self._observers.cancelled([job], asked_at)
        return job

    async def edit(self, id: str, changes: Changes) -> Job:
        """Change a job that waits. Raises MissingError, StateConflict, InvalidOption."""
        job = await self._store.edit(id, changes)
        if job is None:
            raise MissingError(f"there is no job {id}")
        self._wake()
        if job.status == "scheduled":
            self._upkeep.nudge()
        self._observers.changed([id])
        log.info("job_edited", job_id=id)
        return job

    async def retry(self, id: str) -> Job:
        """Run a job again, or now. Raises MissingError, StateConflict, UniqueConflict."""
        job = await self._stored(id)
        if job.status not in REPEATABLE:
            raise StateConflict(
                f"job {id} is {job.status}; only failed, cancelled and scheduled jobs can be retried"
            )
        await self._cache.forget([id])
        self._wake()
        (after,) = await self._store.replay([id])
        if after is None:
            raise MissingError(f"there is no job {id}")
        await self._check_key(after)
        self.tell_replayed([after])
        return after

    async def _check_key(self, job: Job) -> None:
        """Raise for a job that a replay left as it was, because another one holds its unique key."""
        key = taken_by_replay(job) if job.status in FINAL else None
        holder = None if key is None else await self._store.key_holder(key)
        if key is not None:
            (held,) = [None] if holder is None else await self._store.get([holder])
            status = "over by now" if held is None else held.status
            raise UniqueConflict(key, holder or "that has just ended", status)

    def tell_replayed(self, jobs: Sequence[Job]) -> None:
        """Tell the dispatcher and all observers that these jobs run again."""
        self._wake()
        ids = [job.id for job in jobs]
        self._observers.changed(ids)
        for id in ids:
            log.info("job_replayed", job_id=id)


def _hands(rows: Iterable[Session]) -> list[Hand]:
    return [
        Hand(
            row.id,
            row.name,
            row.threads,
            max(0, row.threads - row.threads_used),
            frozenset(row.types),
            None if row.queues is None else frozenset(row.queues),
            row.labels,
            row.status == "live",
            row.any_type,
        )
        for row in rows
        if row.status in ("live", "draining")
    ]
