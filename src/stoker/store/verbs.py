"""The verbs that write, as every store has them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from stoker.domain.edit import Changes
from stoker.domain.job import Job
from stoker.domain.lifecycle import Status
from stoker.domain.retry import RetryPolicy
from stoker.store.bulk import Bulk, BulkStep, BulkStepped
from stoker.store.claims import ClaimRequest, ClaimSource, Granted
from stoker.store.group_commit import Claims, GroupCommit
from stoker.store.outcomes import Completions, Finish, Start
from stoker.store.reads import JobFilter
from stoker.store.schedules import AppChange, ScheduleChange, ScheduleChanged
from stoker.store.sessions import Expired, Renewal, Session
from stoker.store.submissions import Accepted, Submission
from stoker.store.upkeep import Retention

if TYPE_CHECKING:
    from stoker.store.postgres.transaction import PostgresTransaction
    from stoker.store.sqlite.transaction import SqliteTransaction

    Steps = type[SqliteTransaction] | type[PostgresTransaction]


class WritingVerbs:
    """Every verb is a call of a step of the store's transaction class, which joins the next transaction of a pipeline.

    `reports` takes what workers report, and may be a second write pipeline beside that of everything else.
    """

    def __init__(self, steps: "Steps", group: GroupCommit, reports: GroupCommit) -> None:
        self._steps = steps
        self._group = group
        self._reports = reports
        self._tell: Callable[[Exception | None], None] = lambda error: None

    @property
    def pending(self) -> int:
        """Jobs that wait for a commit."""
        return sum(line.pending for line in self._lines)

    def on_transaction(self, call: Callable[[float, int], None]) -> None:
        for line in self._lines:
            line.observe = call

    def on_outcome(self, call: Callable[[Exception | None], None]) -> None:
        self._tell = call
        for line in self._lines:
            line.refused = call

    async def probe(self) -> None:
        await self._group.call(self._steps.probe, None, weight=0)
        self._tell(None)

    @property
    def _lines(self) -> Iterable[GroupCommit]:
        return dict.fromkeys((self._group, self._reports))

    async def _finish_transactions(self) -> None:
        """Store what is waiting, and take no more."""
        for line in self._lines:
            await line.close()

    async def insert(self, submissions: Sequence[Submission]) -> list[Accepted]:
        result: list[Accepted] = await self._group.call(
            self._steps.insert,
            submissions,
            weight=sum([len(item.batch.ids) for item in submissions]),
            bounded=True,
            size=sum([sum(map(len, item.batch.payloads)) for item in submissions]),
        )
        if not all(item.repeated for item in result):
            self._tell(None)
        return result

    def claim_for(self, source: ClaimSource | None) -> None:
        self._group.claims = (
            None if source is None else Claims(source, self._steps.claim, self._jobs_may_wait)
        )

    def claim_soon(self) -> None:
        self._group.claim_soon()

    def _jobs_may_wait(self) -> bool:
        """Return whether the store knows of queued jobs, or should look for some."""
        raise NotImplementedError

    async def claim(self, request: ClaimRequest) -> Granted:
        result: Granted = await self._group.call(self._steps.claim, request)
        return result

    async def started(self, starts: Sequence[Start]) -> None:
        await self._reports.call(self._steps.started, starts, weight=len(starts))

    async def finish(self, finishes: Sequence[Finish]) -> list[Status | None]:
        result: list[Status | None] = await self._reports.call(
            self._steps.finish, finishes, weight=len(finishes)
        )
        return result

    async def complete(self, done: Sequence[Completions]) -> set[tuple[str, int]]:
        weight = sum(len(item.ids) for item in done)
        size = sum([sum(map(len, item.results)) for item in done])
        stale: set[tuple[str, int]] = await self._reports.call(
            self._steps.complete, done, weight=weight, size=size
        )
        if len(stale) < weight:
            self._tell(None)
        return stale

    async def open_session(self, session: Session) -> str | None:
        status: str | None = await self._group.call(self._steps.open_session, session)
        return status

    async def renew(self, renewals: Sequence[Renewal]) -> list[str | None]:
        result: list[str | None] = await self._group.call(self._steps.renew, renewals, weight=len(renewals))
        return result

    async def set_session_status(self, session_id: str, status: str) -> bool:
        return bool(await self._group.call(self._steps.set_session_status, (session_id, status)))

    async def expire(self, since: int, policy: RetryPolicy) -> Expired:
        result: Expired = await self._group.call(self._steps.expire, (since, policy))
        return result

    async def promote(self, limit: int) -> int:
        return int(await self._group.call(self._steps.promote, limit))

    async def end_overdue(self, limit: int) -> list[Job]:
        result: list[Job] = await self._group.call(self._steps.end_overdue, limit)
        return result

    async def correct_times(self, limit: int) -> int:
        return int(await self._group.call(self._steps.correct_times, limit))

    async def cancel(self, ids: Sequence[str]) -> list[Job | None]:
        result: list[Job | None] = await self._group.call(self._steps.cancel, ids, weight=len(ids))
        return result

    async def edit(self, id: str, changes: Changes) -> Job | None:
        result: Job | None = await self._group.call(self._steps.edit, (id, changes))
        return result

    async def replay(self, ids: Sequence[str]) -> list[Job | None]:
        result: list[Job | None] = await self._group.call(self._steps.replay, ids, weight=len(ids))
        return result

    async def replay_where(self, filter: JobFilter, limit: int) -> int:
        return int(await self._group.call(self._steps.replay_where, (filter, limit), weight=limit))

    async def discard(self, ids: Sequence[str]) -> int:
        return int(await self._group.call(self._steps.discard, ids, weight=len(ids)))

    async def discard_where(self, filter: JobFilter, limit: int) -> int:
        return int(await self._group.call(self._steps.discard_where, (filter, limit), weight=limit))

    async def put_bulk(self, bulk: Bulk) -> None:
        await self._group.call(self._steps.put_bulk, bulk)

    async def stop_bulk(self, id: str) -> Bulk | None:
        result: Bulk | None = await self._group.call(self._steps.stop_bulk, id)
        return result

    async def bulk_step(self, step: BulkStep) -> BulkStepped | None:
        result: BulkStepped | None = await self._group.call(
            self._steps.bulk_step, step, weight=len(step.seqs)
        )
        return result

    async def purge(self, retention: Retention, limit: int) -> int:
        return int(await self._group.call(self._steps.purge, (retention, limit), weight=limit))

    async def note_types(self, notes: Mapping[str, bytes]) -> None:
        await self._group.call(self._steps.note_types, notes)

    async def change_schedules(self, change: ScheduleChange) -> list[ScheduleChanged]:
        weight = change.limit or max(len(change.names or ()), len(change.ticks))
        result: list[ScheduleChanged] = await self._group.call(
            self._steps.change_schedules, change, weight=weight
        )
        return result

    async def declare_schedules(self, change: AppChange) -> list[ScheduleChanged] | None:
        result: list[ScheduleChanged] | None = await self._group.call(
            self._steps.declare_schedules, change, weight=1 + len(change.names)
        )
        return result

    async def purge_ticks(self, before: int, limit: int) -> int:
        return int(await self._group.call(self._steps.purge_ticks, (before, limit), weight=0))
