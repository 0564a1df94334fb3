"""One transaction of the shared store: many commands, each verb in its turn.

It has the shape of the embedded store's transaction (`stoker.store.sqlite.transaction`): reports before claims, jobs
to insert resolved before the claim and written after it, so that a job which finds a free worker is written once, as
already claimed. What differs is that others write to the same tables. So nothing is believed that was not read, or
locked, in this transaction; rows are locked in the order of their numbers; and jobs that another coordinator is
claiming are stepped over.

The statements take arrays, and rows are written by COPY, so a transaction costs a handful of exchanges with the server
however many jobs it carries.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from stoker.store.group_commit import by_verb
from stoker.store.postgres.claims import PostgresClaims
from stoker.store.postgres.rows import Q
from stoker.store.postgres.schedules import PostgresSchedules
from stoker.store.postgres.sessions import PostgresSessions
from stoker.store.postgres.state import columns
from stoker.store.postgres.upkeep import PostgresUpkeep


class PostgresTransaction(PostgresClaims, PostgresSessions, PostgresSchedules, PostgresUpkeep):
    """One write transaction: runs the steps that were called, in order, then writes what they left to its end."""

    async def run(self, calls: Sequence[tuple[str, Any]]) -> list[Any]:
        """Run the calls, grouped by verb in `VERBS` order; their results in the order of the calls."""
        results: list[Any] = [None] * len(calls)
        await self._unique.take_all(calls, self._holders)
        for verb, places in by_verb(calls, VERBS):
            answers = await VERBS[verb](self, [calls[place][1] for place in places])
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
        rows = [(*key, count) for key, count in sorted(self._deltas.items()) if count]
        if new := self._ids.new:
            values = (self._shard, *(columns(rows) if rows else [()] * 4), new, self._now)
            if await self._link.fetchval(Q["add_counts_of_named"], *values):
                raise self._repeated()
        elif rows:
            await self._link.execute(Q["add_counts"], self._shard, *columns(rows))


VERBS: Final[dict[str, Callable[[PostgresTransaction, list[Any]], Awaitable[Sequence[Any]]]]] = {
    "open_session": PostgresTransaction.open_session,
    "renew": PostgresTransaction.renew,
    "set_session_status": PostgresTransaction.set_session_status,
    "note_types": PostgresTransaction.note_types,
    "started": PostgresTransaction.started,
    "finish": PostgresTransaction.finish,
    "complete": PostgresTransaction.complete,
    "expire": PostgresTransaction.expire,
    "cancel": PostgresTransaction.cancel,
    "edit": PostgresTransaction.edit,
    "replay": PostgresTransaction.replay,
    "replay_where": PostgresTransaction.replay_where,
    "discard": PostgresTransaction.discard,
    "discard_where": PostgresTransaction.discard_where,
    "put_bulk": PostgresTransaction.put_bulk,
    "stop_bulk": PostgresTransaction.stop_bulk,
    "bulk_step": PostgresTransaction.bulk_step,
    "promote": PostgresTransaction.promote,
    "end_overdue": PostgresTransaction.end_overdue,
    "correct_times": PostgresTransaction.correct_times,
    "purge": PostgresTransaction.purge,
    "probe": PostgresTransaction.probe,
    "purge_ticks": PostgresTransaction.purge_ticks,
    "declare_schedules": PostgresTransaction.declare_schedules,
    "change_schedules": PostgresTransaction.change_schedules,
    "insert": PostgresTransaction.insert,
    "claim": PostgresTransaction.claim,
}
