"""A job after a client changed it: cancelled, or replayed."""

from msgspec.structs import replace

from stoker.domain.extras import rested
from stoker.domain.job import Job
from stoker.domain.lifecycle import waiting
from stoker.domain.time_limits import kept_by_replay


def cancelled(job: Job, now: int) -> Job:
    """A job after it was told to be cancelled."""
    if job.status == "running":
        return replace(job, cancel_requested_at=job.cancel_requested_at or now)
    return replace(job, status="cancelled", cancel_requested_at=now, completed_at=now)


def replayed(job: Job, now: int) -> Job:
    """Return a failed or cancelled job as it waits again: with fresh attempts, but the claim number goes on growing. A job
    that was cancelled before it was due, and so never claimed, keeps its due time."""
    run_at = max(job.run_at, now) if job.claim_id == 0 else now
    return replace(
        job,
        status=waiting(job.pending_deps, run_at, now),
        attempt=0,
        crashes=0,
        run_at=run_at,
        worker_id=None,
        claimed_at=None,
        started_at=None,
        completed_at=None,
        cancel_requested_at=None,
        discarded_at=None,
        threads_granted=None,
        cpu_us=None,
        peak_memory_kb=None,
        error=None,
        result=None,
        fingerprint=None,
        extras=rested(kept_by_replay(job.extras, now)),
    )
