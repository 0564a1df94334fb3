"""One transaction of the shared store: many commands, step by step.

It has the shape of the embedded store's transaction (`stoker.store.sqlite.transaction`): reports before claims, jobs
to insert resolved before the claim and written after it, so that a job which finds a free worker is written once, as
already claimed. What differs is that others write to the same tables. So nothing is believed that was not read, or
locked, in this transaction; rows are locked in the order of their numbers; and jobs that another coordinator is
claiming are stepped over.

The statements take arrays, and rows are written by COPY, so a transaction costs a handful of exchanges with the server
however many jobs it carries. One that only inserts and claims a few jobs, or only completes a few, is a
single statement without BEGIN and COMMIT (docs/decisions/0015).
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from stoker.store.group_commit import Step, by_step
from stoker.store.postgres.claims import PostgresClaims
from stoker.store.postgres.rows import Q, is_id
from stoker.store.postgres.schedules import PostgresSchedules
from stoker.store.postgres.sessions import PostgresSessions
from stoker.store.postgres.unique import Named
from stoker.store.postgres.upkeep import PostgresUpkeep


class PostgresTransaction(PostgresClaims, PostgresSessions, PostgresSchedules, PostgresUpkeep):
    """One write transaction: runs the steps that were called, in order, then writes what they left to its end."""

    async def run(self, calls: Sequence[tuple[Step, Any]]) -> list[Any]:
        """Run the calls, grouped by step in `order`; return their results in the order of the calls."""
        results: list[Any] = [None] * len(calls)
        self._only_completes = all(step is PostgresTransaction.complete for step, _ in calls)
        submitted = [argument for step, argument in calls if step is PostgresTransaction.insert]
        named = named_by(calls)
        await self._unique.take_all(submitted, self._keys_ahead, named, self._holders)
        if named.steps > 1:
            await self._found(named.ids)
        reported = reported_by(calls)
        if reported:
            await self._jobs("jobs_by_seq", reported, light=True)
        for step, places in by_step(calls, order):
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

    def commit_to_memory(self) -> bool:
        """Called after the commit: the memory follows the database. Whether jobs were left in the queue."""
        self._memory.first_in_line.remember(self._firsts, self._now)
        self._memory.first_in_line.forget(self._read)
        if self._lane_beside is not None:
            self._memory.learn(*self._lane_beside)
        self._memory.wake(self._woken)
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


def named_by(calls: Sequence[tuple[Step, Any]]) -> Named:
    """Return the jobs that clients name in these calls, whose rows the steps lock."""
    cancelled = [id for step, ids in calls if step is PostgresTransaction.cancel for id in ids]
    edited = [argument[0] for step, argument in calls if step is PostgresTransaction.edit]
    replays = [ids for step, ids in calls if step is PostgresTransaction.replay]
    replayed = [id for id in chain.from_iterable(replays) if is_id(id)]
    steps = sum(map(bool, (cancelled, edited, replayed)))
    return Named([*cancelled, *edited, *replayed], replayed, steps)


def reported_by(calls: Sequence[tuple[Step, Any]]) -> list[int]:
    """Return the jobs whose attempts these calls end, where they end in both ways: two steps would lock them one after the
    other, and so not in the order of their numbers."""
    ended = [item.claim.seq for step, items in calls if step is PostgresTransaction.finish for item in items]
    if not ended:
        return []
    done = [done for step, argument in calls if step is PostgresTransaction.complete for done in argument]
    return [*ended, *chain.from_iterable([item.seqs for item in done])] if done else []


def order() -> tuple[Step, ...]:
    """Return all steps, in the order in which a transaction takes them."""
    return (
        # sessions and queues
        PostgresTransaction.open_session,
        PostgresTransaction.renew,
        PostgresTransaction.set_session_status,
        PostgresTransaction.note_types,
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
