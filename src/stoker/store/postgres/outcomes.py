"""Reports of workers: the steps of a transaction that start and end attempts."""

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from stoker.domain.job import Job
from stoker.domain.keeping import leaves_something
from stoker.domain.lifecycle import FINAL, Status
from stoker.domain.retry import Outcome, after_attempt
from stoker.domain.unique import key_of
from stoker.store.outcomes import Completions, Finish, Start, attempt_row, stale_ids
from stoker.store.postgres.rows import COMPLETE_MANY, Q, complete_few
from stoker.store.postgres.state import PostgresTransactionState, columns

FEW_REPORTS: Final = 16
"""As many completions are written as values, for which a statement of this size is planned once; more of them as arrays."""
_SEQ: Final = itemgetter(0)


Answers = dict[tuple[int, int, str], Status]


class PostgresOutcomes(PostgresTransactionState):
    """Writes what workers report: starts, completions and other ends of attempts, each fenced by its claim."""

    async def started(self, calls: list[Sequence[Start]]) -> list[None]:
        rows = [(start.claim.seq, start.claim.claim_id, start.started_at) for call in calls for start in call]
        if rows:
            await self._link.execute(Q["start_jobs"], *columns(sorted(rows)))
        return [None] * len(calls)

    async def finish(self, calls: list[Sequence[Finish]]) -> list[list[Status | None]]:
        items = [item for call in calls for item in call]
        answers = await self._end_attempts(items)
        return [
            [answers.get((item.claim.seq, item.claim.claim_id, item.outcome.kind)) for item in call]
            for call in calls
        ]

    async def complete(self, calls: list[Sequence[Completions]]) -> list[set[tuple[str, int]]]:
        stale = await self._complete([done for call in calls for done in call])
        return [stale_ids(call, stale) for call in calls]

    async def _complete(self, all_done: list[Completions]) -> set[tuple[int, int]]:
        """Write many completions; the (seq, claim) pairs that were refused."""
        rows = sorted(chain.from_iterable([done.rows() for done in all_done]), key=_SEQ)
        if not rows:
            return set()
        seqs, claim_ids, counted = await self._move_completed(all_done, rows)
        if any(leaves_something(done.claim.extras) for done in all_done):
            told = {seq for done in all_done if leaves_something(done.claim.extras) for seq in done.seqs}
            self._left_behind += [seq for seq in seqs if seq in told]
        if len(seqs) == len(rows):
            for done in all_done:
                if not counted:
                    self._count(done.claim, "running", "completed", len(done))
                if done.claim.extras is not None:
                    self._unique.free((key_of(done.claim.extras), id) for id in done.ids)
            return set()
        written = set(zip(seqs, claim_ids, strict=True))
        claims = {(seq, done.claim.claim_id): done.claim for done in all_done for seq in done.seqs}
        for key in () if counted else written:
            self._count(claims[key], "running", "completed")
        for done in all_done:
            if done.claim.extras is not None:
                ended = zip(done.ids, done.seqs, strict=True)
                self._unique.free(
                    (key_of(done.claim.extras), id)
                    for id, seq in ended
                    if (seq, done.claim.claim_id) in written
                )
        before = await self._completed_before(
            [seq for seq, claim_id in claims if (seq, claim_id) not in written]
        )
        return claims.keys() - written - before

    async def _move_completed(
        self, all_done: list[Completions], rows: list[tuple[Any, ...]]
    ) -> tuple[list[int], list[int], bool]:
        """Move completed jobs to the history; the numbers and claims of those that were, and whether they are counted."""
        counted = self._only_completes and all(done.claim.extras is None for done in all_done)
        if not counted:
            (found,) = await self._link.fetch(Q["complete_jobs"], *columns(rows))
        elif len(rows) <= FEW_REPORTS:
            values = chain.from_iterable(rows)
            (found,) = await self._link.alone(complete_few(len(rows)), self._shard, *values)
        else:
            (found,) = await self._link.alone(COMPLETE_MANY, self._shard, *columns(rows))
        return found[0] or [], found[1] or [], counted

    async def _completed_before(self, seqs: list[int]) -> set[tuple[int, int]]:
        """Reports that were sent twice: their claims completed these jobs already. Those not among them are stale."""
        jobs = await self._jobs("list_jobs", seqs, light=True) if seqs else []
        return {(job.seq, job.claim_id) for job in jobs if job.status == "completed"}

    async def _end_attempts(self, items: list[Finish]) -> Answers:
        """End attempts that did not complete their jobs."""
        if not items:
            return {}
        seqs = [item.claim.seq for item in items]
        jobs = {job.seq: job for job in await self._jobs("jobs_by_seq", seqs, light=True)}
        answers: Answers = {}
        late: list[Finish] = []
        ended: dict[int, tuple[Job, Job, Outcome]] = {}
        for item in items:
            job = jobs.get(item.claim.seq)
            if job is None or job.claim_id != item.claim.claim_id or job.status != "running":
                late.append(item)
            elif job.seq not in ended:
                after = after_attempt(job, item.outcome, self._now)
                ended[job.seq] = (job, after, item.outcome)
                answers[job.seq, job.claim_id, item.outcome.kind] = after.status
        await self._write_ends(list(ended.values()))
        if late:
            answers |= await self._ended_before(late)
        return answers

    async def _write_ends(self, ends: list[tuple[Job, Job, Outcome]]) -> None:
        """Store (job before, job after, outcome) for attempts whose jobs are locked."""
        if not ends:
            return
        again = [after for _, after, _ in ends if after.status not in FINAL]
        over = [after for _, after, _ in ends if after.status in FINAL]
        if again:
            rows = [
                (j.seq, j.claim_id, j.status, j.attempt, j.crashes, j.run_at, j.error, j.extras)
                for j in again
            ]
            await self._link.execute(Q["requeue_jobs"], *columns(rows))
        if over:
            await self._into_history(over)
        rows = [attempt_row(job, outcome, after.status, self._now) for job, after, outcome in ends]
        await self._link.execute(Q["insert_attempts"], *columns(rows))
        for job, after, _ in ends:
            self._count(job, "running", after.status)
        self._woken |= {after.lane_id for after in again if after.status == "queued"}
        self._limits.note(again)

    async def _ended_before(self, items: list[Finish]) -> Answers:
        """Return the answers that were given before, where an attempt ended this way and its job was not claimed again
        since."""
        rows = [(item.claim.seq, item.claim.claim_id) for item in items]
        ends = await self._link.fetch(Q["attempt_ends"], *columns(rows))
        seqs = [row[0] for row in ends]
        now = await self._jobs("list_jobs", seqs, light=True) if seqs else []
        current = {(job.seq, job.claim_id) for job in now}
        return {
            (seq, claim_id, kind): status
            for seq, claim_id, kind, status in ends
            if (seq, claim_id) in current
        }
