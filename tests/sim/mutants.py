"""Bugs planted into the real code, one at a time: the simulation must find each of them within `LIMIT` seeds.

    python -m tests.sim.mutants              every bug, and the seeds that it took to find it
    python -m tests.sim.mutants no_fence_on_complete

Each is a mistake that a scheduler has made somewhere, as a change to a class or a statement, undone afterwards. A bug that
survives means that a promise is not really tested.
"""

import argparse
import asyncio
import gc
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from stoker.clock import SECOND
from stoker.coordinator import connection, reports, upkeep
from stoker.coordinator.connection import Connection
from stoker.coordinator.jobs import JobService, Submitted
from stoker.coordinator.peers import Peers
from stoker.coordinator.readiness import Readiness
from stoker.coordinator.reports import ReportSink
from stoker.coordinator.schedules import Schedules
from stoker.coordinator.sessions import Sessions, Unsent, compare
from stoker.domain import byte_bounds
from stoker.domain import retry as retry_domain
from stoker.domain import schedule as rules
from stoker.domain import webhooks as webhooks_domain
from stoker.domain.errors import IdMismatch, StoreUnavailable
from stoker.domain.job import Job
from stoker.domain.job_batch import batch_of
from stoker.domain.lifecycle import Event
from stoker.domain.placement import _Precedence, lane_key
from stoker.domain.retry import Claim, Kind, Outcome, RetryPolicy, after_attempt, claim_of, decide
from stoker.domain.schedule import Firing, ScheduleDecision
from stoker.domain.unique import key_of
from stoker.executors.pipe import OutcomeBatch, WorkOutcome
from stoker.store.client_ids import ClientIds
from stoker.store.outcomes import CompletionRow, Completions
from stoker.store.schedules import ScheduleChange, Seen
from stoker.store.sessions import Expired
from stoker.store.sqlite import claims as sqlite_claims
from stoker.store.sqlite import job_changes as sqlite_job_changes
from stoker.store.sqlite import outcomes as sqlite_outcomes
from stoker.store.sqlite import schedules as sqlite_schedules
from stoker.store.sqlite import submissions as sqlite_submissions
from stoker.store.sqlite.reads import SqliteReader
from stoker.store.sqlite.rows import Q
from stoker.store.sqlite.store import SqliteStore
from stoker.store.sqlite.transaction import SqliteTransaction
from stoker.store.sqlite.unique import SqliteUniqueKeys
from stoker.store.submissions import Accepted, Submission
from stoker.wire import frames
from stoker.wire.frames import ClaimRef
from stoker.worker.child_pool import ChildPool
from stoker.worker.slot import Slot
from stoker.worker.supervisor import Supervisor
from tests.sim.world import LEASE_SECONDS, World, run

LIMIT: Final = 1_000


class Patch:
    """Changes that can be taken back."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Replace an attribute; the old one."""
        old = getattr(owner, name)
        self._undo.append(lambda: setattr(owner, name, old))
        setattr(owner, name, value)
        return old

    def sql(self, name: str, old: str, new: str) -> None:
        """Change a statement of the embedded store."""
        statement = Q[name]
        assert old in statement, f"{name} does not say {old!r} any more"
        self._undo.append(lambda: Q.__setitem__(name, statement))
        Q[name] = statement.replace(old, new)

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()


Bug = Callable[[Patch], None]
BUGS: Final[dict[str, Bug]] = {}


def bug(plant: Bug) -> Bug:
    BUGS[plant.__name__] = plant
    return plant


@contextmanager
def planted(name: str) -> Iterator[None]:
    patch = Patch()
    try:
        BUGS[name](patch)
        yield
    finally:
        patch.undo()


# ── unique keys, expiry and edits ──────────────────────────────────────────────────────────────────────────────────


@bug
def unique_keys_are_not_looked_at(patch: Patch) -> None:
    """A submission is stored whoever holds its key."""
    patch.set(SqliteUniqueKeys, "take", lambda self, job, on_conflict, find: None)


@bug
def every_claim_frees_the_unique_key(patch: Patch) -> None:
    """A key is given up at the claim, also by a job that holds it until it has finished."""
    patch.set(sqlite_claims, "freed_by_claim", lambda before: key_of(before.extras))


@bug
def a_replay_does_not_take_its_key(patch: Patch) -> None:
    """A job is replayed whoever holds its key by now."""
    patch.set(SqliteUniqueKeys, "take_again", lambda self, job: True)


@bug
def expired_jobs_are_claimed(patch: Patch) -> None:
    """Only upkeep looks at expiries, and it comes too late."""
    patch.set(sqlite_claims, "split_by_time", lambda batches, now: (list(batches), []))


@bug
def edits_are_answered_and_not_stored(patch: Patch) -> None:
    """A client is told of a change that was never written."""
    patch.set(SqliteTransaction, "_rewrite", lambda self, before, after: True)


# ── the fence ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _whoever_sends_it(patch: Patch) -> None:
    """A report is taken from any session, as long as the store finds a claim for it."""

    async def claims(self: ReportSink, session: Any, reports: Any, found: list[Claim | None]) -> Any:
        unknown = [i for i, claim in enumerate(found) if claim is None]
        if not unknown:  # nor does the original ask then: until the bug matters, the run is that without it
            return found
        keys = [(reports[i].id, reports[i].claim_id) for i in unknown]
        for i, claim in zip(unknown, await self._store.claims(keys), strict=True):
            found[i] = claim
        return found

    patch.set(ReportSink, "_claims", claims)


@bug
def no_fence_on_complete(patch: Patch) -> None:
    """An end is written for whoever sends it, as long as the job runs."""
    _whoever_sends_it(patch)
    patch.sql("complete_jobs", "jobs.claim_id = v.column2 AND ", "")

    def claim(self: SqliteReader, id: str, claim_id: int) -> Claim | None:
        job = self.get(id)
        return None if job is None or job.status != "running" else claim_of(job)

    patch.set(SqliteReader, "claim", claim)


@bug
def fence_by_attempt(patch: Patch) -> None:
    """The attempt number is the fence; but a hand-back gives it away again."""
    _whoever_sends_it(patch)
    patch.sql("complete_jobs", "jobs.claim_id = v.column2", "jobs.attempt = v.column2")

    write = SqliteTransaction._complete

    def complete(self: SqliteTransaction, all_done: list[Completions]) -> set[tuple[int, int]]:
        return write(self, [replace(done, claim=_with_attempt(done.claim)) for done in all_done])

    patch.set(SqliteTransaction, "_complete", complete)

    def claim(self: SqliteReader, id: str, claim_id: int) -> Claim | None:
        job = self.get(id)
        if job is None or job.status != "running":
            return None
        same = [a for a in self.attempts(id) if a.claim_id == claim_id and a.attempt == job.attempt]
        return claim_of(job) if same else None

    patch.set(SqliteReader, "claim", claim)

    original = SqliteTransaction._end_attempt

    def end(self: SqliteTransaction, claim: Claim, outcome: Outcome) -> Any:
        job = self._by_seq(claim.seq)
        same = job is not None and job.status == "running" and job.attempt == claim.attempt
        return original(self, claim_of(job) if same and job is not None else claim, outcome)

    patch.set(SqliteTransaction, "_end_attempt", end)


def _with_attempt(claim: Claim) -> Claim:
    return replace(claim, claim_id=claim.attempt)


@bug
def result_stored_without_claim(patch: Patch) -> None:
    """A refused completion leaves its result behind."""
    _whoever_sends_it(patch)
    original = SqliteTransaction._complete_singly

    def singly(
        self: SqliteTransaction, rows: list[CompletionRow], claims: list[Claim], written: set[tuple[int, int]]
    ) -> set[tuple[int, int]]:
        refused = original(self, rows, claims, written)
        for row in rows:
            self._db.execute("UPDATE jobs SET result = ? WHERE seq = ?", (row[6], row[0]))
        return refused

    patch.set(SqliteTransaction, "_complete_singly", singly)

    def claim(self: SqliteReader, id: str, claim_id: int) -> Claim | None:
        job = self.get(id)
        return None if job is None else replace(claim_of(job), claim_id=claim_id)

    patch.set(SqliteReader, "claim", claim)


@bug
def replay_resets_the_claim(patch: Patch) -> None:
    """A replay begins to count claims anew."""
    patch.sql("replay_job", "attempt = 0", "attempt = 0, claim_id = 0")


_STAYS: Final = "WHEN sessions.status IN ('draining', 'lost') THEN sessions.status"


@bug
def replay_keeps_its_attempts(patch: Patch) -> None:
    """A replayed job has no attempts left: its first failure is its last."""
    patch.sql("replay_job", "attempt = 0, ", "")


@bug
def replay_keeps_its_crashes(patch: Patch) -> None:
    patch.sql("replay_job", "crashes = 0, ", "")


@bug
def a_lost_session_is_renewed(patch: Patch) -> None:
    """A worker that was given up may go on as if nothing had happened, and for the store it stays given up."""
    patch.sql("renew_session", "AND status IN ('live', 'draining')", "")
    patch.sql("session_status", "SELECT status", "SELECT replace(status, 'lost', 'live')")
    patch.sql("upsert_session", "WHEN sessions.status = 'draining' THEN 'draining'", _STAYS)


@bug
def restarted_worker_keeps_its_session(patch: Patch) -> None:
    """The session is called like the worker, so a restart hides what the dead one held."""
    original = World.new_supervisor

    def new(
        self: World, settings: Any, dialer: Any, machine: Any, new_id: Any, runner: Any = None
    ) -> Supervisor:
        supervisor = original(self, settings, dialer, machine, lambda: str(settings.worker_name), runner)
        supervisor._secret = f"the secret of {settings.worker_name}"
        supervisor._new_secret = lambda: supervisor._secret
        return supervisor

    patch.set(World, "new_supervisor", new)
    patch.sql("session_status", "SELECT status", "SELECT 'live'")
    patch.sql("renew_session", "AND status IN ('live', 'draining')", "")


# ── acknowledgements ───────────────────────────────────────────────────────────────────────────────────────────────


@bug
def submit_acknowledged_before_commit(patch: Patch) -> None:
    original = SqliteStore.insert

    async def insert(self: SqliteStore, submissions: Sequence[Submission]) -> list[Accepted]:
        if any(submission.key is not None for submission in submissions):
            return await original(self, submissions)
        task = asyncio.get_running_loop().create_task(original(self, submissions))
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return [Accepted(submission.batch, False) for submission in submissions]

    patch.set(SqliteStore, "insert", insert)


@bug
def an_unknown_commit_is_repeated(patch: Patch) -> None:
    """A submission of which nobody knows whether it was stored is stored again, under a new id."""
    original = JobService.submit

    async def submit(self: JobService, jobs: Sequence[Submission]) -> Submitted:
        try:
            return await original(self, jobs)
        except StoreUnavailable:
            again = [
                Submission(batch_of(replace(job, id=f"{job.id}x")), item.key)
                for item in jobs
                for job in item.batch
            ]
            return await original(self, again)

    patch.set(JobService, "submit", submit)


@bug
def report_acknowledged_before_commit(patch: Patch) -> None:
    original = Connection._store_reports

    async def store(self: Connection, session: Any, frame: frames.Reports, *released: Any) -> None:
        session.send(frames.Ack(frame.number, []))
        await original(self, session, frame, *released)

    patch.set(Connection, "_store_reports", store)


@bug
def report_not_sent_again(patch: Patch) -> None:
    """What a broken connection swallowed is forgotten."""

    def send_again(self: Supervisor) -> None:
        self._reports.unacknowledged.clear()
        self._flush()

    patch.set(Supervisor, "_send_again", send_again)


@bug
def duplicate_report_counts_twice(patch: Patch) -> None:
    """A report that comes again is charged again."""

    def claim(self: SqliteReader, id: str, claim_id: int) -> Claim | None:
        job = self.get(id)
        if job is None or job.claim_id != claim_id or job.status == "completed":
            return None
        return replace(claim_of(job), session_id=self.attempts(id)[-1].worker_id or "")

    def repeated(self: SqliteTransaction, job: Job | None, claim: Claim, outcome: Outcome) -> Any:
        if job is not None and job.claim_id == claim.claim_id and outcome.kind == "error":
            self._db.execute("UPDATE jobs SET attempt = attempt + 1 WHERE seq = ?", (job.seq,))
            return job.status
        return None

    patch.set(SqliteReader, "claim", claim)
    patch.set(SqliteTransaction, "_repeated_end", repeated)


# ── idempotency ────────────────────────────────────────────────────────────────────────────────────────────────────


@bug
def key_checked_outside_the_transaction(patch: Patch) -> None:
    original = SqliteStore.insert

    async def insert(self: SqliteStore, submissions: Sequence[Submission]) -> list[Accepted]:
        for submission in submissions:
            key = submission.key
            if key is not None and await self.known_key(key.client, key.key):
                return await original(self, submissions)
        fresh = await original(self, [Submission(submission.batch) for submission in submissions])
        rows = [
            (key.client, key.key, key.digest, accepted.job.id, key.expires_at)
            for submission, accepted in zip(submissions, fresh, strict=True)
            if (key := submission.key) is not None
        ]
        if not self._db.in_transaction:
            self._db.executemany(Q["put_key"], rows)
        return fresh

    patch.set(SqliteStore, "insert", insert)


@bug
def key_accepts_another_body(patch: Patch) -> None:
    original = SqliteStore.insert

    async def insert(self: SqliteStore, submissions: Sequence[Submission]) -> list[Accepted]:
        blind = [
            Submission(s.batch, None if s.key is None else replace(s.key, digest=b"")) for s in submissions
        ]
        return await original(self, blind)

    patch.set(SqliteStore, "insert", insert)


# ── ids made by clients ────────────────────────────────────────────────────────────────────────────────────────────


@bug
def client_id_not_looked_up_in_history(patch: Patch) -> None:
    """Finished jobs are not asked for their ids, and their rows are in nobody's way, as where they have a table of their
    own: the job is made again."""
    original = SqliteTransaction._client_ids

    def client_ids(self: SqliteTransaction, named: list[str]) -> ClientIds:
        out_of_the_way = "UPDATE jobs SET id = id || '-' || seq WHERE id = ? AND completed_at IS NOT NULL"
        self._db.executemany(out_of_the_way, [(id,) for id in named])
        return original(self, named)

    patch.set(SqliteTransaction, "_client_ids", client_ids)


@bug
def client_id_accepts_another_body(patch: Patch) -> None:
    patch.set(ClientIds, "_refusal", lambda self, id, digest: None)


@bug
def client_id_conflict_fails_neighbours(patch: Patch) -> None:
    """A refusal is the answer to all later calls of its transaction, too."""
    original = SqliteTransaction._insert_call

    def insert_call(self: Any, call: Sequence[Submission], keys: Any, ids: ClientIds) -> Any:
        spoilt = getattr(self, "spoilt", None)
        answer = original(self, call, keys, ids) if spoilt is None else spoilt
        if isinstance(answer, IdMismatch):
            self.spoilt = answer
        return answer

    patch.set(SqliteTransaction, "_insert_call", insert_call)


# ── leases ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@bug
def rescue_by_duration(patch: Patch) -> None:
    """A job that runs for long is taken for stuck, whatever its worker says."""
    original = SqliteTransaction._expire

    def expire(self: SqliteTransaction, since: int, policy: RetryPolicy) -> Expired:
        expired = original(self, since, policy)
        limit = self._now - 2 * int(LEASE_SECONDS * SECOND)
        self._db.execute(
            "UPDATE jobs SET worker_id = 'nobody' WHERE status = 'running' AND claimed_at < ?", (limit,)
        )
        return Expired(expired.sessions, expired.losses + self._lose("nobody", policy))

    patch.set(SqliteTransaction, "_expire", expire)


@bug
def heartbeat_from_inside_the_job(patch: Patch) -> None:
    """A worker that is busy does not send heartbeats."""
    original = Supervisor._beat

    def beat(self: Supervisor) -> None:
        if not self._pool.used:
            original(self)

    patch.set(Supervisor, "_beat", beat)


@bug
def worker_goes_on_without_a_lease(patch: Patch) -> None:
    """A worker that cannot renew does not kill what it runs."""
    patch.set(Supervisor, "_extend_lease", lambda self, confirmed: None)


@bug
def lease_counts_from_the_answer(patch: Patch) -> None:
    """The lease is counted from the moment at which the renewal arrived, not from when it was sent."""

    def extend(self: Supervisor, confirmed: float) -> None:
        original(self, self._loop.time())

    original = patch.set(Supervisor, "_extend_lease", extend)


@bug
def a_lease_that_is_too_long(patch: Patch) -> None:
    """The lease is counted from the moment at which the renewal arrived, not from when it was sent, and is too long."""

    def extend(self: Supervisor, confirmed: float) -> None:
        self._lease_ends = self._loop.time() + self._lease_seconds * 1.5

    patch.set(Supervisor, "_extend_lease", extend)


@bug
def killed_at_lease_end_without_a_word(patch: Patch) -> None:
    """What was killed because the lease was over is neither held nor reported: it passes for never assigned."""
    patch.set(ChildPool, "lose_all", ChildPool.kill_all)


@bug
def expiry_right_after_an_outage(patch: Patch) -> None:
    """A coordinator that was away judges at once by heartbeats that nobody could have stored."""
    original = upkeep.Upkeep.tick

    async def tick(self: upkeep.Upkeep) -> None:
        self._last_tick, self._last_wall = self._clock.monotonic(), self._clock.now_us()
        self._judging_since = float("-inf")
        await original(self)

    patch.set(upkeep.Upkeep, "tick", tick)


@bug
def lost_jobs_not_requeued(patch: Patch) -> None:
    """A silent session is given up, and its jobs are forgotten."""
    patch.set(SqliteTransaction, "_lose", lambda self, session_id, policy: [])


@bug
def lost_assignment_never_reconciled(patch: Patch) -> None:
    """A claim whose assignment was lost on the way stays with a worker that never heard of it."""
    original = compare
    patch.set(connection, "compare", lambda *given: ([], original(*given)[1]))
    patch.set(connection, "forgotten", lambda *_: [])


@bug
def deaf_after_a_reconnect(patch: Patch) -> None:
    """The end of an old connection takes the new one of the same session out of the list."""

    def remove(self: Sessions, session: Any, now: int) -> None:
        self._sessions.pop(session.id, None)
        self._count_types()

    patch.set(Sessions, "remove", remove)


@bug
def dead_line_kept_for_ever(patch: Patch) -> None:
    """A worker waits on a connection that something on the way forgot."""
    patch.set(Supervisor, "_drop_dead_link", lambda self, now: None)


# ── attempts ───────────────────────────────────────────────────────────────────────────────────────────────────────


@bug
def hand_back_is_charged(patch: Patch) -> None:
    def after(job: Job, outcome: Outcome, now: int) -> Job:
        return replace(after_attempt(job, outcome, now), attempt=job.attempt)

    patch.set(sqlite_outcomes, "after_attempt", after)


@bug
def lost_lease_is_free(patch: Patch) -> None:
    """A requeued job keeps the attempt that it had before."""

    def after(job: Job, outcome: Outcome, now: int) -> Job:
        ended = after_attempt(job, outcome, now)
        return replace(ended, attempt=job.attempt - 1) if outcome.kind == "lost" else ended

    patch.set(sqlite_outcomes, "after_attempt", after)


@bug
def max_attempts_ignored(patch: Patch) -> None:
    def endless(kind: Any, claim: Claim, policy: RetryPolicy, spread: float, *note: Any) -> Any:
        return decide(kind, replace(claim, max_attempts=claim.attempt + 1), policy, spread, *note)

    patch.set(reports, "decide", endless)


@bug
def first_crash_is_the_last(patch: Patch) -> None:
    """A crash counts for three."""

    def after(job: Job, outcome: Outcome, now: int) -> Job:
        ended = after_attempt(job, outcome, now)
        return replace(ended, crashes=ended.crashes + 2 * (outcome.kind == "crash"))

    patch.set(sqlite_outcomes, "after_attempt", after)


@bug
def crashes_not_counted(patch: Patch) -> None:
    """A job that kills its process gets all its attempts."""

    def forgiving(kind: Any, claim: Claim, policy: RetryPolicy, spread: float, *note: Any) -> Any:
        return decide(kind, replace(claim, crashes=0), policy, spread, *note)

    patch.set(reports, "decide", forgiving)


@bug
def errors_are_queued_at_once(patch: Patch) -> None:
    """An attempt that failed goes straight back into the queue."""

    def hasty(kind: Kind, claim: Claim, policy: RetryPolicy, spread: float, *note: Any) -> tuple[Event, int]:
        event, delay_us = decide(kind, claim, policy, spread, *note)
        return ("lost", 0) if event == "retried" else (event, delay_us)

    patch.set(reports, "decide", hasty)


@bug
def retries_without_backoff(patch: Patch) -> None:
    def hasty(kind: Any, claim: Claim, policy: RetryPolicy, spread: float, *note: Any) -> Any:
        event, delay = decide(kind, claim, policy, spread, *note)
        return event, delay // 4

    patch.set(reports, "decide", hasty)


@bug
def own_policies_are_ignored(patch: Patch) -> None:
    """A job with a retry policy of its own waits as long as the others."""

    def plain(kind: Any, claim: Claim, policy: RetryPolicy, spread: float, *note: Any) -> Any:
        return decide(kind, replace(claim, extras=None), policy, spread, *note)

    patch.set(reports, "decide", plain)


@bug
def never_is_ignored(patch: Patch) -> None:
    """An error that the policy says is not worth a retry is tried again, at once."""
    patch.set(retry_domain, "_worth_a_retry", lambda rules, kind, note: True)
    patch.set(retry_domain, "delay_sec", lambda rules, retry, spread: 0.0)


@bug
def snoozes_are_charged(patch: Patch) -> None:
    def after(job: Job, outcome: Outcome, now: int) -> Job:
        ended = after_attempt(job, outcome, now)
        return replace(ended, attempt=job.attempt) if outcome.kind == "snoozed" else ended

    patch.set(sqlite_outcomes, "after_attempt", after)


@bug
def snoozes_are_not_counted(patch: Patch) -> None:
    def after(job: Job, outcome: Outcome, now: int) -> Job:
        return replace(after_attempt(job, outcome, now), extras=job.extras)

    patch.set(sqlite_outcomes, "after_attempt", after)


@bug
def webhooks_of_the_cancelled_are_forgotten(patch: Patch) -> None:
    original = webhooks_domain.delivery_of

    def forgetful(job: Job, now: int) -> Job | None:
        return None if job.status == "cancelled" else original(job, now)

    patch.set(sqlite_submissions, "delivery_of", forgetful)


@bug
def a_repeated_report_is_told_again(patch: Patch) -> None:
    """A completion that was stored before makes another delivery."""
    original = SqliteTransaction._complete_singly

    def again(self: Any, rows: Any, claims: Any, written: Any) -> Any:
        refused = original(self, rows, claims, written)
        written.update(row[:2] for row in rows if row[:2] not in refused)
        return refused

    patch.set(SqliteTransaction, "_complete_singly", again)
    delivery = webhooks_domain._delivery_id
    numbers = itertools.count()
    patch.set(webhooks_domain, "_delivery_id", lambda job, now: f"{delivery(job, now)}-{next(numbers)}")


@bug
def deliveries_with_a_lost_claim_stay_claimed(patch: Patch) -> None:
    """A delivery that was claimed by a commit whose answer was lost is kept by the lease of its session."""
    from stoker.coordinator import webhooks

    patch.set(webhooks, "forgotten", lambda session, stored, held, now: [])


@bug
def deliveries_are_never_sent(patch: Patch) -> None:
    from stoker.coordinator.webhooks import Webhooks

    patch.set(Webhooks, "_launch", lambda self, job: None)


@bug
def drain_is_charged(patch: Patch) -> None:
    """What still runs when the grace period is over counts as crashed."""
    original = Slot.end_work

    def end_work(self: Slot, work: Any, kind: Any, *rest: Any) -> None:
        original(self, work, "crash" if kind == "handed_back" else kind, *rest)

    patch.set(Slot, "end_work", end_work)


@bug
def neighbours_of_a_killed_task_start_again(patch: Patch) -> None:
    """Tasks that shared a process with one that was killed run again under the same claim."""
    patch.set(ChildPool, "_hand_back_started", lambda self, works: self._put_back(works))


@bug
def an_assignment_that_comes_twice_is_taken_twice(patch: Patch) -> None:
    """Neither the number of its frame nor its claim is looked at."""
    original = Supervisor._take

    def take(self: Supervisor, number: int, batches: list[frames.AssignmentBatch]) -> None:
        original(self, 0, batches)
        self._assigned = number

    patch.set(Supervisor, "_take", take)
    patch.set(Supervisor, "_without_known_claims", lambda self, batches, known: batches)


@bug
def timeout_ignored(patch: Patch) -> None:
    original = ChildPool.take

    def take(self: ChildPool, batches: list[frames.AssignmentBatch]) -> None:
        original(
            self, [replace(batch, template=replace(batch.template, timeout_sec=None)) for batch in batches]
        )

    patch.set(ChildPool, "take", take)


@bug
def crash_reported_as_completed(patch: Patch) -> None:
    """A child that was killed is taken for one that did its work."""

    def victim(self: ChildPool, slot: Any, work: Any, started: float | None) -> None:
        del self.works[work.id]
        now = self._now()
        ended = WorkOutcome(-1, "completed", b"null", None, started, now, id=work.id, claim_id=work.claim_id)
        self._ended(OutcomeBatch(others=[ended]))

    patch.set(ChildPool, "_end_victim", victim)


@bug
def death_is_told_by_the_pipe_alone(patch: Patch) -> None:
    """A child counts as alive until its pipe ends, and a process that a task forked keeps that open."""
    original = ChildPool.tick

    def tick(self: ChildPool) -> Any:
        for child in self.children:
            child.poll = lambda: None  # type: ignore[method-assign]
        return original(self)

    patch.set(ChildPool, "tick", tick)


# ── cancelling ─────────────────────────────────────────────────────────────────────────────────────────────────────


@bug
def cancel_only_in_memory(patch: Patch) -> None:
    """The cancel of a running job is told to its worker and written down nowhere."""
    patch.sql(
        "request_cancel", "SET cancel_requested_at = ?2", "SET cancel_requested_at = iif(?2, NULL, NULL)"
    )


@bug
def cancel_leaves_it_queued(patch: Patch) -> None:
    patch.sql("cancel_waiting", "('blocked', 'scheduled', 'queued')", "('blocked', 'scheduled')")


@bug
def cancel_not_told(patch: Patch) -> None:
    """The cancel of a running job is written down and told to nobody."""
    patch.set(Peers, "_tell_to_cancel", lambda self, session_id, claim: True)
    patch.set(Connection, "_cancel_again", lambda self, session, held: None)


@bug
def cancel_told_late(patch: Patch) -> None:
    """The worker of a cancelled job hears of it a quarter of a minute later."""
    original = Peers._tell_to_cancel

    def tell(self: Peers, session_id: str, claim: ClaimRef) -> bool:
        asyncio.get_running_loop().call_later(15.0, original, self, session_id, claim)
        return self._sessions.get(session_id) is not None

    patch.set(Peers, "_tell_to_cancel", tell)
    patch.set(Connection, "_cancel_again", lambda self, session, held: None)


@bug
def cancel_overwrites_an_outcome(patch: Patch) -> None:
    patch.sql(
        "cancel_waiting",
        "('blocked', 'scheduled', 'queued')",
        "('blocked', 'scheduled', 'queued', 'completed')",
    )


# ── waiting jobs, totals ───────────────────────────────────────────────────────────────────────────────────────────


@bug
def promote_skips_some(patch: Patch) -> None:
    patch.sql("due_jobs", "status = 'scheduled'", "status = 'scheduled' AND seq % 7 > 0")
    patch.sql("next_due", "status = 'scheduled'", "status = 'scheduled' AND seq % 7 > 0")


@bug
def delayed_jobs_wait_longer(patch: Patch) -> None:
    patch.sql("due_jobs", "run_at <= +?", "run_at <= ? - 20000000")
    patch.sql("next_due", "min(run_at)", "min(run_at) + 20000000")


@bug
def delayed_jobs_run_at_once(patch: Patch) -> None:
    patch.sql("due_jobs", "run_at <= +?", "run_at <= ? + 600000")
    patch.sql("next_due", "min(run_at)", "min(run_at) - 600000")


@bug
def retries_wait_for_a_clock_that_was_set_back(patch: Patch) -> None:
    """What a clock that was ahead wrote down is never corrected."""
    patch.set(SqliteTransaction, "_correct_times", lambda self, limit: 0)


@bug
def a_claim_is_not_written(patch: Patch) -> None:
    """A job that is inserted as already claimed is stored as queued, so somebody else gets it too."""

    def write_fresh(self: SqliteTransaction) -> None:
        for place, batch in enumerate(self._settled):
            if batch.template.status == "running":
                self._settled[place] = batch.changed(_unclaimed(batch.template))
        original(self)

    original = patch.set(SqliteTransaction, "_write_fresh", write_fresh)


def _unclaimed(job: Job) -> Job:
    return replace(
        job,
        status="queued",
        claim_id=job.claim_id - 1,
        attempt=job.attempt - 1,
        worker_id=None,
        threads_granted=None,
        claimed_at=None,
    )


@bug
def counters_miss_the_cancelled(patch: Patch) -> None:
    original = SqliteTransaction._count

    def count(self: SqliteTransaction, job: Any, leaves: Any, enters: Any, number: int = 1) -> None:
        if enters != "cancelled":
            original(self, job, leaves, enters, number)

    patch.set(SqliteTransaction, "_count", count)


@bug
def waiting_answers_too_early(patch: Patch) -> None:
    """Whoever waits for a job is told its outcome before it is stored."""
    original = JobService.get

    async def get(self: JobService, id: str) -> Job:
        job = await original(self, id)
        return replace(job, status="completed") if job.status == "running" and job.attempt > 1 else job

    patch.set(JobService, "get", get)


@bug
def ready_without_a_write(patch: Patch) -> None:
    """Readiness is told by what can be read."""

    async def why_not(self: Readiness) -> str | None:
        return None

    patch.set(Readiness, "why_not", why_not)


@bug
def never_ready_again(patch: Patch) -> None:
    """A store that failed once counts as failed for good."""
    original = Readiness._note

    def note(self: Readiness, error: Exception | None) -> None:
        if error is not None or self._failure is None:
            original(self, error)

    patch.set(Readiness, "_note", note)


# ── the order ──────────────────────────────────────────────────────────────────────────────────────────────────────


@bug
def a_flood_goes_on_while_a_better_job_waits(patch: Patch) -> None:
    """A job that finds no place keeps nobody from being given to workers ahead of time."""
    patch.set(_Precedence, "keep_out", lambda self, job, lane: None)


@bug
def oversized_jobs_share_a_lane(patch: Patch) -> None:
    """Jobs that wait for a large worker stand before those that would run on one thread."""
    original = lane_key
    for module in (sqlite_submissions, sqlite_job_changes):
        patch.set(module, "lane_key", lambda job: (*original(job)[:-1], "degrade"))


# ── schedules ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _records_may_be_replaced(patch: Patch) -> None:
    """Without the unique key of records, which would stop what these bugs do."""
    statements = dict(sqlite_schedules.S)
    statements["put_tick"] = statements["put_tick_again"]
    patch.set(sqlite_schedules, "S", statements)


@bug
def a_tick_moves_on_before_its_job_is_stored(patch: Patch) -> None:
    """The schedule is advanced in one transaction and the jobs are inserted in another."""

    async def fire(self: Schedules) -> int:
        firings: list[Firing] = []

        def decide(seen: Seen) -> ScheduleDecision | None:
            decision = self._decide_due(seen)
            firings.extend(() if decision is None else decision.firings)
            return None if decision is None else replace(decision, firings=())

        changed = await self._store.change_schedules(ScheduleChange(decide, limit=50))
        if firings:
            await self._store.insert([Submission(batch_of(firing.job)) for firing in firings])
        return len(changed)

    patch.set(Schedules, "fire", fire)


@bug
def a_coordinator_trusts_its_own_copy_of_a_schedule(patch: Patch) -> None:
    """What is due is taken from memory: another coordinator may have fired it."""
    _records_may_be_replaced(patch)
    decide_due = Schedules._decide_due

    def from_memory(self: Schedules, seen: Seen) -> ScheduleDecision | None:
        known: dict[str, Any] = self.__dict__.setdefault("copies", {})
        decision = decide_due(self, replace(seen, schedule=known.get(seen.name, seen.schedule)))
        if decision is not None:
            known[seen.name] = decision.schedule
        return decision

    patch.set(Schedules, "_decide_due", from_memory)


@bug
def ticks_of_an_outage_are_forgotten(patch: Patch) -> None:
    """Whatever is found later than two seconds is not made up for."""
    patch.set(rules, "window_us", lambda schedule: 2 * SECOND)


@bug
def a_clock_that_is_set_back_brings_ticks_again(patch: Patch) -> None:
    """The next tick follows from the clock, and not from what is recorded."""
    _records_may_be_replaced(patch)
    step = rules.step

    def from_the_clock(schedule: Any, now: int, statuses: Any) -> Any:
        first = schedule.recurrence.after(now)
        if schedule.next_at is not None and first is not None and first < schedule.next_at:
            schedule = replace(schedule, next_at=first)
        return step(schedule, now, statuses)

    patch.set(rules, "step", from_the_clock)
    patch.set(
        sqlite_schedules,
        "S",
        sqlite_schedules.S | {"due": sqlite_schedules.S["due"].replace("due_at <= ?", "?1 = ?1")},
    )


@bug
def the_latest_tick_of_a_batch_counts_for_all(patch: Patch) -> None:
    """Of ticks that are due at once only the latest fires, whatever the schedule says."""
    patch.set(rules, "MAX_CATCH_UP", 1)
    judged = rules._judged
    patch.set(
        rules, "_judged", lambda schedule, due, now: judged(replace(schedule, catch_up_max=1), due, now)
    )


# ── running them ───────────────────────────────────────────────────────────────────────────────────────────────────


# ── bytes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@bug
def claims_without_a_byte_bound(patch: Patch) -> None:
    """A claim takes everything for which there are threads and prefetch, however large."""
    patch.set(byte_bounds, "within", lambda plan, workers, sizes, bounds: (plan, False))


@bug
def a_slow_connection_gets_more(patch: Patch) -> None:
    """What waits for a connection is not looked at."""
    patch.set(Unsent, "add", lambda self, size: self._sizes.append(0))


class Hunt(NamedTuple):
    bug: str
    seeds: int | None
    """How many seeds it took; None when the bug was not found."""
    by: str
    seconds: float


def hunt(name: str, limit: int = LIMIT) -> Hunt:
    """Run seeds until the bug is found: one that fails with it and does not fail without it."""
    started = time.monotonic()
    for seed in range(limit):
        with planted(name):
            result = run(seed, keep_lines=False)
        if result.violations and run(seed, keep_lines=False).ok:
            return Hunt(name, seed + 1, result.violations[0].invariant, time.monotonic() - started)
    return Hunt(name, None, "", time.monotonic() - started)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants")
    parser.add_argument("bugs", nargs="*", help="which ones; all if none is named")
    parser.add_argument("--limit", type=int, default=LIMIT, help="seeds to try")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    options = parser.parse_args()
    names = options.bugs or list(BUGS)
    found: dict[str, Hunt] = {}
    with ProcessPoolExecutor(options.jobs, initializer=gc.freeze) as pool:
        for hunted in as_completed([pool.submit(hunt, name, options.limit) for name in names]):
            result = hunted.result()
            found[result.bug] = result
            sys.stderr.write(f"{result.bug}: {_seeds(result)} in {result.seconds:.0f} s\n")
    survivors = sum(result.seeds is None for result in found.values())
    sys.stdout.write(table([found[name] for name in names]))
    sys.stdout.write(f"{len(names)} bugs, {survivors} survived\n")
    return 1 if survivors else 0


def table(hunts: Sequence[Hunt]) -> str:
    head = f"| {'planted bug':<42} | seeds | found by {'':<36} |\n|{'-' * 44}|------:|{'-' * 47}|\n"
    return head + "".join(
        f"| {hunt.bug:<42} | {_seeds(hunt):>5} | {hunt.by or 'SURVIVED':<45} |\n" for hunt in hunts
    )


def _seeds(hunt: Hunt) -> str:
    return "none" if hunt.seeds is None else str(hunt.seeds)


if __name__ == "__main__":
    sys.exit(main())
