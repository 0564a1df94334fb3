"""Jobs and claims for tests that need no store."""

from collections.abc import Iterable
from itertools import count
from typing import Any

from msgspec.structs import replace

from stoker.domain.job import Job, JobSpec, new_job
from stoker.domain.job_batch import batch_of
from stoker.domain.placement import Placed, WorkerView
from stoker.domain.retry import Claim, claim_of
from stoker.store.outcomes import Completions
from stoker.store.submissions import Accepted, IdempotencyKey, Submission
from tests.support.clock import START_US

_numbers = count(1)


def a_job(**fields: Any) -> Job:
    """A queued job with the next sequence number; any field can be set."""
    number = next(_numbers)
    plain = new_job(
        JobSpec(), id=f"job-{number}", now=START_US, run_at=START_US, max_attempts=4, order="lowest_first"
    )
    return replace(plain, **{"seq": number, "lane_id": 1, **fields})


def a_claim(**fields: Any) -> Claim:
    """The claim of a job that runs in session `w1`."""
    running = a_job(status="running", claim_id=1, attempt=1, worker_id="w1", claimed_at=START_US)
    return replace(claim_of(replace(running, threads_granted=1)), **fields)


def a_submission(job: Job, key: IdempotencyKey | None = None) -> Submission:
    return Submission(batch_of(job), key)


def accepted(job: Job, repeated: bool = False) -> Accepted:
    return Accepted(batch_of(job), repeated)


def jobs_of(grants: Iterable[Placed]) -> list[Job]:
    """The jobs that were granted, in order."""
    return [job for grant in grants for job in grant.batch]


def completions(
    claim: Claim,
    *,
    started_at: int | None = None,
    finished_at: int | None = None,
    cpu_us: int | None = None,
    peak_memory_kb: int | None = None,
    result: bytes = b'"done"',
) -> Completions:
    """A claim that completed its job."""
    return Completions(
        claim,
        [claim.id],
        [claim.seq],
        [claim.created_at],
        None if started_at is None else [started_at],
        [claim.claimed_at if finished_at is None else finished_at],
        [cpu_us],
        [peak_memory_kb],
        [result],
    )


def a_worker(session_id: str = "w1", threads: int = 4, free: int | None = None, **fields: Any) -> WorkerView:
    plain = WorkerView(
        session_id, threads, threads if free is None else free, 0, frozenset({"echo"}), None, {}
    )
    return replace(plain, **fields)
