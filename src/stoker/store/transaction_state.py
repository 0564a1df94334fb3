"""What the steps of one write transaction share, in every store.

A transaction changes the database and collects here what that means for the counters and for the store's memory. Both follow
only when it ends: the counters as its last statement, the memory after the commit. So a transaction that fails leaves no
trace.
"""

from collections import defaultdict

from msgspec.structs import replace

from stoker.domain.job import Job
from stoker.domain.job_batch import JobBatch, batch_of
from stoker.domain.lifecycle import Status
from stoker.domain.retry import Claim


class TransactionState:
    """Collects what one transaction changes in the counters and in the store's memory; both stores extend it."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._deltas: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        """Changes of the counters, by queue, type and status."""
        self._woken: set[int] = set()
        """Lanes in which this transaction leaves queued jobs."""
        self._read: set[int] = set()
        """Lanes from which this transaction may have claimed."""
        self._emptied: set[int] = set()
        """Those of them in which a claim found nothing."""
        self._firsts: dict[int, JobBatch | None] = {}
        """The first job of each lane that had no room, as read by this transaction."""
        self._fresh: list[JobBatch] = []
        """Jobs that this transaction inserts, that are due and not claimed yet."""
        self._settled: list[JobBatch] = []
        """Jobs that this transaction inserts and no claim of it can take any more: claimed already, or not due."""
        self._made: set[str] = set()
        """Jobs that schedules made in this transaction, which are written at its end."""
        self._purged_until: dict[str, int] = {}
        self._left_behind: list[int] = []
        """Sequence numbers of jobs that ended in this transaction and have a webhook or a retention time of their own."""

    def _count(self, job: Job | Claim, leaves: Status, enters: Status, number: int = 1) -> None:
        self._deltas[job.queue, job.type, leaves] -= number
        self._deltas[job.queue, job.type, enters] += number

    def _count_released(self, lane_id: int, queue: str, type: str, status: Status) -> None:
        """Count a blocked job that became queued, or scheduled where its time has not come."""
        if status == "queued":
            self._woken.add(lane_id)
        self._deltas[queue, type, "blocked"] -= 1
        self._deltas[queue, type, status] += 1

    def _count_fresh(self, batch: JobBatch) -> None:
        """Count jobs that this transaction inserts."""
        template = batch.template
        self._deltas[template.queue, template.type, template.status] += len(batch.ids)
        if template.status == "queued":
            self._woken.add(template.lane_id)

    def _count_rewritten(self, before: Job, after: Job) -> None:
        """Count a waiting job that was changed, perhaps to another queue or status."""
        self._deltas[before.queue, before.type, before.status] -= 1
        self._deltas[after.queue, after.type, after.status] += 1
        self._read.add(before.lane_id)
        if after.status == "queued":
            self._woken.add(after.lane_id)

    def _rewrite_fresh(self, after: Job) -> bool:
        """Change a job that this transaction inserts and has not written yet; False when it is none of these."""
        found = next((batch for batch in self._fresh + self._settled if after.id in batch.ids), None)
        if found is None:
            return False
        after = replace(after, seq=found.template.seq, lane_id=found.template.lane_id)
        self._fresh = [batch for batch in self._fresh if batch is not found]
        self._settled = [batch for batch in self._settled if batch is not found]
        self._take_in(batch_of(after))
        return True

    def _take_in(self, batch: JobBatch) -> None:
        """Take in jobs to insert: they are written at the end of the transaction, and may be claimed before."""
        (self._fresh if batch.template.status == "queued" else self._settled).append(batch)
