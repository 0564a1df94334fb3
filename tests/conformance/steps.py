"""The steps that the tests of stores are told in: submit, claim, report, look."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from stoker.clock import SECOND
from stoker.domain.job import Job, JobSpec, PriorityOrder, new_job
from stoker.domain.lifecycle import Status
from stoker.domain.placement import Policy, WorkerView
from stoker.domain.retry import Claim, Kind, Outcome, RetryPolicy, claim_of, decide, problem
from stoker.ids import new_id
from stoker.store.base import Store
from stoker.store.claims import ClaimRequest
from stoker.store.outcomes import Completions, Finish
from stoker.store.sessions import Session
from stoker.store.submissions import IdempotencyKey
from tests.support.jobs import a_submission, completions, jobs_of

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
SILENT = 10 * SECOND
"""The heartbeat timeout in these tests."""
STEADY = RetryPolicy(base=2.0, cap_seconds=300.0, jitter=0.0)


# ── submit ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def a_job(
    store: Store,
    *,
    order: PriorityOrder = "lowest_first",
    delay_us: int = 0,
    max_attempts: int = 4,
    **spec: Any,
) -> Job:
    now = store.now_us()
    return new_job(
        JobSpec(**spec), id=new_id(), now=now, run_at=now + delay_us, max_attempts=max_attempts, order=order
    )


async def submit(store: Store, *jobs: Job) -> list[Job]:
    return [accepted.job for accepted in await store.insert([a_submission(job) for job in jobs])]


async def submitted(store: Store, **fields: Any) -> Job:
    """One stored job."""
    (job,) = await submit(store, a_job(store, **fields))
    return job


async def blocked(store: Store, **fields: Any) -> Job:
    """A job that waits for another."""
    (job,) = await submit(store, replace(a_job(store, **fields), status="blocked", pending_deps=1))
    return job


def a_key(
    store: Store, name: str = "k", digest: bytes = b"body", *, client: str = "c", lives_us: int = HOUR
) -> IdempotencyKey:
    return IdempotencyKey(client, name, digest, store.now_us() + lives_us)


# ── claim ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def a_worker(
    session_id: str = "w1",
    *,
    threads: int = 4,
    free: int | None = None,
    prefetch_us: int = 0,
    types: tuple[str, ...] = ("echo",),
    queues: tuple[str, ...] | None = None,
    labels: Mapping[str, str] | None = None,
    any_but: frozenset[str] | None = None,
) -> WorkerView:
    return WorkerView(
        session_id,
        threads,
        threads if free is None else free,
        prefetch_us,
        frozenset(types),
        None if queues is None else frozenset(queues),
        labels or {},
        any_but=any_but,
    )


def a_request(
    *workers: WorkerView, run_us: Mapping[str, int] | None = None, policy: Policy = "round_robin"
) -> ClaimRequest:
    return ClaimRequest(list(workers), policy, 0, run_us or {})


async def claim(store: Store, *workers: WorkerView, run_us: Mapping[str, int] | None = None) -> list[Job]:
    """The jobs that these workers get, in order."""
    granted = await store.claim(a_request(*(workers or (a_worker(),)), run_us=run_us))
    return jobs_of(granted.grants)


async def claimed(store: Store, session_id: str = "w1", **fields: Any) -> Job:
    """One job, running."""
    job = await submitted(store, **fields)
    types, threads = (job.type,), job.thread_demand
    jobs = await claim(store, a_worker(session_id, threads=threads, types=types, labels=fields.get("labels")))
    (running,) = [found for found in jobs if found.id == job.id]
    return running


async def claim_again(store: Store, job: Job, session_id: str = "w1") -> Job:
    """The next attempt at a queued job."""
    jobs = await claim(store, a_worker(session_id, threads=100, types=(job.type,)))
    (running,) = [found for found in jobs if found.id == job.id]
    return running


# ── report ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def report(attempt: Job | Claim, kind: Kind = "completed", **outcome: Any) -> Finish:
    """How a running attempt ended, decided as a coordinator decides."""
    of = claim_of(attempt) if isinstance(attempt, Job) else attempt
    event, delay_us = decide(kind, of, STEADY, 0.0)
    if kind == "completed":
        outcome.setdefault("result", b'"done"')
    else:
        outcome.setdefault("error", problem(kind, "for a test"))
    return Finish(of, Outcome(event, kind, delay_us=delay_us, **outcome))


async def end(store: Store, attempt: Job | Claim, kind: Kind = "completed", **outcome: Any) -> Status | None:
    (status,) = await ends(store, [report(attempt, kind, **outcome)])
    return status


async def ends(store: Store, finishes: Sequence[Finish]) -> list[Status | None]:
    """What becomes of attempts that ended at the same moment, as a coordinator tells it to a store."""
    completed = [finish for finish in finishes if finish.outcome.event == "completed"]
    others = [finish for finish in finishes if finish.outcome.event != "completed"]
    completing = store.complete([_completion(finish, store.now_us()) for finish in completed])
    if others:
        stale, statuses = await asyncio.gather(completing, store.finish(others))
    else:
        stale, statuses = await completing, []
    answers = iter(statuses)
    return [
        _unless_stale(finish.claim, stale) if finish.outcome.event == "completed" else next(answers)
        for finish in finishes
    ]


def _completion(finish: Finish, now: int) -> Completions:
    outcome = finish.outcome
    return completions(
        finish.claim,
        started_at=outcome.started_at,
        finished_at=outcome.finished_at or now,
        cpu_us=outcome.cpu_us,
        peak_memory_kb=outcome.peak_memory_kb,
        result=outcome.result or b"null",
    )


def _unless_stale(claim: Claim, stale: set[tuple[str, int]]) -> Status | None:
    return None if (claim.id, claim.claim_id) in stale else "completed"


async def failed(store: Store, **fields: Any) -> Job:
    """A dead letter."""
    job = await claimed(store, **fields)
    assert await end(store, job, "invalid") == "failed"
    return await look(store, job)


# ── sessions ───────────────────────────────────────────────────────────────────────────────────────────────────────


def a_session(store: Store, id: str = "w1", **fields: Any) -> Session:
    now = store.now_us()
    plain = Session(id, f"name-{id}", 4, ("echo",), None, {}, "live", now, now)
    return replace(plain, **fields)


async def session_status(store: Store, id: str = "w1") -> str | None:
    return next((session.status for session in await store.sessions() if session.id == id), None)


# ── look ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def look(store: Store, job: Job) -> Job:
    (found,) = await store.get([job.id])
    assert found is not None
    return found


async def status_of(store: Store, job: Job) -> Status:
    return (await look(store, job)).status


def ids(jobs: list[Job]) -> list[str]:
    return [job.id for job in jobs]
