"""What `claim` takes and returns, and how both stores choose the jobs of a claim."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from stoker.domain.byte_bounds import ByteBounds
from stoker.domain.job import Job
from stoker.domain.job_batch import JobBatch
from stoker.domain.placement import Lane, Placed, Plan, Policy, WorkerView, capacity, plan, serves
from stoker.domain.time_limits import passed

CANDIDATES_MAX: Final = 2_000
JOBS_MAX: Final = 65_536
"""The most jobs that one claim takes."""


class ClaimRequest(msgspec.Struct, frozen=True):
    """Asks for a claim: the capacity of the workers, and what else the planner needs to know besides the jobs."""

    workers: list[WorkerView]
    policy: Policy
    cursor: int
    run_us: Mapping[str, int]
    bounds: ByteBounds = ByteBounds()
    most: int = JOBS_MAX
    """About how many jobs to claim at most."""


class Granted(msgspec.Struct, frozen=True):
    """What a claim brought."""

    grants: list[Placed]
    """Jobs that are now running under `batch.template.claim_id` and belong to their session."""
    cursor: int
    more: bool = False
    """Whether jobs that could find room were left for another claim: this one has as many bytes as it may have, or urgent
    jobs that should not wait for others."""
    ended: list[Job] = []
    """Jobs that were ended instead of claimed, because their expiry or deadline had passed."""


class ClaimSource(Protocol):
    """Knows how much workers can take. A store asks it when a write transaction opens, and tells it what was claimed."""

    def request(self) -> ClaimRequest | None:
        """Return what to claim for; None if no claim is wanted now."""
        ...

    def granted(self, granted: Granted) -> None:
        """Take what was claimed; it is durable."""
        ...

    def refused(self, error: Exception) -> None:
        """Take notice that the claim failed, and that nothing was claimed."""
        ...


def serving(lanes: Iterable[tuple[int, Lane]], request: ClaimRequest) -> dict[int, list[WorkerView]]:
    """Return those of these lanes that a present worker can serve, each with all workers that could, present or not. The
    workers are copies for the planner to spend, because a transaction that fails is tried again with the same request;
    together they have room for `request.most` jobs."""
    found: dict[int, list[WorkerView]] = {}
    copies: dict[str, WorkerView] = {}
    for id, lane in lanes:
        able = [worker for worker in request.workers if serves(worker, lane)]
        if any(worker.present for worker in able):
            copies.update(
                (worker.session_id, replace(worker)) for worker in able if worker.session_id not in copies
            )
            found[id] = [copies[worker.session_id] for worker in able]
    share = request.most // max(1, len(copies)) + 1
    for worker in copies.values():
        worker.room = min(worker.room, share)
    return found


def unpaused(lanes: Iterable[tuple[int, Lane]], paused: Mapping[str, int]) -> list[tuple[int, Lane]]:
    """Return the lanes whose queue is not paused."""
    return [(id, lane) for id, lane in lanes if lane.queue not in paused]


def candidates_wanted(lane: Lane, workers: Sequence[WorkerView], run_us: Mapping[str, int]) -> int:
    """Return how many of the first jobs of a lane a plan can place at most."""
    return min(capacity(workers, lane.type, run_us.get(lane.type)), CANDIDATES_MAX)


def split_by_time(batches: Iterable[JobBatch], now: int) -> tuple[list[JobBatch], list[JobBatch]]:
    """Return the batches that may start, and those whose time is up."""
    able: list[JobBatch] = []
    over: list[JobBatch] = []
    for batch in batches:
        (able if batch.template.extras is None or passed(batch.template, now) is None else over).append(batch)
    return able, over


_RUNNING_ORDER: Final = attrgetter("template.rank", "template.seq")


def plan_for(
    candidates: list[JobBatch], able: dict[int, list[WorkerView]], request: ClaimRequest, now: int
) -> Plan:
    """Return the plan for these candidates, which are sorted into running order."""
    candidates.sort(key=_RUNNING_ORDER)
    return plan(
        candidates, able, now=now, policy=request.policy, cursor=request.cursor, run_us=request.run_us
    )


def claimed(placed: Placed, now: int) -> Placed:
    """Return the placement with its jobs as they are once it is written: running, under the next claim number."""
    template = placed.batch.template
    running = replace(
        template,
        status="running",
        claim_id=template.claim_id + 1,
        attempt=template.attempt + 1,
        worker_id=placed.session_id,
        threads_granted=placed.threads,
        claimed_at=now,
        started_at=None,
    )
    return Placed(placed.batch.changed(running), placed.session_id, placed.threads)
