"""When jobs with an expiry or a deadline are looked at next, in the embedded store.

Only jobs that wait are noted. A row that outlives its job, or that belongs to a job which runs by now, is dropped when its
time comes; a job that waits again is noted again.
"""

import apsw

from stoker.domain.job import Job
from stoker.domain.job_batch import JobBatch
from stoker.domain.time_limits import next_limit
from stoker.store.sqlite.rows import Q


class SqliteTimeLimits:
    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def note_batch(self, batch: JobBatch) -> None:
        """Note jobs that are inserted and share their times."""
        at = next_limit(batch.template)
        if at is not None:
            self._db.executemany(Q["note_limit"], [(seq, at) for seq in batch.seqs])

    def note(self, job: Job) -> None:
        """Note a job that waits again or was changed."""
        at = next_limit(job)
        if at is not None:
            self._db.execute(Q["note_limit"], (job.seq, at))

    def due(self, now: int, limit: int) -> list[int]:
        """Return the jobs to look at, and forget them: those that still have a limit are noted again."""
        seqs = [int(row[0]) for row in self._db.execute(Q["due_limits"], (now, limit))]
        self._db.executemany(Q["drop_limit"], [(seq,) for seq in seqs])
        return seqs
