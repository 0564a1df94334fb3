"""What reads take and return, and what both stores derive from the rows they read."""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from stoker.domain.job import Job
from stoker.domain.lifecycle import STATUSES, Status
from stoker.domain.retry import Kind

TOTAL_CAP: Final = 10_000
"""Totals of filters that no counter covers are counted up to here and then marked as capped."""
WHOLE_JOBS: Final = 8
"""How many jobs are read with large payloads at once, at most."""
SPARKS: Final = 24
"""Parts of a sparkline."""
NO_PAYLOAD: Final = b"null"
"""Stands for the payload in a summary."""
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FIRST_ID: Final = "00000000-0000-0000-0000-000000000000"
_LAST_ID: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"


class Attempt(msgspec.Struct, frozen=True):
    """One attempt at a job, finished or under way."""

    claim_id: int
    attempt: int
    worker_id: str | None
    claimed_at: int | None
    started_at: int | None
    finished_at: int | None
    kind: Kind | None
    charged: bool
    error: bytes | None
    retry_delay_us: int | None
    cpu_us: int | None
    peak_memory_kb: int | None


class JobState(msgspec.Struct, frozen=True, gc=False):
    """What those who wait for many jobs need of each: whether it has ended, and how much there is to read."""

    id: str
    status: Status
    bytes: int
    """Of its payload, result and error together."""


class JobSummary(msgspec.Struct, frozen=True, gc=False):
    """What a list shows of a job: nothing that may be large."""

    id: str
    type: str
    name: str | None
    queue: str
    priority: int
    status: Status
    claim_id: int
    attempt: int
    worker_id: str | None
    created_at: int
    started_at: int | None
    completed_at: int | None


class JobFilter(msgspec.Struct, frozen=True):
    """Which jobs. None means any; `dead_letters` means failed and not discarded."""

    status: Status | tuple[Status, ...] | None = None
    type: str | None = None
    queue: str | None = None
    priority: int | None = None
    name: str | None = None
    dead_letters: bool = False
    worker: str | None = None
    """The worker that runs it or ran it last, by its id, or by its name while that worker is still known."""
    created_after: int | None = None
    created_before: int | None = None
    """Created at or after the one, and before the other."""
    fingerprint: str | None = None
    """Failed in this way; see `stoker.domain.fingerprint`."""
    text: str | None = None
    """The beginning of an id, or a part of a name in upper or lower case. Where the next two are given as well, jobs match
    that have any of the three."""
    text_types: tuple[str, ...] = ()
    """The types that the text is a part of; see `stoker.coordinator.text_search`."""
    text_failures: tuple[str, ...] = ()
    """The fingerprints of failures that the text is a part of."""
    metadata: tuple[tuple[str, str], ...] = ()
    """Keys and values that the job has all of in its metadata."""

    @property
    def statuses(self) -> tuple[Status, ...] | None:
        """Any of these; None for all."""
        return (self.status,) if isinstance(self.status, str) else self.status


class JobQuery(msgspec.Struct, frozen=True):
    """A page of jobs, newest first. `before_seq` continues a list without counting through what came before it."""

    filter: JobFilter = JobFilter()
    limit: int = 50
    offset: int = 0
    before_seq: int | None = None
    summary: bool = False
    """Without what can be large and is not shown in a list: payload and result are null."""


PAGE_BYTES: Final = 8 * 1024 * 1024
"""A page ends where its payloads, results and errors exceed this; its first job is on it whatever its size."""


def fitting(sizes: Iterable[int]) -> int:
    """Return how many of these jobs a page takes, given how large each is."""
    room, taken = PAGE_BYTES, 0
    for size in sizes:
        room -= size
        if room < 0 and taken:
            break
        taken += 1
    return taken


class Page(msgspec.Struct, frozen=True):
    jobs: list[Job]
    total: int
    total_capped: bool
    next_before_seq: int | None


class DeadLetterGroup(msgspec.Struct, frozen=True):
    """Dead letters that failed in the same way. `sparkline` counts them in `SPARKS` equal parts of the time from the first
    of them until now; `sample` is the one that failed last, without its payload."""

    fingerprint: str
    count: int
    first_seen_at: int
    last_seen_at: int
    sparkline: list[int]
    sample: Job


class DeadLetterGroups(msgspec.Struct, frozen=True):
    groups: list[DeadLetterGroup]
    total_groups: int
    total_jobs: int
    counted_at: int


class FailureSample(msgspec.Struct, frozen=True):
    """A job that failed in one way, and its error as it is stored."""

    fingerprint: str
    type: str
    error: bytes | None


class Count(msgspec.Struct, frozen=True):
    queue: str
    type: str
    status: Status
    count: int


def with_current(earlier: list[Attempt], job: Job) -> list[Attempt]:
    """Return the attempts that were recorded, and the one that lives on the job itself."""
    current = _current_attempt(job)
    if current is not None and all(attempt.claim_id != current.claim_id for attempt in earlier):
        return [*earlier, current]
    return earlier


def has_earlier(job: Job) -> bool:
    """Return whether attempts at this job may be recorded apart from it. Most jobs complete at the first."""
    return job.claim_id > 1 or (job.claim_id == 1 and job.status != "completed")


def _current_attempt(job: Job) -> Attempt | None:
    """Return the attempt under way, or the one that completed or cancelled the job."""
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
    """Return whether the counters know how many jobs match."""
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


def id_range(text: str) -> tuple[str, str] | None:
    """Return the first and the last id that begin with this text; None where no id does."""
    start = text.lower()
    first, last = start + _FIRST_ID[len(start) :], start + _LAST_ID[len(start) :]
    return (first, last) if _ID.fullmatch(first) else None


def newest_ids(ids: Iterable[str], limit: int) -> list[str]:
    """Each of these once; ids sort by when they were made."""
    return sorted(set(ids), reverse=True)[:limit]


def sparkline(parts: Iterable[tuple[int, int]]) -> list[int]:
    """Numbers of jobs by the part of the time in which they failed."""
    line = [0] * SPARKS
    for part, count in parts:
        line[min(max(part, 0), SPARKS - 1)] += count
    return line
