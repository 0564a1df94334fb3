"""One transaction of the embedded store: many commands, each verb in its turn.

The order of the verbs matters. Reports come before claims, so that what a report sets free can be claimed at once;
jobs to insert are resolved before the claim and written after it, so that a job which finds a free worker is written
once, as already claimed, by the same planner and under the same fence as any other.

A transaction changes the database and collects what it means for the store's memory (lanes, counters); the store takes that
over only after the commit, so a transaction that fails leaves no trace.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from stoker.store.group_commit import by_verb
from stoker.store.sqlite.claims import SqliteClaims
from stoker.store.sqlite.rows import Q
from stoker.store.sqlite.schedules import SqliteSchedules
from stoker.store.sqlite.sessions import SqliteSessions
from stoker.store.sqlite.upkeep import SqliteUpkeep


class SqliteTransaction(SqliteClaims, SqliteSessions, SqliteSchedules, SqliteUpkeep):
    """One write transaction: runs the steps that were called, in order, then writes what they left to its end."""

    def run(self, calls: Sequence[tuple[str, Any]]) -> list[Any]:
        """Run the calls, grouped by verb in `VERBS` order; their results in the order of the calls."""
        results: list[Any] = [None] * len(calls)
        for verb, places in by_verb(calls, VERBS):
            answers = VERBS[verb](self, [calls[place][1] for place in places])
            for place, answer in zip(places, answers, strict=True):
                results[place] = answer
        if self._left_behind:
            self._write_left_behind()
        self._write_fresh()
        self._write_counts()
        return results

    def commit_to_memory(self) -> None:
        """Called after the commit: the memory follows the file."""
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


VERBS: Final[dict[str, Callable[[SqliteTransaction, list[Any]], Sequence[Any]]]] = {
    "open_session": SqliteTransaction.open_session,
    "renew": SqliteTransaction.renew,
    "set_session_status": SqliteTransaction.set_session_status,
    "set_paused": SqliteTransaction.set_paused,
    "note_types": SqliteTransaction.note_types,
    "started": SqliteTransaction.started,
    "finish": SqliteTransaction.finish,
    "complete": SqliteTransaction.complete,
    "expire": SqliteTransaction.expire,
    "cancel": SqliteTransaction.cancel,
    "edit": SqliteTransaction.edit,
    "replay": SqliteTransaction.replay,
    "replay_where": SqliteTransaction.replay_where,
    "discard": SqliteTransaction.discard,
    "discard_where": SqliteTransaction.discard_where,
    "put_bulk": SqliteTransaction.put_bulk,
    "stop_bulk": SqliteTransaction.stop_bulk,
    "bulk_step": SqliteTransaction.bulk_step,
    "promote": SqliteTransaction.promote,
    "end_overdue": SqliteTransaction.end_overdue,
    "correct_times": SqliteTransaction.correct_times,
    "purge": SqliteTransaction.purge,
    "put_series": SqliteTransaction.put_series,
    "probe": SqliteTransaction.probe,
    "purge_ticks": SqliteTransaction.purge_ticks,
    "declare_schedules": SqliteTransaction.declare_schedules,
    "change_schedules": SqliteTransaction.change_schedules,
    "insert": SqliteTransaction.insert,
    "claim": SqliteTransaction.claim,
}
