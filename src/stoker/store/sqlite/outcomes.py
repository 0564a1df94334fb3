"""Reports of workers: the steps of a transaction that start and end attempts."""

from collections.abc import Sequence
from itertools import chain

from stoker.domain.job import Job
from stoker.domain.keeping import leaves_something
from stoker.domain.lifecycle import FINAL, Status
from stoker.domain.retry import Claim, Outcome, after_attempt
from stoker.domain.unique import key_of
from stoker.store.outcomes import CompletionRow, Completions, Finish, Start, attempt_row, stale_ids
from stoker.store.sqlite.rows import Q
from stoker.store.sqlite.state import ROWS_PER_STATEMENT, SqliteTransactionState


class SqliteOutcomes(SqliteTransactionState):
    """Writes what workers report: starts, completions and other ends of attempts, each fenced by its claim."""

    def started(self, calls: list[Sequence[Start]]) -> list[None]:
        rows = [(start.claim.seq, start.claim.claim_id, start.started_at) for call in calls for start in call]
        self._db.executemany(Q["start_job"], rows)
        return [None] * len(calls)

    def finish(self, calls: list[Sequence[Finish]]) -> list[list[Status | None]]:
        return [[self._end_attempt(item.claim, item.outcome) for item in call] for call in calls]

    def complete(self, calls: list[Sequence[Completions]]) -> list[set[tuple[str, int]]]:
        stale = self._complete([done for call in calls for done in call])
        return [stale_ids(call, stale) for call in calls]

    def _complete(self, all_done: list[Completions]) -> set[tuple[int, int]]:
        """Write many completions. Return the (seq, claim) pairs of those that are stale."""
        for done in all_done:
            self._count(done.claim, "running", "completed", len(done))
            self._memory.completed_to = max(self._memory.completed_to, max(done.seqs, default=0))
        rows = list(chain.from_iterable([done.rows() for done in all_done]))
        refused: set[tuple[int, int]] = set()
        written: set[tuple[int, int]] = set()
        leaving = any(done.claim.extras is not None for done in all_done)
        for first in range(0, len(rows), ROWS_PER_STATEMENT):
            chunk = rows[first : first + ROWS_PER_STATEMENT]
            if self._all_written(chunk):
                if leaving:
                    written.update((row[0], row[1]) for row in chunk)
            else:  # one of these completions is stale: find out which, one by one
                claims = list(chain.from_iterable([[done.claim] * len(done) for done in all_done]))
                refused |= self._complete_singly(chunk, claims[first : first + ROWS_PER_STATEMENT], written)
        for done in all_done:
            if done.claim.extras is not None:
                key, claim_id = key_of(done.claim.extras), done.claim.claim_id
                ended = zip(done.ids, done.seqs, strict=True)
                self._unique.free((key, id) for id, seq in ended if (seq, claim_id) not in refused)
                if leaves_something(done.claim.extras):
                    self._left_behind += [seq for seq in done.seqs if (seq, claim_id) in written]
        return refused

    def _all_written(self, rows: list[CompletionRow]) -> bool:
        """Write these completions; False, and nothing is written, if one of them is stale."""
        if len(rows) == 1:
            return self._write_rows(Q["complete_jobs"], rows) == 1
        self._db.execute("SAVEPOINT completions")
        complete = self._write_rows(Q["complete_jobs"], rows) == len(rows)
        if not complete:
            self._db.execute("ROLLBACK TO completions")
        self._db.execute("RELEASE completions")
        return complete

    def _complete_singly(
        self, rows: list[CompletionRow], claims: list[Claim], written: set[tuple[int, int]]
    ) -> set[tuple[int, int]]:
        """Write completions one by one and note in `written` which were; return those that are stale. `claims` are those
        of the rows' batches."""
        refused: set[tuple[int, int]] = set()
        for row, claim in zip(rows, claims, strict=True):
            seq, claim_id = row[:2]
            if self._write_rows(Q["complete_jobs"], [row]):
                written.add((seq, claim_id))
            else:
                self._count(claim, "running", "completed", -1)  # it was counted with the others
                if not self._same_end_again(seq, claim_id, "completed"):
                    refused.add((seq, claim_id))
        return refused

    def _same_end_again(self, seq: int, claim_id: int, status: Status) -> bool:
        """Return whether this claim already ended the job this way: then the report was sent twice and is not stale."""
        job = self._light_by_seq(seq)
        return job is not None and job.claim_id == claim_id and job.status == status

    def _end_attempt(self, claim: Claim, outcome: Outcome) -> Status | None:
        """Write the end of an attempt that did not complete its job. Return the job's status, or None for a stale claim."""
        job = self._light_by_seq(claim.seq)
        if job is None or job.claim_id != claim.claim_id or job.status != "running":
            return self._repeated_end(job, claim, outcome)
        ended = after_attempt(job, outcome, self._now)
        written = self._changed(
            Q["end_attempt"],
            ended.seq,
            ended.claim_id,
            ended.status,
            ended.attempt,
            ended.crashes,
            ended.run_at,
            ended.started_at,
            ended.completed_at,
            ended.worker_id,
            ended.threads_granted,
            ended.claimed_at,
            ended.cpu_us,
            ended.peak_memory_kb,
            ended.error,
            ended.fingerprint,
            ended.extras,
        )
        if not written:
            return None
        self._db.execute(Q["insert_attempt"], attempt_row(job, outcome, ended.status, self._now))
        self._count(job, "running", ended.status)
        if ended.status == "queued":
            self._woken.add(job.lane_id)
        if job.extras is not None:
            self._limits.note(ended)
            if ended.status in FINAL:
                self._unique.free([(key_of(job.extras), job.id)])
                if leaves_something(job.extras):
                    self._left_behind.append(job.seq)
        return ended.status

    def _repeated_end(self, job: Job | None, claim: Claim, outcome: Outcome) -> Status | None:
        """Return the status that was answered before, if this attempt already ended this way; None for a stale claim."""
        if job is None or job.claim_id != claim.claim_id:
            return None
        ends = self._rows(Q["attempt_end"], claim.seq, claim.claim_id)
        if not ends or ends[0][0] != outcome.kind:
            return None
        status: Status = ends[0][1]
        return status
