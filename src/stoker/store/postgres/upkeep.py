"""Upkeep: the steps of a transaction that run by a timer or by an operator."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from stoker.store.postgres.rows import Q
from stoker.store.postgres.state import PostgresTransactionState
from stoker.store.series import old_spans
from stoker.store.upkeep import Retention


class PostgresUpkeep(PostgresTransactionState):
    """Queues jobs that are due, corrects times, deletes what is old."""

    async def promote(self, calls: list[int]) -> list[int]:
        return [await self._promote(call) for call in calls]

    async def _promote(self, limit: int) -> int:
        rows = await self._link.fetch(Q["promote_jobs"], limit, self._judge)
        lanes = await self._memory.lanes_named(self._link, {row[0] for row in rows})
        for lane_id, number in Counter(row[0] for row in rows).items():
            lane = lanes[lane_id]
            self._deltas[lane.queue, lane.type, "scheduled"] -= number
            self._deltas[lane.queue, lane.type, "queued"] += number
        self._woken |= {row[0] for row in rows}
        return len(rows)

    async def correct_times(self, calls: list[int]) -> list[int]:
        return [await self._correct_times(call) for call in calls]

    async def _correct_times(self, limit: int) -> int:
        corrected = await self._link.fetch(Q["correct_retries"], limit, self._judge)
        await self._link.execute(Q["correct_heartbeats"], self._judge)
        return len(corrected)

    async def probe(self, calls: list[None]) -> list[None]:
        # A row for each write pipeline: no other writes it, so nothing waits for it.
        await self._link.execute(Q["touch_meta"], f"probe {self._shard}", str(self._now))
        return calls

    async def purge(self, calls: list[tuple[Retention, int]]) -> list[int]:
        return [await self._purge(*call) for call in calls]

    async def _purge(self, retention: Retention, limit: int) -> int:
        kept = await self._link.fetch(Q["kept_long_enough"], self._now - retention.keep_grace_us, limit)
        if kept:
            await self._link.execute(Q["drop_keeps"], [row[0] for row in kept])
        purged = await self._delete_history(kept, retention)
        for status, age in retention.by_status:
            until, room = self._now - age, limit - purged
            since = self._memory.purged.since(status, until)
            rows = await self._link.fetch(Q["expired_jobs"], status, until, room, since)
            if len(rows) < room:
                self._purged_until[status] = until
            purged += await self._delete_history(rows, retention)
        await self._link.execute(Q["purge_keys"], self._now, limit)
        await self._link.execute(Q["purge_spent_ids"], self._now, limit)
        await self._link.execute(Q["purge_sessions"], self._now - retention.sessions_us)
        await self._purge_series()
        await self._link.execute(Q["purge_bulks"], self._now - retention.completed_us)
        return purged

    async def _delete_history(self, rows: Sequence[Any], retention: Retention) -> int:
        """Delete ended jobs, given as (seq, lane, status, whether it has metadata); return how many there were."""
        if not rows:
            return 0
        seqs = [row[0] for row in rows]
        await self._link.execute(Q["prune_history"], seqs, retention.client_ids_us, self._now)
        await self._link.execute(Q["delete_attempts"], seqs)
        described = [row[0] for row in rows if row[3]]
        if described:
            await self._link.execute(Q["drop_metadata"], described)
        lanes = await self._memory.lanes_named(self._link, {row[1] for row in rows})
        for _, lane_id, left, _ in rows:
            self._deltas[lanes[lane_id].queue, lanes[lane_id].type, left] -= 1
        return len(rows)

    async def _purge_series(self) -> None:
        for span in old_spans(self._now):
            await self._link.execute(Q["purge_series"], *span)
            await self._link.execute(Q["purge_gauges"], *span)
