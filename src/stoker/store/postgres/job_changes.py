"""Changes that clients ask for: cancel, edit, replay, discard."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from stoker.domain import lifecycle
from stoker.domain.edit import Changes, edited
from stoker.domain.errors import StateConflict
from stoker.domain.extras import InvalidOption
from stoker.domain.job import Job
from stoker.domain.keeping import keeps
from stoker.domain.placement import lane_key
from stoker.store.job_changes import cancelled, replayed
from stoker.store.postgres.database import PLAN_FOR_VALUES
from stoker.store.postgres.filters import filter_sql
from stoker.store.postgres.rows import HOT_COLUMNS, Q, hot_row
from stoker.store.postgres.submissions import PostgresSubmissions
from stoker.store.reads import WHOLE_JOBS, JobFilter


class PostgresJobChanges(PostgresSubmissions):
    """Changes single jobs for clients: cancels, edits, replays and discards them, one by one or by a filter."""

    async def cancel(self, calls: list[Sequence[str]]) -> list[list[Job | None]]:
        found = await self._found([id for call in calls for id in call])
        found |= {job.id: job for job in await self._cancel(found.values())}
        return [[found.get(id) for id in call] for call in calls]

    async def _cancel(self, jobs: Iterable[Job]) -> list[Job]:
        """Cancel those of these locked jobs that can be; as they are now. Who was told before is not told again."""
        jobs = list(jobs)
        running = [
            job
            for job in jobs
            if lifecycle.after(job.status, "cancel_requested") and job.cancel_requested_at is None
        ]
        waiting = [job for job in jobs if job.status in lifecycle.WAITING]
        over = [cancelled(job, self._now) for job in waiting]
        if running:
            await self._link.execute(Q["request_cancels"], [job.seq for job in running], self._now)
        if over:
            await self._into_history(over)
        for job in waiting:
            self._count(job, job.status, "cancelled")
        return [cancelled(job, self._now) for job in running] + over

    async def edit(self, calls: list[tuple[str, Changes]]) -> list[Job | Exception | None]:
        return [await self._edit(*call) for call in calls]

    async def _edit(self, id: str, changes: Changes) -> Job | Exception | None:
        job = (await self._found([id])).get(id)
        if job is None:
            return None
        try:
            after = edited(job, changes, self._now)
        except (StateConflict, InvalidOption) as error:
            return error
        lane = lane_key(after)
        await self._memory.know_lanes(self._link, {lane})
        after = replace(after, lane_id=self._memory.lanes[lane])
        await self._rewrite(job, after)
        return after

    async def replay(self, calls: list[Sequence[str]]) -> list[list[Job | None]]:
        few = [id for call in calls if len(call) <= WHOLE_JOBS for id in call]
        many = [id for call in calls if len(call) > WHOLE_JOBS for id in call]
        found = await self._found(few)
        found |= await self._found([id for id in many if id not in found], light=True)
        found |= {job.id: job for job in await self._replay(found.values())}
        return [[found.get(id) for id in call] for call in calls]

    async def _replay(self, jobs: Iterable[Job]) -> list[Job]:
        """Queue again those of these locked jobs that may be; as they are now."""
        jobs = list(jobs)
        ended = [job for job in jobs if lifecycle.after(job.status, "replayed")]
        if any(job.extras is not None for job in ended):
            ended = self._unique.take_again(ended)
        early = [job for job in jobs if lifecycle.after(job.status, "hurried")]
        again = [replayed(job, self._now) for job in ended]
        kept = [job.seq for job in again if keeps(job.extras)]
        if kept:
            await self._link.execute(Q["drop_keeps"], kept)
        if again:
            await self._copy("jobs", HOT_COLUMNS, map(hot_row, again))
            await self._carry("carry_to_jobs", again)
            await self._link.execute(Q["delete_history"], [job.seq for job in ended])
        if early:
            await self._link.execute(Q["hurry_jobs"], [job.seq for job in early], self._now)
        self._limits.note(again)
        self._unique.hold(again)
        hurried = [replace(job, status="queued", run_at=self._now) for job in early]
        for job, after in zip(ended + early, again + hurried, strict=True):
            self._count(job, job.status, after.status)
            if after.status == "queued":
                self._woken.add(job.lane_id)
        return again + hurried

    async def replay_where(self, calls: list[tuple[JobFilter, int]]) -> list[int]:
        counts = []
        for call in calls:
            seqs = await self._dead(*call)
            found: Sequence[Job] = await self._jobs("history_by_seq", seqs, light=True) if seqs else []
            if self._ahead.keys is not None:
                # The keys that were taken hide jobs which the first try found, and so this one may find others, with other
                # keys. Those are left for the next call: it could go on like this with every try.
                found = self._unique.asked_for(found)
            counts.append(len(await self._replay(found)))
        return counts

    async def discard(self, calls: list[Sequence[str]]) -> list[int]:
        counts = []
        for call in calls:
            found = await self._found(call, light=True)
            counts.append(await self._discard([job.seq for job in found.values()]))
        return counts

    async def discard_where(self, calls: list[tuple[JobFilter, int]]) -> list[int]:
        return [await self._discard(await self._dead(*call, free="TRUE")) for call in calls]

    async def _discard(self, seqs: list[int]) -> int:
        return len(await self._link.fetch(Q["discard_jobs"], sorted(seqs), self._now)) if seqs else 0

    async def _dead(self, filter: JobFilter, limit: int, free: str = Q["key_is_free"]) -> list[int]:
        where, values = filter_sql(replace(filter, status=None, dead_letters=False), self._memory, first=2)
        query = Q["dead_letters"].replace("{where}", f"AND {where}").replace("{free}", free)
        await self._link.execute(
            PLAN_FOR_VALUES
        )  # how rare a type or a fingerprint is decides where to look for it
        rows = await self._link.fetch(query, limit, *values)
        return [row[0] for row in rows]
