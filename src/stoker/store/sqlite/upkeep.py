"""Upkeep: the steps of a transaction that run by a timer or by an operator."""

from collections.abc import Sequence
from typing import Any

from stoker.domain.series import GaugeRow, TallyRow
from stoker.store.queries import json_text
from stoker.store.series import gauge_values, old_spans, tally_values
from stoker.store.sqlite.rows import Q
from stoker.store.sqlite.state import SqliteTransactionState
from stoker.store.upkeep import Retention


class SqliteUpkeep(SqliteTransactionState):
    """Queues jobs that are due, corrects times, deletes what is old, and stores pauses and series."""

    def promote(self, calls: list[int]) -> list[int]:
        return [self._promote(call) for call in calls]

    def _promote(self, limit: int) -> int:
        due = self._rows(Q["due_jobs"], self._now, limit)
        self._db.executemany(Q["promote_job"], [(row[0],) for row in due])
        for _, lane_id, queue, type in due:
            self._woken.add(lane_id)
            self._deltas[queue, type, "scheduled"] -= 1
            self._deltas[queue, type, "queued"] += 1
        return len(due)

    def correct_times(self, calls: list[int]) -> list[int]:
        return [self._correct_times(call) for call in calls]

    def _correct_times(self, limit: int) -> int:
        far = self._rows(Q["far_retries"], self._now, limit)
        self._db.executemany(Q["set_run_at"], [(seq, self._now + delay_us) for seq, delay_us in far])
        self._db.execute(Q["correct_heartbeats"], (self._now,))
        return len(far)

    def set_paused(self, calls: list[tuple[str, bool]]) -> list[int | None]:
        return [self._set_paused(*call) for call in calls]

    def _set_paused(self, queue: str, paused: bool) -> int | None:
        self._paused = {name: at for name, at in self._paused.items() if paused or name != queue}
        if not paused:
            self._db.execute(Q["resume_queue"], (queue,))
            return None
        self._db.execute(Q["pause_queue"], (queue, self._now))
        return self._paused.setdefault(queue, self._now)

    def probe(self, calls: list[None]) -> list[None]:
        self._db.execute(Q["put_meta"], ("probe", str(self._now)))
        return calls

    def put_series(self, calls: list[tuple[int, Sequence[TallyRow], Sequence[GaugeRow]]]) -> list[None]:
        for shard, tallies, gauges in calls:
            self._db.executemany(Q["put_tally"], [(shard, *tally_values(row)) for row in tallies])
            self._db.executemany(Q["put_gauge"], [(shard, *gauge_values(row)) for row in gauges])
        return [None] * len(calls)

    def purge(self, calls: list[tuple[Retention, int]]) -> list[int]:
        return [self._purge(*call) for call in calls]

    def _purge(self, retention: Retention, limit: int) -> int:
        kept = self._rows(Q["kept_long_enough"], self._now - retention.keep_grace_us, limit)
        self._db.executemany(Q["drop_keep"], [(row[0],) for row in kept])
        purged = self._delete_jobs(kept, retention)
        for status, age in retention.by_status:
            until, room = self._now - age, limit - purged
            rows = self._rows(
                Q["expired_jobs"], status, until, room, self._memory.purged.since(status, until)
            )
            if len(rows) < room:
                self._purged_until[status] = until
            purged += self._delete_jobs(rows, retention)
        if (
            purged
        ):  # a sequence number is part of the fence: it is never used twice, also when its row is gone
            self._db.execute(Q["put_meta"], ("last_seq", str(self._seq - 1)))
        self._db.execute(Q["purge_keys"], (self._now, limit))
        self._db.execute(Q["purge_spent_ids"], (self._now, limit))
        self._db.execute(Q["purge_sessions"], (self._now - retention.sessions_us,))
        self._purge_series()
        self._db.execute(Q["purge_bulks"], (self._now - retention.completed_us,))
        return purged

    def _delete_jobs(self, rows: Sequence[tuple[Any, ...]], retention: Retention) -> int:
        """Delete ended jobs, given as (seq, queue, type, status, whether it has metadata); return how many there were."""
        if rows:
            spent = (retention.client_ids_us, self._now, json_text([row[0] for row in rows]))
            self._db.execute(Q["spend_ids"], spent)
        self._db.executemany(Q["delete_job"], [(row[0],) for row in rows])
        self._db.executemany(Q["delete_attempts"], [(row[0],) for row in rows])
        self._db.executemany(Q["drop_metadata"], [(row[0],) for row in rows if row[4]])
        for _, queue, type, left, _ in rows:
            self._deltas[queue, type, left] -= 1
        return len(rows)

    def _purge_series(self) -> None:
        for span in old_spans(self._now):
            self._db.execute(Q["purge_series"], span)
            self._db.execute(Q["purge_gauges"], span)
