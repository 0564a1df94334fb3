"""What every store works out in the same way, whatever it is written in."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from stoker.domain.job import Job
from stoker.domain.lifecycle import Status
from stoker.domain.placement import Lane, Placed, Plan, WorkerView, capacity, plan, serves
from stoker.domain.retry import Claim, Outcome, RetryPolicy, decide, problem
from stoker.store.base import Attempt, ClaimRequest, Count, JobFilter, Session

HEADS_MAX: Final = 2_000


def claimed(placed: Placed, now: int) -> Job:
    """The job as it is once this placement is written."""
    job = placed.job
    return replace(
        job,
        status="running",
        claim_id=job.claim_id + 1,
        attempt=job.attempt + 1,
        worker_id=placed.session_id,
        threads_granted=placed.threads,
        claimed_at=now,
        started_at=None,
    )


def running_order(job: Job) -> tuple[int, int]:
    return job.rank, job.seq


def serving(lanes: Iterable[tuple[int, Lane]], workers: Sequence[WorkerView]) -> dict[int, list[WorkerView]]:
    """Of these lanes, those that somebody who is present can serve, each with everybody who could."""
    found: dict[int, list[WorkerView]] = {}
    for id, lane in lanes:
        able = [worker for worker in workers if serves(worker, lane)]
        if any(worker.present for worker in able):
            found[id] = able
    return found


def unpaused(lanes: Iterable[tuple[int, Lane]], paused: Mapping[str, int]) -> list[tuple[int, Lane]]:
    """Of these lanes, those whose queue is not paused."""
    return [(id, lane) for id, lane in lanes if lane.queue not in paused]


def heads_wanted(lane: Lane, workers: Sequence[WorkerView], run_us: Mapping[str, int]) -> int:
    """How many jobs from the head of a lane a plan can use. One of a large demand is read even when nothing is free: it may
    have earned a reservation."""
    room = min(capacity(workers, run_us.get(lane.type)), HEADS_MAX)
    return max(room, 1 if lane.thread_demand > 1 else 0)


def plan_for(
    candidates: list[Job], able: dict[int, list[WorkerView]], request: ClaimRequest, now: int
) -> Plan:
    """The plan for these candidates, in running order."""
    candidates.sort(key=running_order)
    return plan(
        candidates, able, now=now, policy=request.policy, cursor=request.cursor, run_us=request.run_us
    )


def attempt_row(job: Job, outcome: Outcome, status: Status, now: int) -> tuple[Any, ...]:
    """What is recorded of an attempt that did not complete its job; `status` is what the job became by it."""
    return (
        job.seq,
        job.claim_id,
        job.attempt,
        job.worker_id,
        job.claimed_at,
        outcome.started_at or job.started_at,
        outcome.finished_at or now,
        outcome.kind,
        outcome.kind != "handed_back",
        outcome.error,
        outcome.delay_us if status == "scheduled" else None,
        outcome.cpu_us,
        outcome.peak_memory_kb,
        status,
    )


def lost_outcome(claim: Claim, policy: RetryPolicy, now: int) -> Outcome:
    """The end of a claim whose session fell silent."""
    event, _ = decide("lost", claim, policy, 0.0)
    error = problem("lost", f"worker session {claim.session_id} fell silent while it ran this job")
    return Outcome(event, "lost", error=error, finished_at=now)


def completion_row(claim: Claim, outcome: Outcome, now: int) -> tuple[Any, ...]:
    return (
        claim.seq,
        claim.claim_id,
        outcome.started_at,
        outcome.finished_at or now,
        outcome.cpu_us,
        outcome.peak_memory_kb,
        outcome.result,
    )


def replayed(job: Job, now: int) -> Job:
    """A failed or cancelled job as it stands in the queue again: fresh attempts, but the claim number goes on growing."""
    return replace(
        job,
        status="queued",
        attempt=0,
        crashes=0,
        run_at=now,
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
    )


def with_current(earlier: list[Attempt], job: Job) -> list[Attempt]:
    """The attempts that were recorded, and the one that lives on the job itself."""
    current = _current_attempt(job)
    if current is not None and all(attempt.claim_id != current.claim_id for attempt in earlier):
        return [*earlier, current]
    return earlier


def _current_attempt(job: Job) -> Attempt | None:
    """The attempt under way, or the one that completed or cancelled the job."""
    if job.claim_id == 0 or job.claimed_at is None:
        return None
    kind = job.status if job.status in ("completed", "cancelled") else None
    return Attempt(
        job.claim_id,
        job.attempt,
        job.worker_id,
        job.claimed_at,
        job.started_at,
        job.completed_at,
        kind,  # a final status here is also the kind of its attempt
        True,
        job.error,
        None,
        job.cpu_us,
        job.peak_memory_kb,
    )


def is_counted(filter: JobFilter) -> bool:
    """Whether the counters know how many jobs match."""
    return filter.priority is None and filter.name is None and not filter.dead_letters


def counted(counts: Iterable[Count], filter: JobFilter) -> int:
    return sum(
        count.count
        for count in counts
        if filter.status in (None, count.status)
        and filter.queue in (None, count.queue)
        and filter.type in (None, count.type)
    )


def session_texts(session: Session) -> tuple[str, str | None, str]:
    """Types, queues and labels as they are stored."""
    queues = None if session.queues is None else json_text(session.queues)
    return json_text(session.types), queues, json_text(session.labels)


def session_of(row: Iterable[Any]) -> Session:
    fields = list(row)
    fields[3] = msgspec.json.decode(fields[3], type=tuple[str, ...])
    fields[4] = None if fields[4] is None else msgspec.json.decode(fields[4], type=tuple[str, ...])
    fields[5] = msgspec.json.decode(fields[5], type=dict[str, str])
    return Session(*fields)


def json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()
