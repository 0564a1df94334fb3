"""Changes that clients ask for: cancel, edit, replay, discard."""

from collections.abc import Sequence

from msgspec.structs import replace

from stoker.domain import lifecycle
from stoker.domain.edit import Changes, edited
from stoker.domain.errors import StateConflict
from stoker.domain.extras import InvalidOption
from stoker.domain.job import Job
from stoker.domain.keeping import keeps, leaves_something
from stoker.domain.placement import Lane, lane_key
from stoker.domain.unique import key_of
from stoker.store.job_changes import replayed
from stoker.store.reads import WHOLE_JOBS, JobFilter
from stoker.store.sqlite.filters import best_index, filter_sql
from stoker.store.sqlite.rows import Q
from stoker.store.sqlite.submissions import SqliteSubmissions


class SqliteJobChanges(SqliteSubmissions):
    """Changes single jobs for clients: cancels, edits, replays and discards them, one by one or by a filter."""

    def cancel(self, calls: list[Sequence[str]]) -> list[list[Job | None]]:
        return [[self._cancel(id) for id in call] for call in calls]

    def _cancel(self, id: str) -> Job | None:
        job = self._light_by_id(id)
        if job is None:
            return None
        self._cancel_job(job)
        return self._by_seq(job.seq)

    def _cancel_job(self, job: Job) -> bool:
        """End a waiting job, or record the request to end a running one. Return False if it changed since it was read."""
        if lifecycle.after(job.status, "cancel_requested"):
            return self._changed(Q["request_cancel"], job.seq, self._now)
        changed = self._changed(Q["cancel_waiting"], job.seq, self._now)
        if changed:
            self._count(job, job.status, "cancelled")
            if job.extras is not None:
                self._unique.free([(key_of(job.extras), job.id)])
                if leaves_something(job.extras):
                    self._left_behind.append(job.seq)
        return changed

    def edit(self, calls: list[tuple[str, Changes]]) -> list[Job | Exception | None]:
        return [self._edit(*call) for call in calls]

    def _edit(self, id: str, changes: Changes) -> Job | Exception | None:
        job = self._by_id(id)
        if job is None:
            return None
        try:
            after = edited(job, changes, self._now)
        except (StateConflict, InvalidOption) as error:
            return error
        after = replace(after, lane_id=self._lane_id(Lane(*lane_key(after))))
        self._rewrite(job, after)
        return after

    def replay(self, calls: list[Sequence[str]]) -> list[list[Job | None]]:
        return [[self._replay(id, whole=len(call) <= WHOLE_JOBS) for id in call] for call in calls]

    def _replay(self, id: str, *, whole: bool) -> Job | None:
        job = self._light_by_id(id)
        if job is None:
            return None
        self._replay_job(job)
        return self._by_seq(job.seq) if whole else self._light_by_seq(job.seq)

    def _replay_job(self, job: Job) -> bool:
        """Queue a finished or scheduled job now. Return False if it cannot be, or changed since it was read."""
        if job.status == "scheduled":
            after = replace(job, status="queued", run_at=self._now)
            changed = self._changed(Q["hurry_job"], job.seq, self._now)
        else:
            if job.status not in lifecycle.sources("replayed") or not self._unique.take_again(job):
                return False
            after = replayed(job, self._now)
            changed = self._changed(Q["replay_job"], job.seq, after.status, after.run_at, after.extras)
            self._limits.note(after)
        if changed:
            self._count(job, job.status, after.status)
            if after.status == "queued":
                self._woken.add(job.lane_id)
            if keeps(job.extras):
                self._db.execute(Q["drop_keep"], (job.seq,))
        return changed

    def replay_where(self, calls: list[tuple[JobFilter, int]]) -> list[int]:
        counts: list[int] = []
        for call in calls:
            jobs = [job for seq in self._dead(*call) if (job := self._light_by_seq(seq)) is not None]
            counts.append(sum([self._replay_job(job) for job in jobs]))
        return counts

    def discard(self, calls: list[Sequence[str]]) -> list[int]:
        return [sum(self._discard(self._light_by_id(id)) for id in call) for call in calls]

    def discard_where(self, calls: list[tuple[JobFilter, int]]) -> list[int]:
        return [
            sum(self._discard(self._light_by_seq(seq)) for seq in self._dead(*call, free="TRUE"))
            for call in calls
        ]

    def _discard(self, job: Job | None) -> bool:
        return job is not None and self._changed(Q["discard_job"], job.seq, self._now)

    def _dead(self, filter: JobFilter, limit: int, free: str = Q["key_is_free"]) -> list[int]:
        filter = replace(filter, status=None, dead_letters=True)
        where, values = filter_sql(replace(filter, status=None, dead_letters=False))
        sql = Q["dead_letters"].format(where=where, index=best_index(filter, few=True), free=free)
        return [int(row[0]) for row in self._rows(sql, *values, limit)]
