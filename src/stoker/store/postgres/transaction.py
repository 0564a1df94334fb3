"""One transaction of the shared store: many commands, step by step.

It has the shape of the embedded store's transaction (`stoker.store.sqlite.transaction`): reports before claims, jobs
to insert resolved before the claim and written after it, so that a job which finds a free worker is written once, as
already claimed. What differs is that others write to the same tables. So nothing is believed that was not read, or
locked, in this transaction; and jobs that another coordinator is claiming are stepped over.

What a transaction has to wait for it locks in one order, each kind by its names or numbers: the pauses of queues
(if it claims), sessions, types of jobs, bulk operations, unique keys, jobs, jobs that are over, apps and schedules, lanes,
idempotency keys, ids that clients made, time limits, counters. A transaction waits for jobs with its first statement that
locks some; what it needs later it takes if it can, and else it runs again (`JobsNeeded`, `KeysNeeded`) and takes that at its
beginning. What only tidies up steps over locked rows. So two transactions wait for each other and never in a circle.

The statements take arrays, so a transaction costs a handful of exchanges with the server however many jobs it carries. One
that only inserts and claims jobs, or only completes some, is a single statement without BEGIN and COMMIT
(docs/decisions/0015). Many different jobs are written by COPY.
"""

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any, Final

from stoker.store.group_commit import Step, by_step
from stoker.store.postgres.claims import PostgresClaims
from stoker.store.postgres.rows import Q, is_id
from stoker.store.postgres.schedules import PostgresSchedules
from stoker.store.postgres.sessions import PostgresSessions
from stoker.store.postgres.state import ToLock
from stoker.store.postgres.upkeep import PostgresUpkeep
from stoker.store.reads import WHOLE_JOBS


class PostgresTransaction(PostgresClaims, PostgresSessions, PostgresSchedules, PostgresUpkeep):
    """One write transaction: runs the steps that were called, in order, then writes what they left to its end."""

    async def run(self, calls: Sequence[tuple[Step, Any]]) -> list[Any]:
        """Run the calls, grouped by step in `order`; return their results in the order of the calls."""
        results: list[Any] = [None] * len(calls)
        steps = {step for step, _ in calls}
        self._only_completes = steps == {PostgresTransaction.complete}
        locked = False
        if not steps.isdisjoint(OF_SESSIONS):
            await self._lock_sessions(calls)
        for step, places in by_step(calls, order):
            if not locked and step not in OF_SESSIONS:
                locked = True
                await self._lock_ahead(calls, steps)
            answers = await step(self, [calls[place][1] for place in places])
            for place, answer in zip(places, answers, strict=True):
                results[place] = answer
        if self._left_behind:
            await self._write_left_behind()
        await self._write_fresh()
        await self._unique.write()
        await self._limits.write()
        await self._write_counts()
        return results

    async def _lock_sessions(self, calls: Sequence[tuple[Step, Any]]) -> None:
        """Lock the sessions that these calls change: by one statement, where several would lock some one after the other, or
        some after the types of jobs."""
        opened = [argument.id for step, argument in calls if step is PostgresTransaction.open_session]
        judged = [argument[0] for step, argument in calls if step is PostgresTransaction.set_session_status]
        renewals = [argument for step, argument in calls if step is PostgresTransaction.renew]
        since = _silent_since(calls)
        noted = since is not None and any(step is PostgresTransaction.note_types for step, _ in calls)
        if len(opened) + len(judged) + bool(renewals) + (since is not None) + noted > 1:
            renewed = [item.session_id for item in chain.from_iterable(renewals)]
            if opened:
                await self._link.execute(Q["lock_openings"])
            await self._link.execute(Q["lock_sessions"], [*opened, *judged, *renewed], since)

    async def _lock_ahead(self, calls: Sequence[tuple[Step, Any]], steps: Collection[Step]) -> None:
        """Take keys, then lock jobs: by one statement, where several steps would lock some one after the other."""
        since = _silent_since(calls) if PostgresTransaction.expire in steps else None
        if since is not None:
            await self._lose_silent(since)
        if not self._only_completes and (self._ahead.jobs or not LOCKING.isdisjoint(steps)):
            self._to_lock = to_lock(calls, self._orphans, self._ahead.jobs)
        if not OF_BULKS.isdisjoint(steps):
            await self._lock_bulks(calls)
        submitted = [argument for step, argument in calls if step is PostgresTransaction.insert]
        await self._unique.take_all(submitted, self._ahead.keys, self._to_lock.replayed, self._holders)
        if self._to_lock.statements > 1:
            await self._lock_jobs()
        if not OF_SCHEDULES.isdisjoint(steps):
            await self._lock_schedules(calls)

    async def _lock_bulks(self, calls: Sequence[tuple[Step, Any]]) -> None:
        """Lock the bulk operations that these calls change, unless there is one call, which locks its own first."""
        ids = [argument.bulk.id for step, argument in calls if step is PostgresTransaction.bulk_step]
        ids += [argument for step, argument in calls if step is PostgresTransaction.stop_bulk]
        if ids and (len(calls) > 1 or self._ahead.keys or self._ahead.jobs):
            await self._link.execute(Q["lock_bulks"], ids)

    async def _lock_schedules(self, calls: Sequence[tuple[Step, Any]]) -> None:
        """Lock the schedules that these calls name, where several would lock some one after the other, or after lanes."""
        declared = [argument for step, argument in calls if step is PostgresTransaction.declare_schedules]
        changed = [argument for step, argument in calls if step is PostgresTransaction.change_schedules]
        edits = sum(step is PostgresTransaction.edit for step, _ in calls)
        if len(declared) + len(changed) + edits > 1:
            await self._lock_jobs()
            await self._lock_names(declared, changed)

    def commit_to_memory(self) -> bool:
        """Called after the commit: the memory follows the database. Whether jobs were left in the queue."""
        self._memory.first_in_line.remember(self._firsts, self._now)
        self._memory.first_in_line.forget(self._read)
        if self._lane_beside is not None:
            self._memory.learn(*self._lane_beside)
        self._memory.wake(self._woken)
        self._memory.emptied(self._emptied)
        if self._purged_until:
            self._memory.purged.looked(self._purged_until)
        return bool(self._woken)

    async def _write_counts(self) -> None:
        counts = self._changed_counts()
        if new := self._ids.new:
            if await self._link.fetchval(Q["add_counts_of_named"], *counts, new, self._now):
                raise self._refused("the id of a job was sent again at the same time")
        elif counts[1]:
            await self._link.execute(Q["add_counts"], *counts)


def _silent_since(calls: Sequence[tuple[Step, Any]]) -> int | None:
    """Return since when a session must have been heard if these calls are not to give it up; None if they give up none."""
    return max((argument[0] for step, argument in calls if step is PostgresTransaction.expire), default=None)


def to_lock(calls: Sequence[tuple[Step, Any]], orphans: Sequence[str], ahead: Collection[str]) -> ToLock:
    """Return the jobs that these calls lock: those that clients name, those whose attempts end, the next ones of bulk
    operations, and those that an earlier try wanted (`ahead`)."""
    ids: list[str] = list(ahead)
    replayed: list[str] = []
    seqs: list[int] = []
    wherever: list[int] = []
    for step, argument in calls:
        if step is PostgresTransaction.cancel:
            ids += argument
        elif step is PostgresTransaction.edit:
            ids.append(argument[0])
        elif step is PostgresTransaction.discard:
            ids += argument
        elif step is PostgresTransaction.replay:
            replayed += [id for id in argument if is_id(id)]
        elif step in (PostgresTransaction.started, PostgresTransaction.finish):
            seqs += [item.claim.seq for item in argument]
        elif step is PostgresTransaction.complete:
            seqs += chain.from_iterable([done.seqs for done in argument])
        elif step is PostgresTransaction.bulk_step:
            wherever += argument.seqs
    locking = [step for step, _ in calls if step in LOCKING]
    statements = len(set(locking) - ONE_BY_ONE) + sum(step in ONE_BY_ONE for step in locking)
    sizes = {len(argument) > WHOLE_JOBS for step, argument in calls if step is PostgresTransaction.replay}
    statements += max(len(sizes) - 1, 0)
    # What an earlier try wanted too late is locked ahead, and then once more by the step that wants it.
    statements += 2 * bool(ahead)
    return ToLock([*ids, *replayed], [*seqs, *wherever], orphans, replayed, wherever, statements)


def order() -> tuple[Step, ...]:
    """Return all steps, in the order in which a transaction takes them."""
    return (
        *OF_SESSIONS,
        # reports
        PostgresTransaction.started,
        PostgresTransaction.finish,
        PostgresTransaction.complete,
        PostgresTransaction.expire,
        # changes that clients ask for
        PostgresTransaction.cancel,
        PostgresTransaction.edit,
        PostgresTransaction.replay,
        PostgresTransaction.replay_where,
        PostgresTransaction.discard,
        PostgresTransaction.discard_where,
        PostgresTransaction.put_bulk,
        PostgresTransaction.stop_bulk,
        PostgresTransaction.bulk_step,
        # upkeep
        PostgresTransaction.promote,
        PostgresTransaction.end_overdue,
        PostgresTransaction.correct_times,
        PostgresTransaction.purge,
        PostgresTransaction.probe,
        PostgresTransaction.purge_ticks,
        # schedules
        PostgresTransaction.declare_schedules,
        PostgresTransaction.change_schedules,
        # inserts
        PostgresTransaction.insert,
        # claims
        PostgresTransaction.claim,
    )


LOCKING: Final[frozenset[Step]] = frozenset(
    {
        PostgresTransaction.cancel,
        PostgresTransaction.edit,
        PostgresTransaction.replay,
        PostgresTransaction.replay_where,
        PostgresTransaction.discard,
        PostgresTransaction.discard_where,
        PostgresTransaction.bulk_step,
        PostgresTransaction.started,
        PostgresTransaction.finish,
        PostgresTransaction.complete,
        PostgresTransaction.expire,
    }
)
"""Steps that lock jobs and wait for them, or after which others do."""

ONE_BY_ONE: Final[frozenset[Step]] = frozenset(
    {
        PostgresTransaction.edit,
        PostgresTransaction.discard,
        PostgresTransaction.bulk_step,
    }
)
"""Those of them that lock jobs with each call."""

OF_BULKS: Final[frozenset[Step]] = frozenset({PostgresTransaction.bulk_step, PostgresTransaction.stop_bulk})
"""Steps that lock bulk operations."""

OF_SCHEDULES: Final[frozenset[Step]] = frozenset(
    {PostgresTransaction.declare_schedules, PostgresTransaction.change_schedules}
)
"""Steps that lock schedules."""

OF_SESSIONS: Final[tuple[Step, ...]] = (
    PostgresTransaction.open_session,
    PostgresTransaction.renew,
    PostgresTransaction.set_session_status,
    PostgresTransaction.note_types,
)
"""Steps that lock sessions; every transaction takes them before it locks keys and jobs."""
