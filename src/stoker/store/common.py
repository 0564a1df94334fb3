"""What every store works out in the same way, whatever it is written in."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import astuple, replace

from stoker.domain.extras import rested
from stoker.domain.job import Job
from stoker.domain.job_batch import JobBatch
from stoker.domain.lifecycle import STATUSES, Status, waiting
from stoker.domain.placement import Lane, Placed, Plan, WorkerView, capacity, plan, serves
from stoker.domain.retry import UNCHARGED, Claim, Outcome, RetryPolicy, decide, problem
from stoker.domain.series import GaugeRow, Gauges, Histogram, Tally, TallyRow
from stoker.domain.time_limits import kept_by_replay, next_limit, passed
from stoker.domain.unique import holds_key, key_of
from stoker.store.base import (
    SPARKS,
    Attempt,
    Bulk,
    BulkAction,
    BulkStep,
    ClaimRequest,
    Completions,
    Count,
    JobFilter,
    Session,
)

CANDIDATES_MAX: Final = 2_000
ANY_TYPE: Final = "*"
NO_PAYLOAD: Final = b"null"
"""Stands for the payload in a summary."""

SERIES_CHUNK_SEC: Final = 600
"""Series that are too old are deleted so much at a time."""

BULK_COLUMNS: Final = Bulk.__struct_fields__
_BULK_FILTER: Final = BULK_COLUMNS.index("filter")
_BULK_CAPPED: Final = BULK_COLUMNS.index("total_capped")
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(Histogram).decode
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FIRST_ID: Final = "00000000-0000-0000-0000-000000000000"
_LAST_ID: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"


def by_verb(calls: Sequence[tuple[str, Any]], order: Iterable[str]) -> list[tuple[str, list[int]]]:
    """The verbs that are called, in this order, each with the places of its calls."""
    places: dict[str, list[int]] = {}
    for place, (verb, _) in enumerate(calls):
        places.setdefault(verb, []).append(place)
    return [(verb, places[verb]) for verb in order if verb in places]


def claimed(placed: Placed, now: int) -> JobBatch:
    """The jobs as they are once this placement is written."""
    template = placed.batch.template
    return placed.batch.changed(
        replace(
            template,
            status="running",
            claim_id=template.claim_id + 1,
            attempt=template.attempt + 1,
            worker_id=placed.session_id,
            threads_granted=placed.threads,
            claimed_at=now,
            started_at=None,
        )
    )


def running_order(batch: JobBatch) -> tuple[int, int]:
    return batch.template.rank, batch.template.seq


def serving(lanes: Iterable[tuple[int, Lane]], workers: Sequence[WorkerView]) -> dict[int, list[WorkerView]]:
    """Return those of these lanes that a present worker can serve, each with all workers that could, present or not."""
    found: dict[int, list[WorkerView]] = {}
    for id, lane in lanes:
        able = [worker for worker in workers if serves(worker, lane)]
        if any(worker.present for worker in able):
            found[id] = able
    return found


def unpaused(lanes: Iterable[tuple[int, Lane]], paused: Mapping[str, int]) -> list[tuple[int, Lane]]:
    """Of these lanes, those whose queue is not paused."""
    return [(id, lane) for id, lane in lanes if lane.queue not in paused]


def candidates_wanted(lane: Lane, workers: Sequence[WorkerView], run_us: Mapping[str, int]) -> int:
    """How many jobs from the head of a lane a plan can place at most."""
    return min(capacity(workers, lane.type, run_us.get(lane.type)), CANDIDATES_MAX)


def plan_for(
    candidates: list[JobBatch], able: dict[int, list[WorkerView]], request: ClaimRequest, now: int
) -> Plan:
    """The plan for these candidates, in running order."""
    candidates.sort(key=running_order)
    return plan(
        candidates, able, now=now, policy=request.policy, cursor=request.cursor, run_us=request.run_us
    )


def split_by_time(batches: Iterable[JobBatch], now: int) -> tuple[list[JobBatch], list[JobBatch]]:
    """Return the batches that may start, and those whose time is up."""
    able: list[JobBatch] = []
    over: list[JobBatch] = []
    for batch in batches:
        (able if batch.template.extras is None or passed(batch.template, now) is None else over).append(batch)
    return able, over


def held_keys(jobs: Iterable[Job]) -> list[tuple[str, str]]:
    """Return the unique keys that these jobs hold, in order: (key, id of the job)."""
    return sorted((key, job.id) for job in jobs if (key := key_of(job.extras)) is not None and holds_key(job))


def noted_limits(jobs: Iterable[Job]) -> list[tuple[int, int]]:
    """Return when those of these jobs that have an expiry or a deadline are to be looked at: (number, time)."""
    return [(job.seq, at) for job in jobs if (at := next_limit(job)) is not None]


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
        outcome.kind not in UNCHARGED,
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


def stale_ids(all_done: Iterable[Completions], stale: set[tuple[int, int]]) -> set[tuple[str, int]]:
    """(job id, claim) of the completions whose (number, claim) is among these."""
    if not stale:
        return set()
    return {
        (id, done.claim.claim_id)
        for done in all_done
        for id, seq in zip(done.ids, done.seqs, strict=True)
        if (seq, done.claim.claim_id) in stale
    }


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


def with_current(earlier: list[Attempt], job: Job) -> list[Attempt]:
    """The attempts that were recorded, and the one that lives on the job itself."""
    current = _current_attempt(job)
    if current is not None and all(attempt.claim_id != current.claim_id for attempt in earlier):
        return [*earlier, current]
    return earlier


def has_earlier(job: Job) -> bool:
    """Whether attempts at this job may be recorded apart from it. Most jobs complete at the first."""
    return job.claim_id > 1 or (job.claim_id == 1 and job.status != "completed")


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
        job.error if kind else None,  # until it ends, the job shows the error of the attempt before it
        None,
        job.cpu_us,
        job.peak_memory_kb,
    )


def is_counted(filter: JobFilter) -> bool:
    """Whether the counters know how many jobs match."""
    known = JobFilter(status=filter.status, queue=filter.queue, type=filter.type)
    return filter == known


def counted(counts: Iterable[Count], filter: JobFilter) -> int:
    statuses = STATUSES if filter.statuses is None else filter.statuses
    return sum(
        count.count
        for count in counts
        if count.status in statuses
        and filter.queue in (None, count.queue)
        and filter.type in (None, count.type)
    )


def status_list(statuses: Iterable[Status]) -> str:
    """Statuses for a statement. They are literals, because only then a partial index is used; and taken from the table, so
    that nothing else can be in them."""
    return ", ".join(f"'{STATUSES[STATUSES.index(status)]}'" for status in statuses)


def id_range(text: str) -> tuple[str, str] | None:
    """The first and the last id that begin with this text; None where no id does."""
    start = text.lower()
    first, last = start + _FIRST_ID[len(start) :], start + _LAST_ID[len(start) :]
    return (first, last) if _ID.fullmatch(first) else None


def newest_ids(ids: Iterable[str], limit: int) -> list[str]:
    """Each of these once; ids sort by when they were made."""
    return sorted(set(ids), reverse=True)[:limit]


def like_part(text: str) -> str:
    r"""A pattern for LIKE … ESCAPE '\' that finds this text anywhere."""
    return "%" + re.sub(r"([\\%_])", r"\\\1", text) + "%"


def sparkline(parts: Iterable[tuple[int, int]]) -> list[int]:
    """Numbers of jobs by the part of the time in which they failed."""
    line = [0] * SPARKS
    for part, count in parts:
        line[min(max(part, 0), SPARKS - 1)] += count
    return line


def bulk_values(bulk: Bulk) -> tuple[Any, ...]:
    fields = list(astuple(bulk))
    fields[_BULK_FILTER] = json_text(bulk.filter)
    return tuple(fields)


def bulk_of(row: Iterable[Any]) -> Bulk:
    fields = list(row)
    fields[_BULK_FILTER] = msgspec.json.decode(fields[_BULK_FILTER], type=JobFilter)
    fields[_BULK_CAPPED] = bool(fields[_BULK_CAPPED])
    return Bulk(*fields)


def stepped(step: BulkStep, looked_at: int, changed: int, now: int) -> Bulk:
    """The operation after a step."""
    bulk = step.bulk
    return replace(
        bulk,
        status="done" if step.last else "running",
        done=bulk.done + looked_at,
        changed=bulk.changed + changed,
        finished_at=now if step.last else None,
        cursor=step.seqs[-1] if step.seqs else bulk.cursor,
    )


def is_next(step: BulkStep, stored: Bulk | None) -> bool:
    """Whether this is the next step of the operation as it is stored."""
    return stored is not None and stored.status == "running" and stored.cursor == step.bulk.cursor


def cancelled(job: Job, now: int) -> Job:
    """A job after it was told to be cancelled."""
    if job.status == "running":
        return replace(job, cancel_requested_at=job.cancel_requested_at or now)
    return replace(job, status="cancelled", cancel_requested_at=now, completed_at=now)


def changed_job(action: BulkAction, job: Job, now: int) -> Job:
    """A job after a bulk operation changed it."""
    if action == "cancel":
        return cancelled(job, now)
    return replayed(job, now) if action == "retry" else replace(job, discarded_at=now)


def tally_values(row: TallyRow) -> tuple[Any, ...]:
    tally = row.tally
    return (
        row.bucket_sec,
        row.at,
        row.queue,
        row.type,
        tally.submitted,
        tally.completed,
        tally.failed,
        tally.cancelled,
        tally.retried,
        tally.queue_depth_max,
        _pack(tally.wait),
        _pack(tally.run),
    )


def tally_of(row: Sequence[Any]) -> TallyRow:
    bucket_sec, at, queue, type, submitted, completed, failed, cancelled, retried, depth, wait, run = row
    tally = Tally(submitted, completed, failed, cancelled, retried, depth, _unpack(wait), _unpack(run))
    return TallyRow(bucket_sec, at, queue, type, tally)


def gauge_values(row: GaugeRow) -> tuple[Any, ...]:
    return (row.bucket_sec, row.at, *astuple(row.gauges))


def gauge_of(row: Sequence[Any]) -> GaugeRow:
    return GaugeRow(row[0], row[1], Gauges(*row[2:]))


def session_texts(session: Session) -> tuple[str, str | None, str]:
    """Types, queues and labels as they are stored. A session that takes any type has one more, which no type is called."""
    queues = None if session.queues is None else json_text(session.queues)
    types = (*session.types, ANY_TYPE) if session.any_type else session.types
    return json_text(types), queues, json_text(session.labels)


def session_of(row: Iterable[Any]) -> Session:
    fields = list(row)
    types = msgspec.json.decode(fields[3], type=tuple[str, ...])
    any_type = ANY_TYPE in types
    fields[3] = tuple(type for type in types if type != ANY_TYPE) if any_type else types
    fields[4] = None if fields[4] is None else msgspec.json.decode(fields[4], type=tuple[str, ...])
    fields[5] = msgspec.json.decode(fields[5], type=dict[str, str])
    session = Session(*fields)
    return replace(session, any_type=True) if any_type else session


def json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()
