"""When jobs with an expiry or a deadline are looked at next, in the shared store.

Only jobs that wait are noted. A row that outlives its job, or that belongs to a job which runs by now, is dropped when its
time comes; a job that waits again is noted again. Rows are written at the end of a transaction, those of jobs that it has
locked; of others it drops what no other transaction drops or notes at the moment. So two never wait for each other in a
circle.
"""

from collections.abc import Iterable, Sequence

from stoker.domain.job import Job
from stoker.domain.job_batch import JobBatch
from stoker.domain.time_limits import next_limit
from stoker.store.postgres.lazy_transaction import Statements
from stoker.store.postgres.rows import Q


class PostgresTimeLimits:
    def __init__(self, link: Statements) -> None:
        self._link = link
        self._noted: dict[int, int] = {}
        self._due: list[tuple[int, int]] = []
        self._looked_at: list[int] = []

    def note(self, jobs: Iterable[Job]) -> None:
        """Note jobs that wait again or were changed; written at the end of the transaction."""
        for job in jobs:
            if job.extras is not None and (at := next_limit(job)) is not None:
                self._noted[job.seq] = at

    def note_batches(self, batches: Iterable[JobBatch]) -> None:
        """Note jobs that are inserted; those of a batch share their times."""
        for batch in batches:
            if batch.template.extras is not None and (at := next_limit(batch.template)) is not None:
                self._noted |= dict.fromkeys(batch.seqs, at)

    async def write(self) -> None:
        if self._due:
            await self._link.execute(Q["drop_limits"], *zip(*self._due, strict=True), self._looked_at)
        if self._noted:
            await self._link.execute(Q["note_limits"], *zip(*sorted(self._noted.items()), strict=True))

    async def due(self, now: int, limit: int) -> list[tuple[int, int]]:
        """Return the jobs to look at, with the times that are noted for them."""
        return [(row[0], row[1]) for row in await self._link.fetch(Q["due_limits"], now, limit)]

    def drop(self, due: Sequence[tuple[int, int]], looked_at: Iterable[Job]) -> None:
        """Forget those of these that were looked at, or whose jobs are gone; written at the end of the transaction."""
        self._due += due
        self._looked_at += [job.seq for job in looked_at]
