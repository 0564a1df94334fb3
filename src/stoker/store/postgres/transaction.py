"""One transaction of the shared store: many commands, step by step.

It has the shape of the embedded store's transaction (`stoker.store.sqlite.transaction`): reports before claims, jobs
to insert resolved before the claim and written after it, so that a job which finds a free worker is written once, as
already claimed. What differs is that others write to the same tables. So nothing is believed that was not read, or
locked, in this transaction; and jobs that another coordinator is claiming are stepped over. What a transaction has to
wait for it locks in one order: sessions, then unique keys, then jobs, each in the order of their names or numbers.
So two transactions wait for each other and never in a circle.

The statements take arrays, so a transaction costs a handful of exchanges with the server however many jobs it carries. One
that only inserts and claims jobs, or only completes some, is a single statement without BEGIN and COMMIT
(docs/decisions/0015). Many different jobs are written by COPY.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from stoker.store.group_commit import Step, by_step
from stoker.store.postgres.claims import PostgresClaims
from stoker.store.postgres.rows import Q, is_id
from stoker.store.postgres.schedules import PostgresSchedules
from stoker.store.postgres.sessions import PostgresSessions
from stoker.store.postgres.state import ToLock
from stoker.store.postgres.upkeep import PostgresUpkeep


class PostgresTransaction(PostgresClaims, PostgresSessions, PostgresSchedules, PostgresUpkeep):
    """One write transaction: runs the steps that were called, in order, then writes what they left to its end."""

    async def run(self, calls: Sequence[tuple[Step, Any]]) -> list[Any]:
        """Run the calls, grouped by step in `order`; return their results in the order of the calls."""
        results: list[Any] = [None] * len(calls)
        self._only_completes = all(step is PostgresTransaction.complete for step, _ in calls)
        locked = False
        await self._lock_sessions(calls)
        for step, places in by_step(calls, order):
            if not locked and step not in OF_SESSIONS:
                locked = True
                await self._lock_ahead(calls)
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
        """Lock the sessions that these calls change: by one statement, where several would lock some one after the other."""
        opened = [argument.id for step, argument in calls if step is PostgresTransaction.open_session]
        judged = [argument[0] for step, argument in calls if step is PostgresTransaction.set_session_status]
        renewals = [argument for step, argument in calls if step is PostgresTransaction.renew]
        if len(opened) + len(judged) + bool(renewals) > 1:
            renewed = [item.session_id for item in chain.from_iterable(renewals)]
            await self._link.execute(Q["lock_sessions"], [*opened, *judged, *renewed])

    async def _lock_ahead(self, calls: Sequence[tuple[Step, Any]]) -> None:
        """Take keys, then lock jobs: by one statement, where several steps would lock some one after the other."""
        since = [argument[0] for step, argument in calls if step is PostgresTransaction.expire]
        if since:
            await self._lose_silent(max(since))
        submitted = [argument for step, argument in calls if step is PostgresTransaction.insert]
        if not self._only_completes and not LOCKING.isdisjoint(step for step, _ in calls):
            self._to_lock = to_lock(calls, self._orphans)
        await self._unique.take_all(submitted, self._keys_ahead, self._to_lock.replayed, self._holders)
        if self._to_lock.statements > 1:
            await self._lock_jobs()

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


def to_lock(calls: Sequence[tuple[Step, Any]], orphans: Sequence[str]) -> ToLock:
    """Return the jobs that these calls lock: those that clients name, and those whose attempts end."""
    ids: list[str] = []
    replayed: list[str] = []
    seqs: list[int] = []
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
    locking = [step for step, _ in calls if step in LOCKING]
    statements = len(set(locking) - ONE_BY_ONE) + sum(step in ONE_BY_ONE for step in locking)
    return ToLock([*ids, *replayed], seqs, orphans, replayed, statements)


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
        PostgresTransaction.discard,
        PostgresTransaction.started,
        PostgresTransaction.finish,
        PostgresTransaction.complete,
        PostgresTransaction.expire,
    }
)
"""Steps that lock jobs and wait for them."""

ONE_BY_ONE: Final[frozenset[Step]] = frozenset({PostgresTransaction.edit, PostgresTransaction.discard})
"""Those of them that lock jobs with each call."""

OF_SESSIONS: Final[tuple[Step, ...]] = (
    PostgresTransaction.open_session,
    PostgresTransaction.renew,
    PostgresTransaction.set_session_status,
    PostgresTransaction.note_types,
)
"""Steps that lock sessions; every transaction takes them before it locks keys and jobs."""
