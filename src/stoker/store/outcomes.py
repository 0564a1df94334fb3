"""What workers report of attempts, as the stores take it: starts, ends and completions."""

from collections.abc import Collection, Iterable, Iterator
from itertools import compress, repeat
from typing import Any

import msgspec
from msgspec.structs import astuple

from stoker.domain.job import Job
from stoker.domain.lifecycle import Status
from stoker.domain.retry import UNCHARGED, Claim, Outcome, RetryPolicy, decide, problem


class Start(msgspec.Struct, frozen=True):
    claim: Claim
    started_at: int


class Finish(msgspec.Struct, frozen=True, gc=False):
    claim: Claim
    outcome: Outcome


class Completions(msgspec.Struct, frozen=True, gc=False):
    """Completed attempts at jobs of one batch, in columns. `claim` is the claim of one of them; the others share its claim
    number and all that the columns do not hold."""

    claim: Claim
    ids: list[str]
    seqs: list[int]
    created: list[int]
    started: list[int] | None
    """None where it is not known."""
    finished: list[int]
    cpu_us: list[int | None]
    peak_memory_kb: list[int | None]
    results: list[bytes]

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self) -> Iterator["CompletionRow"]:
        """Return one row for each job."""
        return zip(
            self.seqs,
            repeat(self.claim.claim_id),
            self.started or repeat(None),
            self.finished,
            self.cpu_us,
            self.peak_memory_kb,
            self.results,
            strict=False,
        )

    def without(self, ids: Collection[str]) -> "Completions":
        """Return a copy without these ids."""
        kept = [id not in ids for id in self.ids]
        columns = [
            list(compress(column, kept)) if isinstance(column, list) else column
            for column in astuple(self)[1:]
        ]
        return Completions(self.claim, *columns)


CompletionRow = tuple[int, int, int | None, int, int | None, int | None, bytes]
"""Number of the job, claim, started at, finished at, CPU time in microseconds, peak memory in kB, result."""


def stale_ids(all_done: Iterable[Completions], stale: set[tuple[int, int]]) -> set[tuple[str, int]]:
    """Return (job id, claim id) of the completions whose (number, claim id) is in `stale`."""
    if not stale:
        return set()
    return {
        (id, done.claim.claim_id)
        for done in all_done
        for id, seq in zip(done.ids, done.seqs, strict=True)
        if (seq, done.claim.claim_id) in stale
    }


def attempt_row(job: Job, outcome: Outcome, status: Status, now: int) -> tuple[Any, ...]:
    """Return the row of an attempt that did not complete its job; `status` is the status that the job has after it."""
    return (
        job.seq,
        job.claim_id,
        job.attempt,
        job.worker_id,
        job.claimed_at,
        outcome.started_at or job.started_at,
        outcome.finished_at or now,
        outcome.kind,
        outcome.kind not in UNCHARGED,
        outcome.error,
        outcome.delay_us if status == "scheduled" else None,
        outcome.cpu_us,
        outcome.peak_memory_kb,
        status,
    )


def lost_outcome(claim: Claim, policy: RetryPolicy, now: int) -> Outcome:
    """Return the outcome of a claim whose session fell silent."""
    event, _ = decide("lost", claim, policy, 0.0)
    error = problem("lost", f"worker session {claim.session_id} fell silent while it ran this job")
    return Outcome(event, "lost", error=error, finished_at=now)
