"""One transaction of the embedded store: many commands, step by step.

The order of the steps (`order`) matters. Reports come before claims, so that what a report sets free can be claimed at once;
jobs to insert are resolved before the claim and written after it, so that a job which finds a free worker is written
once, as already claimed, by the same planner and under the same fence as any other.

A transaction changes the database, and collects the changes to the store's memory (lanes, counters), which are applied only
after the commit. So a transaction that fails leaves no trace.
"""

from collections.abc import Sequence
from typing import Any

from stoker.store.group_commit import Step, by_step
from stoker.store.sqlite.claims import SqliteClaims
from stoker.store.sqlite.rows import Q
from stoker.store.sqlite.schedules import SqliteSchedules
from stoker.store.sqlite.sessions import SqliteSessions
from stoker.store.sqlite.upkeep import SqliteUpkeep


class SqliteTransaction(SqliteClaims, SqliteSessions, SqliteSchedules, SqliteUpkeep):
    """One write transaction: runs the steps that were called, in order, then writes what they left to its end."""

    def run(self, calls: Sequence[tuple[Step, Any]]) -> list[Any]:
        """Run the calls, grouped by step in `order`; return their results in the order of the calls."""
        results: list[Any] = [None] * len(calls)
        for step, places in by_step(calls, order):
            answers = step(self, [calls[place][1] for place in places])
            for place, answer in zip(places, answers, strict=True):
                results[place] = answer
        if self._left_behind:
            self._write_left_behind()
        self._write_fresh()
        self._write_counts()
        return results

    def commit_to_memory(self) -> None:
        """Apply what the transaction changed to the store's memory. Called after the commit."""
        memory = self._memory
        for lane, id in self._lanes.items():
            memory.add_lane(lane, id)
        memory.active -= self._emptied - self._woken
        memory.active |= self._woken
        memory.first_in_line.remember(self._firsts, self._now)
        memory.first_in_line.forget(self._woken | self._read)
        memory.paused = self._paused
        if self._purged_until:
            memory.purged.looked(self._purged_until)
        memory.next_seq = self._seq

    def _write_counts(self) -> None:
        rows = [(*key, count) for key, count in sorted(self._deltas.items()) if count]
        if rows:
            self._db.executemany(Q["add_count"], rows)


def order() -> tuple[Step, ...]:
    """Return all steps, in the order in which a transaction takes them."""
    return (
        # sessions and queues
        SqliteTransaction.open_session,
        SqliteTransaction.renew,
        SqliteTransaction.set_session_status,
        SqliteTransaction.set_paused,
        SqliteTransaction.note_types,
        # reports
        SqliteTransaction.started,
        SqliteTransaction.finish,
        SqliteTransaction.complete,
        SqliteTransaction.expire,
        # changes that clients ask for
        SqliteTransaction.cancel,
        SqliteTransaction.edit,
        SqliteTransaction.replay,
        SqliteTransaction.replay_where,
        SqliteTransaction.discard,
        SqliteTransaction.discard_where,
        SqliteTransaction.put_bulk,
        SqliteTransaction.stop_bulk,
        SqliteTransaction.bulk_step,
        # upkeep
        SqliteTransaction.promote,
        SqliteTransaction.end_overdue,
        SqliteTransaction.correct_times,
        SqliteTransaction.purge,
        SqliteTransaction.put_series,
        SqliteTransaction.probe,
        SqliteTransaction.purge_ticks,
        # schedules
        SqliteTransaction.declare_schedules,
        SqliteTransaction.change_schedules,
        # inserts
        SqliteTransaction.insert,
        # claims
        SqliteTransaction.claim,
    )
