"""Claiming jobs: the step of a transaction that gives jobs to workers."""

from collections.abc import Sequence
from typing import Any, Final

from stoker.domain import byte_bounds
from stoker.domain.job import Job
from stoker.domain.job_batch import JobBatch, batch_of, batches_of
from stoker.domain.keeping import leaves_something
from stoker.domain.placement import Lane, Placed, Plan, WorkerView
from stoker.domain.time_limits import ended as ended_by_time
from stoker.domain.time_limits import passed
from stoker.domain.unique import freed_by_claim, key_of
from stoker.store.claims import (
    ClaimRequest,
    Granted,
    candidates_wanted,
    claimed,
    plan_for,
    serving,
    split_by_time,
    unpaused,
)
from stoker.store.first_in_line import one_more, without_room
from stoker.store.sqlite.rows import INLINE_LIST, SUMMARY_LIST, Q
from stoker.store.sqlite.state import ROWS_PER_STATEMENT, SqliteTransactionState, for_rows

_CANDIDATES: Final = Q["claim_candidates"].format(columns=INLINE_LIST)
_FIRST: Final = Q["claim_candidates"].format(columns=SUMMARY_LIST)


class SqliteClaims(SqliteTransactionState):
    """Plans queued jobs onto the capacity of workers and marks them running; ends waiting jobs whose time is up."""

    def claim(self, calls: list[ClaimRequest]) -> list[Granted]:
        return [self._claim(call) for call in calls]

    def _claim(self, request: ClaimRequest) -> Granted:
        able = serving(self._waiting_lanes(), request)
        if not able:
            return Granted([], request.cursor)
        candidates, ended, late = self._able_to_start(self._candidates(able, request))
        planned = plan_for(candidates, able, request, self._now)
        chosen, more = self._within_bytes(planned, request)
        first_new = self._memory.next_seq
        stored: list[tuple[int, str, int, int]] = []
        grants: list[Placed] = []
        for placed in chosen.placed:
            grant = claimed(placed, self._now)
            batch = grant.batch
            grants.append(grant)
            if batch.template.extras is not None:
                self._unique.free([(freed_by_claim(placed.batch.template), batch.template.id)])
            if batch.template.seq >= first_new:
                self._settled.append(batch)
            else:
                stored += [(seq, placed.session_id, placed.threads, self._now) for seq in batch.seqs]
                self._count(batch.template, "queued", "running", len(batch))
        waiting = [batch for batch in self._fresh if batch.template.lane_id not in able] + late
        self._fresh = waiting + [batch for batch in chosen.rest if batch.template.seq >= first_new]
        changed = self._write_rows(Q["claim_jobs"], stored)
        if changed != len(
            stored
        ):  # impossible inside one transaction; if it happens, nothing may be handed out
            raise RuntimeError(f"claimed {changed} of {len(stored)} planned jobs")
        return Granted(grants, chosen.cursor, more or planned.cut or bool(ended), ended)

    def _able_to_start(self, candidates: list[JobBatch]) -> tuple[list[JobBatch], list[Job], list[JobBatch]]:
        """Separate candidates that may start from those whose expiry or deadline has passed. Of the latter, stored jobs are
        ended here; jobs inserted in this transaction are left to upkeep. Return (able to start, ended, left)."""
        able, late = split_by_time(candidates, self._now)
        if not late:
            return able, [], []
        first_new = self._memory.next_seq
        stored = [job for batch in late if batch.template.seq < first_new for job in batch]
        ended = [after for job in stored if (after := self._end_by_time(job)) is not None]
        return able, ended, [batch for batch in late if batch.template.seq >= first_new]

    def _end_by_time(self, job: Job) -> Job | None:
        """End a waiting job whose expiry or deadline has passed. Return None if its time is not up, or it was
        claimed or ended since it was read."""
        event = passed(job, self._now)
        if event is None:
            return None
        after = ended_by_time(job, event, self._now)
        if not self._changed(
            Q["end_waiting"],
            job.seq,
            job.claim_id,
            after.status,
            after.completed_at,
            after.error,
            after.fingerprint,
        ):
            return None
        self._count(job, job.status, after.status)
        self._read.add(job.lane_id)
        self._unique.free([(key_of(job.extras), job.id)])
        if leaves_something(job.extras):
            self._left_behind.append(job.seq)
        return after

    def end_overdue(self, calls: list[int]) -> list[list[Job]]:
        return [self._end_overdue(call) for call in calls]

    def _end_overdue(self, limit: int) -> list[Job]:
        ended: list[Job] = []
        for seq in self._limits.due(self._now, limit):
            job = self._light_by_seq(seq)
            after = None if job is None else self._end_by_time(job)
            if after is not None:
                ended.append(after)
            elif job is not None:
                self._limits.note(job)
        return ended

    def _within_bytes(self, planned: Plan, request: ClaimRequest) -> tuple[Plan, bool]:
        """Cut a plan to its byte bounds and read the large payloads of what is left."""
        large = byte_bounds.unread(planned)
        sizes = dict(self._by_seqs(Q["payload_sizes"], large)) if large else {}
        chosen, more = byte_bounds.within(planned, request.workers, sizes, request.bounds)
        if large:
            payloads = self._by_seqs(Q["large_payloads"], byte_bounds.unread(chosen))
            chosen = byte_bounds.filled(chosen, dict(payloads))
        return chosen, more

    def _by_seqs(self, statement: str, seqs: Sequence[int]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for first in range(0, len(seqs), ROWS_PER_STATEMENT):
            chunk = seqs[first : first + ROWS_PER_STATEMENT]
            rows += self._rows(for_rows(statement, len(chunk), 1), *chunk)
        return rows

    def _waiting_lanes(self) -> list[tuple[int, Lane]]:
        ids = self._memory.active | self._woken | {batch.template.lane_id for batch in self._fresh}
        lanes = [(id, self._lane_named(id)) for id in ids]
        return unpaused(lanes, self._paused) if self._paused else lanes

    def _lane_named(self, id: int) -> Lane:
        lane = self._memory.lane_of.get(id)
        return lane or next(lane for lane, number in self._lanes.items() if number == id)

    def _candidates(self, able: dict[int, list[WorkerView]], request: ClaimRequest) -> list[JobBatch]:
        """Return the first jobs of the lanes, from the table and from this transaction."""
        found: list[JobBatch] = []
        rooms = {
            id: candidates_wanted(self._lane_named(id), workers, request.run_us)
            for id, workers in able.items()
        }
        more = one_more(rooms)
        for id, room in rooms.items():
            if room:
                found += batches_of(self._stored_candidates(id, room + more))
                self._read.add(id)
        found += self._first_of(without_room(rooms))
        found += [batch for batch in self._fresh if batch.template.lane_id in able]
        return found

    def _first_of(self, lanes: list[int]) -> list[JobBatch]:
        """Return the first job of each of these lanes. No worker has room for it now, but it may close the prefetch to
        others."""
        if not lanes:
            return []
        known = self._memory.first_in_line.recall(lanes, self._now)
        for id in lanes:
            if id not in known or id in self._woken:
                candidates = self._stored_candidates(id, 1, _FIRST)
                known[id] = self._firsts[id] = batch_of(candidates[0]) if candidates else None
        return [batch for batch in known.values() if batch is not None]

    def _stored_candidates(self, lane_id: int, room: int, statement: str = _CANDIDATES) -> list[Job]:
        if lane_id not in self._memory.active and lane_id not in self._woken:
            return []
        candidates = [Job(*row) for row in self._db.execute(statement, (lane_id, room))]
        if not candidates:
            self._emptied.add(lane_id)
        return candidates
