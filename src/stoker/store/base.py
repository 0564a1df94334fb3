"""The store protocol: what every store guarantees, verb by verb. `tests/conformance` holds each store to it.

All verbs take batches. Calls that wait at the same time are coalesced into one transaction (group commit) and return
only after it is durable. A verb that raises has changed nothing. Every write after a claim names `(seq, claim_id)`
and the status it leaves, so of all the attempts at a job exactly one writes its outcome.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import compress, repeat
from typing import Final, Literal, Protocol

import msgspec
from msgspec.structs import astuple, replace

from stoker.domain.byte_bounds import ByteBounds
from stoker.domain.edit import Changes
from stoker.domain.explain import JobsAhead
from stoker.domain.job import Job, OnConflict
from stoker.domain.job_batch import JobBatch
from stoker.domain.lifecycle import STATUSES, UNFINISHED, Status
from stoker.domain.placement import Policy, WorkerView
from stoker.domain.retry import Claim, Kind, Outcome, RetryPolicy
from stoker.domain.series import GaugeRow, TallyRow
from stoker.domain.short_ids import ShortId
from stoker.domain.unique import Mark
from stoker.store.schedules import ScheduleStore

TOTAL_CAP: Final = 10_000
"""Totals of filters that no counter covers are counted up to here and then marked as capped."""

WHOLE_JOBS: Final = 8
"""So many jobs are read with large payloads at once, and no more."""
SPARKS: Final = 24


class IdempotencyKey(msgspec.Struct, frozen=True):
    """A client's name for a submission. `digest` is the hash of the decoded request: the same key with another
    digest is a mistake that must be told, not a repeat."""

    client: str
    key: str
    digest: bytes
    expires_at: int


class Submission(msgspec.Struct, frozen=True, gc=False):
    """Jobs to store; only one that is alone can have a key."""

    batch: JobBatch
    key: IdempotencyKey | None = None
    on_conflict: OnConflict = "return"
    """What becomes of a job whose unique key is taken. A job with a unique key is alone."""


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The jobs that stand in the store for a submission; `repeated` when an earlier one had made them."""

    batch: JobBatch
    repeated: bool
    unique: Mark | None = None
    """Set when the job that stands there is another one, which holds the unique key."""

    @property
    def job(self) -> Job:
        """The job, or the first of them."""
        return self.batch.template


class ClaimRequest(msgspec.Struct, frozen=True):
    """What `claim` may spend: the workers' capacity, and what the planner needs to know besides the jobs."""

    workers: list[WorkerView]
    policy: Policy
    cursor: int
    run_us: Mapping[str, int]
    bounds: ByteBounds = ByteBounds()


class Grant(msgspec.Struct, frozen=True, gc=False):
    """Jobs that are now running under `batch.template.claim_id` and belong to the session."""

    batch: JobBatch
    session_id: str


class Granted(msgspec.Struct, frozen=True):
    grants: list[Grant]
    cursor: int
    more: bool = False
    """Whether jobs that could find room were left for another claim: this one has as many bytes as it may have, or urgent
    jobs that should not wait for others."""
    ended: list[Job] = []
    """Jobs that were next and whose expiry or deadline had passed; they are over now."""


class Finish(msgspec.Struct, frozen=True, gc=False):
    claim: Claim
    outcome: Outcome


class Completions(msgspec.Struct, frozen=True, gc=False):
    """Attempts that completed jobs of one batch, under the same claim number. `claim` is that of one of them, for what they
    share; each has a place in the columns."""

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
        """One row for each job."""
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
        """All but these."""
        kept = [id not in ids for id in self.ids]
        columns = [
            list(compress(column, kept)) if isinstance(column, list) else column
            for column in astuple(self)[1:]
        ]
        return Completions(self.claim, *columns)


CompletionRow = tuple[int, int, int | None, int, int | None, int | None, bytes]
"""Number of the job, claim, started at, finished at, CPU time in microseconds, peak memory in kB, result."""


class Start(msgspec.Struct, frozen=True):
    claim: Claim
    started_at: int


NO_NOTE: Final = b"{ }"
"""The note of a type of which a worker says nothing but its name."""


class Session(msgspec.Struct, frozen=True):
    """One life of a worker process: a fresh id at every start, whatever the worker is called."""

    id: str
    name: str
    threads: int
    types: tuple[str, ...]
    queues: tuple[str, ...] | None
    labels: dict[str, str]
    status: str
    """`live`, `draining`, `lost` (silent beyond the timeout) or `gone` (said goodbye)."""
    registered_at: int
    last_heartbeat_at: int
    threads_used: int = 0
    endpoint: str | None = None
    host: str | None = None
    pid: int | None = None
    secret_hash: bytes | None = None
    """See `stoker.domain.session_secret`. Never shown."""
    any_type: bool = False
    """Takes every type that no session of the last minute names, besides `types`."""

    @property
    def speaks_run(self) -> bool:
        """Whether its endpoint is of the `/run` shapes (`stoker.wire.run`); only such workers have an endpoint and take any
        type."""
        return self.any_type and self.endpoint is not None


class Renewal(msgspec.Struct, frozen=True):
    session_id: str
    threads_used: int


class Lost(msgspec.Struct, frozen=True):
    """A claim taken from a session that fell silent, and what became of its job."""

    claim: Claim
    status: Status


class Expired(msgspec.Struct, frozen=True):
    sessions: list[str]
    losses: list[Lost]


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


class Page(msgspec.Struct, frozen=True):
    jobs: list[Job]
    total: int
    total_capped: bool
    next_before_seq: int | None


BulkAction = Literal["cancel", "retry", "discard"]
BulkStatus = Literal["running", "done", "stopped"]


class Bulk(msgspec.Struct, frozen=True):
    """Something that is done to many jobs, a step at a time. It is a row: a coordinator that works on it may die, and
    another goes on from `cursor`, the number of the last job that was looked at."""

    id: str
    action: BulkAction
    filter: JobFilter
    status: BulkStatus
    total: int
    """How many jobs matched when it was accepted."""
    total_capped: bool
    done: int
    """How many were looked at."""
    changed: int
    created_at: int
    finished_at: int | None = None
    cursor: int = -1

    @property
    def wanted(self) -> JobFilter:
        """The jobs to look at: those that match, that the action can change, and that were there when it was accepted."""
        latest = self.created_at + 1
        before = self.filter.created_before
        return replace(
            changeable(self.action, self.filter),
            created_before=latest if before is None else min(latest, before),
        )


def changeable(action: BulkAction, filter: JobFilter) -> JobFilter:
    """Of the jobs that match, those that the action can change."""
    if action == "discard":
        dead = filter.statuses is None or "failed" in filter.statuses
        return replace(filter, status=None, dead_letters=True) if dead else replace(filter, status=())
    able = [
        status
        for status in STATUSES
        if (status in UNFINISHED) == (action == "cancel") and status != "completed"
    ]
    kept = tuple(status for status in able if filter.statuses is None or status in filter.statuses)
    return replace(filter, status=kept)


class BulkStep(msgspec.Struct, frozen=True):
    """The next jobs of an operation, found by a read. `last` says that there are no more behind them."""

    bulk: Bulk
    seqs: list[int]
    last: bool


class BulkStepped(msgspec.Struct, frozen=True):
    """The operation after a step, and the jobs that it changed, as they are now; their payloads may be missing."""

    bulk: Bulk
    jobs: list[Job]


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


class Retention(msgspec.Struct, frozen=True):
    completed_us: int
    failed_us: int
    sessions_us: int = 600_000_000
    client_ids_us: int = 86_400_000_000
    """For how long after its submission the id of a job that is deleted stays taken, if a client made it."""
    keep_grace_us: int = 0
    """So much longer a job with a `keep_sec` is kept, for clients that wait for its end."""


class Store(ScheduleStore, Protocol):
    """A durable store of jobs."""

    @property
    def shared(self) -> bool:
        """Whether other coordinators may write to it as well."""
        ...

    async def later_schema(self) -> int | None:
        """Return the version of the schema where a later Stoker made it; None for one that this Stoker knows."""
        ...

    def now_us(self) -> int:
        """The store's clock."""
        ...

    def look_again(self) -> None:
        """Others may have queued jobs: the next claim looks at every lane."""
        ...

    def on_left_over(self, call: Callable[[], None]) -> None:
        """Call this after a commit that left jobs in the queue which workers of another coordinator might run."""
        ...

    def on_transaction(self, call: Callable[[float, int], None]) -> None:
        """Whom to tell of every transaction: the seconds until it was durable, and the jobs that it wrote."""
        ...

    def on_outcome(self, call: Callable[[Exception | None], None]) -> None:
        """Whom to tell how writes end: None for one that stored something durably, and the error of one that failed. A
        transaction that had nothing to write tells nothing."""
        ...

    async def probe(self) -> None:
        """Write something small by the path that jobs take; return when it is durable. Raises `StoreUnavailable` where a job
        could not be stored either. Changes nothing that anything else reads."""
        ...

    @property
    def pending(self) -> int:
        """Jobs received that wait for their transaction."""
        ...

    async def insert(self, submissions: Sequence[Submission]) -> list[Accepted]:
        """Store all of these jobs or none. They come back in the same order, if perhaps in smaller batches. A repeat
        of a live idempotency key returns the job that it made; the same key with another digest raises
        `IdempotencyMismatch` and stores nothing of this call, and touches no other call.

        The ids of batches with digests were made by clients. One that a job has already, finished or not, returns that
        job, and with another digest raises `IdMismatch`. The id of a job that was pruned raises `JobPruned` while it
        is remembered (`Retention`). A live key comes first: it returns its job, whatever the id. Calls that bring the
        same new id at once, here or on several coordinators, store one job, and all of them return it.

        Of all jobs with one unique key at most one is unfinished, whichever coordinator stores them. `on_conflict` says what
        a submission gets whose key is taken: the job that holds it, `UniqueConflict` and nothing of the call stored, or that
        job with the payload and the times of the new one, as long as it has not started. Repeats come first."""
        ...

    async def claim(self, request: ClaimRequest) -> Granted:
        """Plan queued jobs onto the workers' capacity and mark exactly those running, each under the next `claim_id` of
        its job. Reads only the first jobs of lanes that some worker serves. Jobs inserted in the same transaction count. The
        payloads handed out are within the request's byte bounds, and large payloads are read of jobs that were placed
        only. A job whose expiry or deadline has passed by the store's clock is never claimed: it is ended and returned in
        `ended`."""
        ...

    async def end_overdue(self, limit: int) -> list[Job]:
        """End up to `limit` waiting jobs whose expiry or deadline has passed: an expired one is `cancelled`, one past its
        deadline `failed`. Return them, perhaps without their payloads."""
        ...

    async def next_limit_at(self) -> int | None:
        """Return when `end_overdue` may have something to do."""
        ...

    async def started(self, starts: Sequence[Start]) -> None:
        """Record when attempts really began; a claim that is no longer current is left alone."""
        ...

    async def finish(self, finishes: Sequence[Finish]) -> list[Status | None]:
        """Write the outcome of each attempt that did not complete its job, if its claim is still the current one. Per item:
        the status that the job has now because of it, or None when the claim is stale and nothing was written. Sending the
        same outcome again returns the same answer. A retry of a job whose cancel was requested becomes `cancelled`."""
        ...

    async def complete(self, done: Sequence[Completions]) -> set[tuple[str, int]]:
        """The same for attempts that completed: those whose claim is stale, and for which nothing was written, as (job id,
        claim id)."""
        ...

    async def claims(self, keys: Sequence[tuple[str, int]]) -> list[Claim | None]:
        """The claims behind (job id, claim id), None where that claim is not current."""
        ...

    async def held(self, session_id: str) -> list[Claim]:
        """All claims that the store believes this session holds."""
        ...

    async def cancels(self, session_ids: Sequence[str]) -> list[Claim]:
        """Return the claims of these sessions whose jobs are to be cancelled."""
        ...

    async def open_session(self, session: Session) -> str | None:
        """Register or resume a session; its heartbeat is fresh from now. The status that it has (one that was told to
        drain still drains). None when it was already given up for lost: the worker must start a new one.

        Raises `WrongSecret`, and changes nothing, when the session began with a secret and this is not its hash. One that
        began without stays without."""
        ...

    async def renew(self, renewals: Sequence[Renewal]) -> list[str | None]:
        """Heartbeats: one row each. The status of each session; None for one that is unknown or was given up for lost. With
        no renewals it writes nothing, and raises where the store knows without writing that it could not."""
        ...

    async def set_session_status(self, session_id: str, status: str) -> bool:
        """Mark a session as draining or gone. False when there is no such live session."""
        ...

    async def expire(self, since: int, policy: RetryPolicy) -> Expired:
        """Give up sessions that were not heard of since that time of the store's clock: their jobs are queued again at
        once, charged, or fail when out of attempts. A point in time, not a duration: a coordinator may stand still between
        its decision and this call, and that must not make workers look silent."""
        ...

    async def promote(self, limit: int) -> int:
        """Queue up to `limit` scheduled jobs whose time has come; how many there were."""
        ...

    async def correct_times(self, limit: int) -> int:
        """Correct what was written by a clock that was ahead and has been set back. Up to `limit` retries that are due later
        than their own delay from now are due after that delay; a `run_at` that a person gave is kept. Sessions that were
        heard of in the future were heard of now. Return how many retries were changed: fewer than `limit` when none is
        left."""
        ...

    async def next_due_at(self) -> int | None:
        """When the earliest scheduled job becomes due."""
        ...

    async def cancel(self, ids: Sequence[str]) -> list[Job | None]:
        """Cancel: a waiting job never starts once this returned; on a running one the wish is recorded. A final job is
        returned as it is. None where there is no such job."""
        ...

    async def edit(self, id: str, changes: Changes) -> Job | None:
        """Change a job that waits, and return it; it keeps its place among those of its lane and rank. None where there is
        no such job. Raises `StateConflict` for one that runs or is over, and `InvalidOption` for a change that does
        not fit."""
        ...

    async def replay(self, ids: Sequence[str]) -> list[Job | None]:
        """Queue failed and cancelled jobs again, with fresh attempts under the same id, and hurry those that back off.
        Others are returned as they are, and so are those whose unique key another job holds. More than `WHOLE_JOBS` of
        them are returned without large payloads and results."""
        ...

    async def replay_where(self, filter: JobFilter, limit: int) -> int:
        """Replay up to `limit` dead letters that match and whose unique key is free; return how many."""
        ...

    async def key_holder(self, key: str) -> str | None:
        """Return the id of the job that holds a unique key."""
        ...

    async def keys_taken(self, filter: JobFilter) -> int:
        """Return how many dead letters match whose unique key another job holds, counted up to `TOTAL_CAP`."""
        ...

    async def discard(self, ids: Sequence[str]) -> int:
        """Take dead letters out of the list for good; they stay `failed`. How many there were."""
        ...

    async def discard_where(self, filter: JobFilter, limit: int) -> int: ...

    async def put_bulk(self, bulk: Bulk) -> None:
        """Accept an operation: once this returned, it will be worked off whatever dies."""
        ...

    async def bulks(self, limit: int, *, running: bool = False) -> list[Bulk]:
        """The latest operations, newest first; or only those that are not over."""
        ...

    async def bulk(self, id: str) -> Bulk | None: ...

    async def bulk_candidates(self, bulk: Bulk, limit: int) -> list[tuple[int, str]]:
        """The next jobs that the operation should look at, in the order of their numbers: (seq, id). A read, which promises
        nothing: the step looks at each of them again."""
        ...

    async def bulk_step(self, step: BulkStep) -> BulkStepped | None:
        """Do it to those of these jobs that still match, and move the operation on, in one transaction. Return None, and do
        nothing, when the operation is not where `step.bulk` says that it is: another coordinator took the step, or a client
        stopped the operation."""
        ...

    async def stop_bulk(self, id: str) -> Bulk | None:
        """Stop an operation, if it still runs; as it is then. What was done stays done. None where there is none."""
        ...

    async def purge(self, retention: Retention, limit: int) -> int:
        """Delete up to `limit` finished jobs past their retention, and what else is too old: idempotency keys, sessions,
        series, bulk operations."""
        ...

    async def set_paused(self, queue: str, paused: bool) -> int | None:
        """Pause or resume a queue; since when it is paused now. Once this returned, no claim of any coordinator takes a job
        of a paused queue, also not as it is inserted; what runs goes on. Pausing twice changes nothing."""
        ...

    async def note_types(self, notes: Mapping[str, bytes]) -> None:
        """Keep what workers say of job types, as JSON; what was said last counts, and outlives who said it. `NO_NOTE` only
        says that the type exists, and replaces nothing."""
        ...

    async def noted_types(self) -> dict[str, bytes]: ...

    async def paused(self) -> dict[str, int]:
        """Every paused queue, whether or not it has jobs, and since when."""
        ...

    async def get(self, ids: Sequence[str]) -> list[Job | None]: ...

    async def summaries(self, ids: Sequence[str]) -> list[JobSummary]:
        """Those of these jobs that exist, in any order, without reading payloads and results."""
        ...

    async def states(self, ids: Sequence[str]) -> list[JobState]:
        """Those of these jobs that exist, in any order, by one read that touches no payload and no result."""
        ...

    async def ids_like(self, part: ShortId, limit: int) -> list[str]:
        """Ids that begin with a part, by an index, or end with it among the newest `RECENT_JOBS`; the newest first."""
        ...

    async def line(self, job: Job) -> JobsAhead:
        """Who stands before this job in its lane, counted up to `POSITION_CAP`. Reads the index of what waits, and nothing
        else of the jobs ahead but the id of the first."""
        ...

    async def attempts(self, id: str) -> list[Attempt]:
        """Every attempt at this job, oldest first, the current one included."""
        ...

    async def attempts_of(self, jobs: Sequence[Job]) -> list[list[Attempt]]:
        """The same for jobs that were just read: one list each, by one read for all."""
        ...

    async def page(self, query: JobQuery) -> Page: ...

    async def dead_letter_groups(self, limit: int) -> DeadLetterGroups:
        """Dead letters by how they failed, those that failed last first. Reads the index of failed jobs and nothing else."""
        ...

    async def failure_samples(self, limit: int) -> list[FailureSample]:
        """One failed job of each kind, of up to `limit` kinds. Reads one job per kind, never all that failed."""
        ...

    async def counts(self) -> list[Count]:
        """Jobs by queue, type and status, from counters kept in the same transactions as the jobs; never a scan."""
        ...

    async def oldest_due(self) -> dict[str, int]:
        """For each queue in which jobs wait, when the first in line became due. Reads one job per lane and rank, never
        the backlog."""
        ...

    async def put_series(self, shard: int, tallies: Sequence[TallyRow], gauges: Sequence[GaugeRow]) -> None:
        """Store what one coordinator counted, each row in the place of the one that it stored before: doing it twice counts
        nothing twice. Beside the transactions of jobs where there is more than one connection."""
        ...

    async def series(
        self,
        bucket_sec: int,
        start: int,
        end: int,
        queue: str | None = None,
        type: str | None = None,
        *,
        folded: bool = False,
    ) -> tuple[list[TallyRow], list[GaugeRow]]:
        """The rows of all coordinators whose buckets began in [start, end); tallies of one queue or type alone, if given.
        `folded`: of a queue and type, all rows in which nothing happened but waiting are one, with the highest depth."""
        ...

    async def sessions(self) -> list[Session]:
        """Every session that is live, draining, or ended a short while ago."""
        ...

    async def known_key(self, client: str, key: str) -> bool:
        """Whether this idempotency key is live, so that a repeat is not charged to anybody's rate limit."""
        ...

    async def close(self) -> None:
        """Finish what is under way and let go of the files."""
        ...
