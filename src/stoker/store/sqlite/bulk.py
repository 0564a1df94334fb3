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
from stoker.store.queries import json_text
from stoker.store.sqlite.filters import filter_sql
from stoker.store.sqlite.job_changes import SqliteJobChanges
from stoker.store.sqlite.rows import SUMMARY_LIST, Q


class SqliteBulk(SqliteJobChanges):
    """Accepts, works off and stops bulk operations."""

    def put_bulk(self, calls: list[Bulk]) -> list[None]:
        self._db.executemany(Q["put_bulk"], [bulk_values(bulk) for bulk in calls])
        return [None] * len(calls)

    def stop_bulk(self, calls: list[str]) -> list[Bulk | None]:
        for id in calls:
            self._db.execute(Q["stop_bulk"], (id, self._now))
        return [self._bulk(id) for id in calls]

    def _bulk(self, id: str) -> Bulk | None:
        row = self._db.execute(Q["get_bulk"], (id,)).fetchone()
        return None if row is None else bulk_of(row)

    def bulk_step(self, calls: list[BulkStep]) -> list[BulkStepped | None]:
        return [self._bulk_step(call) for call in calls]

    def _bulk_step(self, step: BulkStep) -> BulkStepped | None:
        if not is_next(step, self._bulk(step.bulk.id)):
            return None
        where, values = filter_sql(step.bulk.wanted)
        sql = Q["still_matching"].format(columns=SUMMARY_LIST, where=where)
        found = [Job(*row) for row in self._rows(sql, json_text(step.seqs), *values)]
        changed = [job for job in found if self._change(step.bulk.action, job)]
        after = stepped(step, len(step.seqs), len(changed), self._now)
        self._db.execute(Q["put_bulk"], bulk_values(after))
        return BulkStepped(after, [changed_job(step.bulk.action, job, self._now) for job in changed])

    def _change(self, action: BulkAction, job: Job) -> bool:
        if action == "cancel":
            return self._cancel_job(job)
        return self._replay_job(job) if action == "retry" else self._discard(job)
