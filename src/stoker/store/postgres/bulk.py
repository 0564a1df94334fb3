"""Bulk operations: the steps of a transaction that work them off."""

from stoker.domain.job import Job
from stoker.store.bulk import (
    Bulk,
    BulkAction,
    BulkStep,
    BulkStepped,
    bulk_of,
    bulk_values,
    changed_job,
    is_next,
    stepped,
)
from stoker.store.postgres.filters import by_lane, filter_sql, tables
from stoker.store.postgres.job_changes import PostgresJobChanges
from stoker.store.postgres.rows import LIGHT_Q, Q, job_of


class PostgresBulk(PostgresJobChanges):
    """Accepts, works off and stops bulk operations."""

    async def put_bulk(self, calls: list[Bulk]) -> list[None]:
        for bulk in calls:
            await self._link.execute(Q["put_bulk"], *bulk_values(bulk))
        return [None] * len(calls)

    async def stop_bulk(self, calls: list[str]) -> list[Bulk | None]:
        for id in calls:
            await self._link.execute(Q["stop_bulk"], id, self._now)
        return [await self._bulk("get_bulk", id) for id in calls]

    async def _bulk(self, query: str, id: str) -> Bulk | None:
        row = await self._link.fetchrow(Q[query], id)
        return None if row is None else bulk_of(row)

    async def bulk_step(self, calls: list[BulkStep]) -> list[BulkStepped | None]:
        return [await self._bulk_step(call) for call in calls]

    async def _bulk_step(self, step: BulkStep) -> BulkStepped | None:
        if not is_next(step, await self._bulk("hold_bulk", step.bulk.id)):
            return None
        changed = await self._change(step.bulk.action, await self._still_wanted(step))
        after = stepped(step, len(step.seqs), len(changed), self._now)
        await self._link.execute(Q["put_bulk"], *bulk_values(after))
        return BulkStepped(after, changed)

    async def _still_wanted(self, step: BulkStep) -> list[Job]:
        wanted = step.bulk.wanted
        if not step.seqs:
            return []
        if by_lane(wanted):
            await self._memory.read_lanes(self._link)
        where, values = filter_sql(wanted, self._memory, first=2)
        query = LIGHT_Q["still_" + tables(wanted)].format(where=where)
        rows = await self._link.fetch(self._in_time(query), step.seqs, *values)
        lanes = await self._memory.lanes_of(self._link, rows)
        return [job_of(row, lanes) for row in rows]

    async def _change(self, action: BulkAction, jobs: list[Job]) -> list[Job]:
        if action == "cancel":
            return await self._cancel(jobs)
        if action == "retry":
            return await self._replay(jobs)
        await self._discard([job.seq for job in jobs])
        return [changed_job(action, job, self._now) for job in jobs]
