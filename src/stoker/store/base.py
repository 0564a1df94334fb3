"""The store protocol: what every store guarantees, verb by verb. `tests/conformance` holds each store to it.

All verbs take batches. Calls that wait at the same time are coalesced into one transaction (group commit) and return
only after it is durable. A verb that raises has changed nothing. Every write after a claim names `(seq, claim_id)`
and the status it leaves, so of all the attempts at a job exactly one writes its outcome.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from stoker.domain.edit import Changes
from stoker.domain.explain import JobsAhead
from stoker.domain.job import Job
from stoker.domain.lifecycle import Status
from stoker.domain.retry import Claim, RetryPolicy
from stoker.domain.series import GaugeRow, TallyRow
from stoker.domain.short_ids import ShortId
from stoker.store.bulk import Bulk, BulkStep, BulkStepped
from stoker.store.claims import ClaimRequest, ClaimSource, Granted
from stoker.store.outcomes import Completions, Finish, Start
from stoker.store.reads import (
    Attempt,
    Count,
    DeadLetterGroups,
    FailureSample,
    JobFilter,
    JobQuery,
    JobState,
    JobSummary,
    Page,
)
from stoker.store.schedules import ScheduleStore
from stoker.store.sessions import Expired, Renewal, Session
from stoker.store.submissions import Accepted, Submission
from stoker.store.upkeep import Retention


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
        """Return the time of the store's clock."""
        ...

    def look_again(self) -> None:
        """Let the next claim look at every lane, because other coordinators may have queued jobs."""
        ...

    def on_left_over(self, call: Callable[[], None]) -> None:
        """Call this after a commit that left jobs in the queue which workers of another coordinator might run."""
        ...

    def on_transaction(self, call: Callable[[float, int], None]) -> None:
        """Call this after every transaction, with the seconds until it was durable and the number of jobs that it wrote."""
        ...

    def on_outcome(self, call: Callable[[Exception | None], None]) -> None:
        """Call this when a write ends: with None if it stored something durably, with the error if it failed. Not called for
        a transaction that had nothing to write."""
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

    def claim_for(self, source: ClaimSource | None) -> None:
        """Ask this source for capacity whenever a write transaction opens, claim for it as the last step of the transaction,
        and tell it what was claimed before any caller of the transaction goes on. None: claim no more."""
        ...

    def claim_soon(self) -> None:
        """Ask the source with the next transaction; open one for that if jobs may wait."""
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
        """Write completions. Return (job id, claim id) of those whose claim is stale, for which nothing was written."""
        ...

    async def claims(self, keys: Sequence[tuple[str, int]]) -> list[Claim | None]:
        """Return the claims with these (job id, claim id); None where that claim is not current."""
        ...

    async def held(self, session_id: str) -> list[Claim]:
        """Return all current claims of this session."""
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
        """Queue up to `limit` scheduled jobs that are due; return how many there were."""
        ...

    async def correct_times(self, limit: int) -> int:
        """Correct what was written by a clock that was ahead and has been set back. Up to `limit` retries that are due later
        than their own delay from now are due after that delay; a `run_at` that a person gave is kept. Sessions that were
        heard of in the future were heard of now. Return how many retries were changed: fewer than `limit` when none is
        left."""
        ...

    async def next_due_at(self) -> int | None:
        """Return when the earliest scheduled job becomes due."""
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
        """Take dead letters out of the list for good; they stay `failed`. Return how many there were."""
        ...

    async def discard_where(self, filter: JobFilter, limit: int) -> int:
        """Discard up to `limit` dead letters that match; return how many."""
        ...

    async def put_bulk(self, bulk: Bulk) -> None:
        """Accept an operation: once this returned, it will be worked off whatever dies."""
        ...

    async def bulks(self, limit: int, *, running: bool = False) -> list[Bulk]:
        """Return the latest operations, newest first; or only those that are not over."""
        ...

    async def bulk(self, id: str) -> Bulk | None:
        """Return a bulk operation; None where there is none."""
        ...

    async def bulk_candidates(self, bulk: Bulk, limit: int) -> list[tuple[int, str]]:
        """Return the next jobs that the operation should look at, in the order of their numbers: (seq, id). A read,
        which promises nothing: the step looks at each of them again."""
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

    async def noted_types(self) -> dict[str, bytes]:
        """Return what workers last said of each job type."""
        ...

    async def paused(self) -> dict[str, int]:
        """Every paused queue, whether or not it has jobs, and since when."""
        ...

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        """Return the jobs with these ids, in order; None where there is none."""
        ...

    async def summaries(self, ids: Sequence[str]) -> list[JobSummary]:
        """Return those of these jobs that exist, in any order, without reading payloads and results."""
        ...

    async def states(self, ids: Sequence[str]) -> list[JobState]:
        """Return those of these jobs that exist, in any order, by one read that touches no payload and no result."""
        ...

    async def ids_like(self, part: ShortId, limit: int) -> list[str]:
        """Ids that begin with a part, by an index, or end with it among the newest `RECENT_JOBS`; the newest first."""
        ...

    async def line(self, job: Job) -> JobsAhead:
        """Return the jobs ahead of this one in its lane, counted up to `POSITION_CAP`. Reads the index of waiting jobs, and
        the id of the first of them."""
        ...

    async def attempts(self, id: str) -> list[Attempt]:
        """Return every attempt at this job, oldest first, the current one included."""
        ...

    async def attempts_of(self, jobs: Sequence[Job]) -> list[list[Attempt]]:
        """Return the attempts at each of these jobs, which were just read, by one read for all."""
        ...

    async def page(self, query: JobQuery) -> Page:
        """Return a page of jobs, newest first, and how many match."""
        ...

    async def dead_letter_groups(self, limit: int) -> DeadLetterGroups:
        """Return dead letters grouped by how they failed, the latest first. Reads only the index of failed jobs."""
        ...

    async def failure_samples(self, limit: int) -> list[FailureSample]:
        """Return one failed job of each kind, of up to `limit` kinds. Reads one job per kind, never all that failed."""
        ...

    async def counts(self) -> list[Count]:
        """Return how many jobs there are by queue, type and status, from counters that transactions keep; never a scan."""
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
        """Return the rows of all coordinators whose buckets began in [start, end), of one queue or type if given.
        `folded`: of a queue and type, all rows in which nothing happened but waiting are one, with the highest depth."""
        ...

    async def sessions(self) -> list[Session]:
        """Return every session that is live, draining, or ended a short while ago."""
        ...

    async def known_key(self, client: str, key: str) -> bool:
        """Return whether this idempotency key is live, so that a repeat is not charged to a rate limit."""
        ...

    async def close(self) -> None:
        """Finish what is under way and let go of the files."""
        ...
