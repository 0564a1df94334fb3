"""Claiming jobs: the step of a transaction that gives jobs to workers."""

from collections.abc import Iterable, Sequence
from typing import Any

from stoker.domain import byte_bounds
from stoker.domain.job import Job
from stoker.domain.job_batch import JobBatch, batch_of, batches_of
from stoker.domain.placement import Lane, Placed, Plan, WorkerView
from stoker.domain.time_limits import ended as ended_by_time
from stoker.domain.time_limits import passed
from stoker.domain.unique import freed_by_claim
from stoker.store.claims import (
    ClaimRequest,
    Granted,
    candidates_wanted,
    claimed,
    plan_for,
    serving,
    split_by_time,
)
from stoker.store.first_in_line import one_more, without_room
from stoker.store.postgres.rows import SUMMARY_Q, Q, job_of
from stoker.store.postgres.state import PostgresTransactionState, changed, columns


class PostgresClaims(PostgresTransactionState):
    """Plans queued jobs onto the capacity of workers and marks them running; ends waiting jobs whose time is up."""

    async def claim(self, calls: list[ClaimRequest]) -> list[Granted]:
        self._memory.begin_claim()
        await self._memory.look_around(self._link.link)
        return [await self._claim(call) for call in calls]

    async def _claim(self, request: ClaimRequest) -> Granted:
        able = serving(self._waiting_lanes(), request)
        self._alone = self._fits_one_statement() and self._memory.active.isdisjoint(able)
        if not self._alone:
            able = await self._unpaused(able) if able else {}
        if not able:
            return Granted([], request.cursor)
        fresh, _ = split_by_time(
            [batch for batch in self._fresh if batch.template.lane_id in able], self._now
        )
        fresh_seqs = {seq for batch in fresh for seq in batch.seqs}
        rooms = self._rooms(able, request)
        found = await self._stored_candidates(rooms)
        late = [job for job in found if job.extras is not None and passed(job, self._now) is not None]
        ended = await self._end_by_time(late) if late else []
        candidates = batches_of([job for job in found if job not in late] if late else found)
        candidates += split_by_time(await self._first_of(without_room(rooms)), self._now)[0]
        planned = plan_for(candidates + fresh, able, request, self._now)
        chosen, more = await self._within_bytes(planned, request)
        grants = [claimed(placed, self._now) for placed in chosen.placed]
        self._unique.free(
            (freed_by_claim(placed.batch.template), placed.batch.template.id)
            for placed in chosen.placed
            if placed.batch.template.extras is not None
        )
        waiting = [batch for batch in self._fresh if batch.template.seq not in fresh_seqs]
        self._fresh = waiting + [batch for batch in chosen.rest if batch.template.seq in fresh_seqs]
        self._settled += [grant.batch for grant in grants if grant.batch.template.seq in fresh_seqs]
        await self._claim_stored([grant for grant in grants if grant.batch.template.seq not in fresh_seqs])
        return Granted(grants, chosen.cursor, more or planned.cut or bool(ended), ended)

    async def _end_by_time(self, jobs: Iterable[Job]) -> list[Job]:
        """End those of these locked jobs that wait and whose expiry or deadline has passed; as they are now."""
        events = [(job, event) for job in jobs if (event := passed(job, self._now)) is not None]
        over = [ended_by_time(job, event, self._now) for job, event in events]
        if over:
            await self._into_history(over)
        for (job, _), after in zip(events, over, strict=True):
            self._count(job, job.status, after.status)
            self._read.add(job.lane_id)
        return over

    async def end_overdue(self, calls: list[int]) -> list[list[Job]]:
        return [await self._end_overdue(call) for call in calls]

    async def _end_overdue(self, limit: int) -> list[Job]:
        due = await self._limits.due(self._now, limit)
        if not due:
            return []
        jobs = await self._jobs("late_jobs", [seq for seq, _ in due], light=True)
        ended = await self._end_by_time(jobs)
        over = {job.seq for job in ended}
        self._limits.note(job for job in jobs if job.seq not in over)
        self._limits.drop(due, jobs)
        return ended

    async def _within_bytes(self, planned: Plan, request: ClaimRequest) -> tuple[Plan, bool]:
        """Cut a plan to its byte bounds and read the large payloads of what is left."""
        large = byte_bounds.unread(planned)
        sizes = await self._by_seqs("payload_sizes", large) if large else {}
        chosen, more = byte_bounds.within(planned, request.workers, sizes, request.bounds)
        if large:
            payloads = await self._by_seqs("large_payloads", byte_bounds.unread(chosen))
            chosen = byte_bounds.filled(chosen, payloads)
        return chosen, more

    async def _by_seqs(self, query: str, seqs: Sequence[int]) -> dict[int, Any]:
        return {row[0]: row[1] for row in await self._link.fetch(Q[query], seqs)} if seqs else {}

    def _waiting_lanes(self) -> list[tuple[int, Lane]]:
        ids = self._memory.active | self._woken | {batch.template.lane_id for batch in self._fresh}
        return [(id, self._memory.lane_of[id]) for id in ids]

    async def _unpaused(self, able: dict[int, list[WorkerView]]) -> dict[int, list[WorkerView]]:
        """Read in each transaction that claims: a pause that was confirmed a moment ago, anywhere, counts here."""
        paused = {row[0] for row in await self._link.fetch(Q["paused_queues"])}
        if not paused:
            return able
        lane_of = self._memory.lane_of
        return {id: workers for id, workers in able.items() if lane_of[id].queue not in paused}

    def _rooms(self, able: dict[int, list[WorkerView]], request: ClaimRequest) -> dict[int, int]:
        lane_of = self._memory.lane_of
        return {id: candidates_wanted(lane_of[id], workers, request.run_us) for id, workers in able.items()}

    async def _stored_candidates(self, rooms: dict[int, int]) -> list[Job]:
        stored, more = self._memory.active | self._woken, one_more(rooms)
        rooms = {id: room + more for id, room in rooms.items() if room and id in stored}
        if not rooms:
            return []
        self._read.update(rooms)
        found = await self._jobs("claim_candidates", list(rooms), list(rooms.values()), light=True)
        self._emptied |= rooms.keys() - {job.lane_id for job in found}
        return found

    async def _first_of(self, lanes: list[int]) -> list[JobBatch]:
        """Return the first job of each of these lanes, from which nothing can be claimed now. It is not locked: another
        coordinator may have room for it."""
        stored = self._memory.active | self._woken
        wanted = [id for id in lanes if id in stored]
        known = self._memory.first_in_line.recall(set(wanted) - self._woken, self._now)
        missing = [id for id in wanted if id not in known]
        if missing:
            rows = await self._link.fetch(SUMMARY_Q["first_in_lanes"], missing)
            lane_of = await self._memory.lanes_of(self._link, rows)
            found = {job.lane_id: batch_of(job) for job in (job_of(row, lane_of) for row in rows)}
            self._firsts |= {id: found.get(id) for id in missing}
            known |= {id: found.get(id) for id in missing}
        return [batch for batch in known.values() if batch is not None]

    async def _claim_stored(self, grants: list[Placed]) -> None:
        if not grants:
            return
        rows = [
            (seq, grant.session_id, grant.batch.template.threads_granted)
            for grant in grants
            for seq in grant.batch.seqs
        ]
        answer = await self._link.execute(Q["claim_jobs"], *columns(rows), self._now)
        if changed(answer) != len(rows):  # impossible: the rows are locked; nothing may be handed out then
            raise RuntimeError(f"claimed {changed(answer)} of {len(rows)} planned jobs")
        for grant in grants:
            self._count(grant.batch.template, "queued", "running", len(grant.batch))
