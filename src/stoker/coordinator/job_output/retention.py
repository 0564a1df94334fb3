"""Deletes the output of jobs that are gone."""

import asyncio
from typing import Final

import structlog

from stoker.domain.errors import StoreUnavailable
from stoker.store.base import Store
from stoker.store.logs import Logs

KEEP_BATCH: Final = 200
KEEP_EVERY_SECONDS: Final = 30.0

log = structlog.get_logger()


class LogRetention:
    """Deletes output whose job is gone. It walks by key, a batch at a time, and begins again at the end."""

    def __init__(self, store: Store, logs: Logs, *, spared_us: int) -> None:
        self._store = store
        self._logs = logs
        self._spared_us = spared_us
        """Output younger than this is not looked at: no job is purged so early."""
        self._after = 0

    async def run(self) -> None:
        while True:
            try:
                deleted = await self.once()
            except (StoreUnavailable, MemoryError) as error:
                log.error("output_not_purged", detail=str(error))
                deleted = 0
            if not deleted:
                await asyncio.sleep(KEEP_EVERY_SECONDS)

    async def once(self) -> int:
        """Look at one batch; of how many jobs output was deleted."""
        before = self._store.now_us() - self._spared_us
        batch = await self._logs.written(self._after, before, KEEP_BATCH)
        self._after = batch[-1].key if len(batch) == KEEP_BATCH else 0
        ids = list(dict.fromkeys(written.job_id for written in batch))
        there = {job.id for job in await self._store.summaries(ids)} if ids else set()
        gone = [id for id in ids if id not in there]
        if gone:
            await self._logs.delete(gone)
        return len(gone)
