"""How jobs look from outside: the shapes of answers, and how stored values become them.

The structs are both what is encoded and what the OpenAPI document describes, so the two cannot disagree. `payload`,
`result` and `error` are embedded as the bytes that were stored.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec.structs import replace

from stoker.api.schemas.query import encode_cursor
from stoker.api.schemas.times import rfc3339, rfc3339_or_none
from stoker.clock import SECOND
from stoker.coordinator.job_output.output import JobProgress
from stoker.domain import extras
from stoker.domain.extras import MOMENTS, NO_EXTRAS
from stoker.domain.fingerprint import brief, describe
from stoker.domain.job import Job, Oversize, UniqueUntil, decode_map
from stoker.domain.job_batch import JobBatch
from stoker.domain.lifecycle import Status
from stoker.domain.retry import Kind
from stoker.domain.retry_rules import RetryRules
from stoker.domain.unique import Mark
from stoker.store.reads import Attempt, DeadLetterGroup, DeadLetterGroups, JobQuery, Page
from stoker.store.submissions import Accepted

Time = Annotated[
    str, msgspec.Meta(extra_json_schema={"format": "date-time", "examples": ["2026-01-31T12:00:00.000000Z"]})
]

_NULL: Final = msgspec.Raw(b"null")

encode = msgspec.json.Encoder().encode


class AttemptView(msgspec.Struct, frozen=True):
    """One attempt at a job, finished or under way."""

    attempt: int
    claim_id: int
    worker_id: str | None
    claimed_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    outcome: Literal[Kind, "running"]
    """How it ended, or `running`."""
    charged: bool
    error: msgspec.Raw
    retry_delay_sec: float | None
    cpu_seconds: float | None
    peak_memory_kb: int | None


class ProgressView(msgspec.Struct, frozen=True):
    """How far a running job says it is; `percent` is null while the total is unknown."""

    done: float
    total: float | None
    message: str | None
    percent: float | None


class JobView(msgspec.Struct, frozen=True, gc=False):
    """A job."""

    id: str
    type: str
    name: str | None
    queue: str
    priority: int
    status: Status
    payload: msgspec.Raw
    result: msgspec.Raw
    error: msgspec.Raw
    attempt: int
    max_attempts: int
    thread_demand: int
    timeout_sec: float | None
    memory_mb: int | None
    worker_id: str | None
    created_at: Time
    run_at: Time
    started_at: Time | None
    completed_at: Time | None
    claim_id: int
    claimed_at: Time | None
    threads_granted: int | None
    on_oversize: Oversize
    labels: dict[str, str]
    metadata: dict[str, str]
    cancel_requested_at: Time | None
    discarded_at: Time | None
    crashes: int
    queue_time_sec: float | None
    execution_time_sec: float | None
    total_time_sec: float | None
    cpu_seconds: float | None
    peak_memory_kb: int | None
    progress: ProgressView | None
    fingerprint: str | None
    warnings: Sequence[str] | msgspec.UnsetType = msgspec.UNSET
    attempts: list[AttemptView] | msgspec.UnsetType = msgspec.UNSET
    unique: Mark | msgspec.UnsetType = msgspec.UNSET
    """In the answer to a submission whose unique key was taken: this is the job that holds it."""
    unique_key: str | msgspec.UnsetType = msgspec.UNSET
    unique_until: UniqueUntil | msgspec.UnsetType = msgspec.UNSET
    expires_at: Time | msgspec.UnsetType = msgspec.UNSET
    deadline_at: Time | msgspec.UnsetType = msgspec.UNSET
    soft_timeout_sec: float | msgspec.UnsetType = msgspec.UNSET
    retry: RetryRules | msgspec.UnsetType = msgspec.UNSET
    next_attempt_at: Time | msgspec.UnsetType = msgspec.UNSET
    """When a job that was tried before is tried again."""
    snoozes: int | msgspec.UnsetType = msgspec.UNSET
    keep_sec: float | msgspec.UnsetType = msgspec.UNSET
    notify_url: str | msgspec.UnsetType = msgspec.UNSET
    schedule: str | msgspec.UnsetType = msgspec.UNSET
    scheduled_for: Time | msgspec.UnsetType = msgspec.UNSET


class JobsView(msgspec.Struct, frozen=True):
    """A page of jobs, newest first. `total_capped` says that there are more than `total`."""

    jobs: list[JobView]
    total: int
    limit: int
    offset: int
    next_cursor: str | None
    total_capped: bool | msgspec.UnsetType = msgspec.UNSET


class BatchView(msgspec.Struct, frozen=True):
    """The jobs of a batch, in the order in which they were sent."""

    jobs: list[JobView]
    warnings: Sequence[str] | msgspec.UnsetType = msgspec.UNSET


class AttemptsView(msgspec.Struct, frozen=True):
    attempts: list[AttemptView]


class CountView(msgspec.Struct, frozen=True):
    """How many jobs were changed. `skipped` counts dead letters that cannot be replayed now, because other jobs hold their
    unique keys; it is left out where there are none."""

    count: int
    skipped: int | msgspec.UnsetType = msgspec.UNSET


class GroupView(msgspec.Struct, frozen=True):
    """Dead letters that failed in the same way. `sparkline` counts them in 24 equal parts of the time from the first of them
    until now, oldest first."""

    fingerprint: str
    type: str
    error_type: str
    message: str
    frame: str | None
    count: int
    first_seen_at: Time
    last_seen_at: Time
    sparkline: list[int]
    sample_job_id: str


class GroupsView(msgspec.Struct, frozen=True):
    """Groups of dead letters, those that failed last first; the totals count all of them. With many dead letters they may
    have been counted a while ago, at `counted_at`."""

    groups: list[GroupView]
    total_groups: int
    total_jobs: int
    counted_at: Time


_ID_MARK: Final = "{the id}"
_PAYLOAD_MARK: Final = b'"{the payload}"'
_TEMPLATES_MAX: Final = 1_000
_JOBS_A_TURN: Final = 200


def _raw(value: bytes | None) -> msgspec.Raw:
    return _NULL if value is None else msgspec.Raw(value)


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / SECOND


def seconds_from(start: int, end: int) -> float:
    """Seconds from one time to another; never negative, whatever the clocks did."""
    return (end - start) / SECOND if end > start else 0.0


def job_view(
    job: Job,
    warnings: Sequence[str] | msgspec.UnsetType = msgspec.UNSET,
    attempts: list[AttemptView] | msgspec.UnsetType = msgspec.UNSET,
    progress: JobProgress | None = None,
    unique: Mark | msgspec.UnsetType = msgspec.UNSET,
) -> JobView:
    """A job as it is shown. Positional, because this runs once per job and names would double its cost."""
    created_at = rfc3339(job.created_at)
    claimed_at, started_at, completed_at = job.claimed_at, job.started_at, job.completed_at
    return JobView(
        job.id,
        job.type,
        job.name,
        job.queue,
        job.priority,
        job.status,
        msgspec.Raw(job.payload),
        _NULL if job.result is None else msgspec.Raw(job.result),
        _NULL if job.error is None else msgspec.Raw(job.error),
        job.attempt,
        job.max_attempts,
        job.thread_demand,
        job.timeout_sec,
        job.memory_mb,
        job.worker_id,
        created_at,
        created_at if job.run_at == job.created_at else rfc3339(job.run_at),
        None if started_at is None else rfc3339(started_at),
        None if completed_at is None else rfc3339(completed_at),
        job.claim_id,
        None if claimed_at is None else rfc3339(claimed_at),
        job.threads_granted,
        job.on_oversize,
        {} if job.labels is None else decode_map(job.labels),
        {} if job.metadata is None else decode_map(job.metadata),
        None if job.cancel_requested_at is None else rfc3339(job.cancel_requested_at),
        None if job.discarded_at is None else rfc3339(job.discarded_at),
        job.crashes,
        None if claimed_at is None else seconds_from(job.run_at, started_at or claimed_at),
        None if started_at is None or completed_at is None else seconds_from(started_at, completed_at),
        None if completed_at is None else seconds_from(job.created_at, completed_at),
        None if job.cpu_us is None else job.cpu_us / SECOND,
        job.peak_memory_kb,
        None if progress is None else progress_view(progress),
        job.fingerprint,
        warnings,
        attempts,
        unique,
        next_attempt_at=rfc3339(job.run_at)
        if job.status == "scheduled" and job.claim_id > 0
        else msgspec.UNSET,
        **({} if job.extras is None else _shown_extras(job.extras)),
    )


def _shown_extras(text: str) -> dict[str, Any]:
    """Return the optional features that a job uses, as fields of its view."""
    used = extras.decode(text)
    shown: dict[str, Any] = {
        name: rfc3339(value) if name in MOMENTS else value
        for name, value in msgspec.structs.asdict(used).items()
        if value != getattr(NO_EXTRAS, name)
    }
    return shown | {"unique_until": used.unique_until} if used.unique_key is not None else shown


def render_accepted(accepted: Accepted, warnings: Sequence[str] = ()) -> bytes:
    """Return the answer to a submission."""
    if accepted.unique is None:
        return render_job(accepted.job, warnings)
    return encode(job_view(accepted.job, warnings or msgspec.UNSET, unique=accepted.unique))


def render_job(job: Job, warnings: Sequence[str] = ()) -> bytes:
    template = None if warnings else _template(job)
    return encode(job_view(job, warnings or msgspec.UNSET)) if template is None else template.render(job)


def render_job_with_attempts(job: Job, attempts: Iterable[Attempt], progress: JobProgress | None) -> bytes:
    views = [attempt_view(attempt) for attempt in attempts]
    return encode(job_view(job, attempts=views, progress=progress))


def render_batch(batch: JobBatch) -> bytes:
    """Return the jobs of a batch as items of a list, without brackets around them."""
    template = _template(batch.template)
    if template is None:
        return b",".join([encode(job_view(job)) for job in batch])
    return template.render_batch(batch)


class _RenderedPage(msgspec.Struct, frozen=True):
    """A `JobsView` whose jobs are rendered already."""

    jobs: list[msgspec.Raw]
    total: int
    limit: int
    offset: int
    next_cursor: str | None
    total_capped: bool | msgspec.UnsetType


class FreshJobs:
    """Renders jobs that were just queued and are alike but for their id, payload and time: the rest is rendered once."""

    __slots__ = ("_after", "_before", "_between", "_head", "_middle")

    def __init__(self, template: Job) -> None:
        marked = msgspec.structs.replace(template, id=_ID_MARK, payload=_PAYLOAD_MARK)
        text = encode(job_view(marked))
        self._head, rest = text.split(_ID_MARK.encode(), 1)
        self._middle, rest = rest.split(_PAYLOAD_MARK, 1)
        # It was created and due at the same moment, which stands there twice.
        self._before, self._between, self._after = rest.split(rfc3339(template.created_at).encode())

    def render(self, job: Job) -> bytes:
        return b"".join((self._head, job.id.encode(), self._middle, job.payload, self._tail(job)))

    def render_batch(self, batch: JobBatch) -> bytes:
        head, middle, tail = self._head, self._middle, self._tail(batch.template)
        ids = ",".join(batch.ids).encode().split(b",")
        own = [id + middle + payload for id, payload in zip(ids, batch.payloads, strict=True)]
        return b"".join((head, b"".join((tail, b",", head)).join(own), tail))

    def _tail(self, job: Job) -> bytes:
        time = rfc3339(job.created_at).encode()
        return b"".join((self._before, time, self._between, time, self._after))


_ALIKE: Final = attrgetter(
    "status", "claim_id", "name", "metadata", "labels", "cancel_requested_at",
    "extras", "type", "queue", "priority", "max_attempts", "thread_demand", "timeout_sec", "memory_mb", "on_oversize",
)  # fmt: skip
"""Every attribute that a response shows of an unclaimed job, except its id, payload and times."""
_templates: dict[tuple[object, ...], FreshJobs] = {}


def _template(job: Job) -> FreshJobs | None:
    """Return what renders a job as it looks in the answer to its submission; None for any other job."""
    if job.run_at != job.created_at:
        return None
    alike = _ALIKE(job)
    template = _templates.get(alike)
    if template is None:
        # A job that has a name or labels is probably the only one with them: no other job would use the template.
        if alike[:7] != ("queued", 0, None, None, None, None, None):
            return None
        if len(_templates) >= _TEMPLATES_MAX:
            _templates.clear()
        template = _templates[alike] = FreshJobs(job)
    return template


async def render_page(page: Page, query: JobQuery, progress_of: Callable[[Job], JobProgress | None]) -> bytes:
    """A part at a time: a thousand jobs take several milliseconds, and others want their turn."""
    jobs: list[msgspec.Raw] = []
    for first in range(0, len(page.jobs), _JOBS_A_TURN):
        if first:
            await asyncio.sleep(0)
        part = page.jobs[first : first + _JOBS_A_TURN]
        if query.summary:
            part = [job if job.error is None else replace(job, error=brief(job.error)) for job in part]
        jobs += [msgspec.Raw(encode(job_view(job, progress=progress_of(job)))) for job in part]
    return encode(
        _RenderedPage(
            jobs,
            page.total,
            query.limit,
            query.offset,
            encode_cursor(page.next_before_seq),
            True if page.total_capped else msgspec.UNSET,
        )
    )


def progress_view(progress: JobProgress) -> ProgressView:
    return ProgressView(progress.done, progress.total, progress.message, progress.percent)


def attempt_view(attempt: Attempt) -> AttemptView:
    kind: Kind | None = attempt.kind
    return AttemptView(
        attempt=attempt.attempt,
        claim_id=attempt.claim_id,
        worker_id=attempt.worker_id,
        claimed_at=rfc3339_or_none(attempt.claimed_at),
        started_at=rfc3339_or_none(attempt.started_at),
        finished_at=rfc3339_or_none(attempt.finished_at),
        outcome=kind or "running",
        charged=attempt.charged,
        error=_raw(attempt.error),
        retry_delay_sec=_seconds(attempt.retry_delay_us),
        cpu_seconds=_seconds(attempt.cpu_us),
        peak_memory_kb=attempt.peak_memory_kb,
    )


async def render_groups(found: DeadLetterGroups) -> bytes:
    """A part at a time, like a page."""
    groups: list[GroupView] = []
    for first in range(0, len(found.groups), _JOBS_A_TURN):
        if first:
            await asyncio.sleep(0)
        groups += map(_group_view, found.groups[first : first + _JOBS_A_TURN])
    return encode(GroupsView(groups, found.total_groups, found.total_jobs, rfc3339(found.counted_at)))


def _group_view(group: DeadLetterGroup) -> GroupView:
    """Said in the words of its last job: what differs from job to job is left out of them."""
    failure = describe(group.sample.type, group.sample.error)
    return GroupView(
        fingerprint=group.fingerprint,
        type=failure.job_type,
        error_type=failure.error_type,
        message=failure.message,
        frame=failure.frame,
        count=group.count,
        first_seen_at=rfc3339(group.first_seen_at),
        last_seen_at=rfc3339(group.last_seen_at),
        sparkline=group.sparkline,
        sample_job_id=group.sample.id,
    )
