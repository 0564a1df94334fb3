"""What running jobs say: their output goes to its store, their progress stays in memory, and requests that follow a job are
woken.

A worker is heard about claims that its session holds at this moment, and about nothing else: what arrives for a claim that
was reported, taken back or given to another worker is ignored. A worker therefore sends the last output of an attempt before
its report, and on one connection that is also the order in which they arrive; so once a job is final, all of its output has
been appended.

Output lives as long as its job; `retention.py` deletes that of jobs which are gone.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from stoker.bus.base import ProgressOf
from stoker.coordinator.durations import Durations, Key
from stoker.coordinator.observers import JobObserver, Observers
from stoker.coordinator.sessions import Sessions, WorkerSession
from stoker.coordinator.waiters import JobWaiters, JobWatch
from stoker.domain.job import Job
from stoker.domain.lifecycle import FINAL, Status
from stoker.domain.retry import Claim
from stoker.store.base import Store
from stoker.store.logs import LogPage, Logs, Piece, Selection
from stoker.store.outcomes import Completions, Finish
from stoker.store.reads import JobSummary
from stoker.store.sessions import Expired
from stoker.wire.frames import OutputChunk, ProgressNote

MAX_OFFSET: Final = 2**53
MAX_MESSAGE_CHARS: Final = 500
ELSEWHERE_MAX: Final = 10_000


class JobProgress(msgspec.Struct, frozen=True):
    """How far a running job says it is. `percent` is null while the total is unknown."""

    done: float
    total: float | None
    message: str | None
    percent: float | None


class JobOutput(JobObserver):
    """Takes what workers say about the jobs they run: output and progress."""

    def __init__(
        self,
        store: Store,
        logs: Logs,
        sessions: Sessions,
        observers: Observers,
        *,
        publish: Callable[[ProgressOf], None] | None = None,
    ) -> None:
        """`publish` carries progress to other coordinators."""
        self._store = store
        self._logs = logs
        self._sessions = sessions
        self._publish = publish
        self._observers = observers
        self._progress: dict[str, tuple[int, JobProgress]] = {}
        self._elsewhere: OrderedDict[str, tuple[int, JobProgress]] = OrderedDict()
        self._followers = JobWaiters()

    # ── from workers ───────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, session: WorkerSession, chunks: Sequence[OutputChunk]) -> None:
        """Append output of held claims, before the next frame is read: it may be the report that ends the claim."""
        now = self._store.now_us()
        pieces = [
            Piece(chunk.id, chunk.claim_id, claim.attempt, chunk.stream, chunk.offset, now, chunk.data)
            for chunk in chunks
            if 0 <= chunk.offset <= MAX_OFFSET
            and (claim := self._held(session, chunk.id, chunk.claim_id)) is not None
        ]
        self._logs.append(pieces)
        self._followers.finished({piece.job_id for piece in pieces})

    async def settled(self, ids: Iterable[str]) -> None:
        """Wait until the output of these jobs is stored. Called before they end, so that other coordinators that see the end
        find all output."""
        if self._store.shared:
            await self._logs.settled(ids)

    def note(self, session: WorkerSession, notes: Sequence[ProgressNote]) -> None:
        heard = [
            note
            for note in notes
            if math.isfinite(note.done) and self._held(session, note.id, note.claim_id) is not None
        ]
        for note in heard:
            progress = _progress(note)
            self._progress[note.id] = (note.claim_id, progress)
            if self._publish is not None:
                self._publish(ProgressOf(note.id, note.claim_id, *msgspec.structs.astuple(progress)))
        self._observers.progressed([note.id for note in heard])

    def note_elsewhere(self, notification: ProgressOf) -> None:
        """Note the progress of a job that runs at another coordinator's worker; only the latest `ELSEWHERE_MAX` are kept."""
        progress = JobProgress(
            notification.done, notification.total, notification.message, notification.percent
        )
        self._elsewhere[notification.id] = (notification.claim_id, progress)
        self._elsewhere.move_to_end(notification.id)
        if len(self._elsewhere) > ELSEWHERE_MAX:
            self._elsewhere.popitem(last=False)

    def _held(self, session: WorkerSession, id: str, claim_id: int) -> Claim | None:
        if self._sessions.get(session.id) is not session:  # given up, or replaced by a newer connection
            return None
        return session.claim(id, claim_id)

    # ── from the coordinator ───────────────────────────────────────────────────────────────────────────────────────

    def completed(self, completed: Sequence[Completions], durations: Mapping[Key, Durations]) -> None:
        if self._progress or self._followers:
            self._forget([id for batch in completed for id in batch.ids])

    def ended(self, ended: Sequence[tuple[Finish, Status | None]]) -> None:
        self._forget([finish.claim.id for finish, status in ended if status is not None])

    def ended_waiting(self, jobs: Sequence[Job], *, overdue: bool) -> None:
        self._forget([job.id for job in jobs])

    def expired(self, expired: Expired) -> None:
        self._forget([lost.claim.id for lost in expired.losses])

    def _forget(self, ids: Sequence[str]) -> None:
        """Forget the progress of attempts that are over, and wake their followers, which look whether that was all."""
        for id in ids:
            self._progress.pop(id, None)
        self._followers.finished(ids)

    def changed_elsewhere(self, ids: Sequence[str]) -> None:
        self._followers.finished(ids)

    def close(self) -> None:
        """Wake all followers."""
        self._followers.finished_all()

    # ── for requests ───────────────────────────────────────────────────────────────────────────────────────────────

    def progress(self, job: Job | JobSummary) -> JobProgress | None:
        """Return what the attempt that runs now said last; None for a job that does not run, or says nothing."""
        if job.status != "running":
            return None
        for known in (self._progress, self._elsewhere):
            claim_id, progress = known.get(job.id, (0, None))
            if claim_id == job.claim_id:
                return progress
        return None

    def watch(self, id: str) -> JobWatch:
        """`with output.watch(id) as news:` gives an event that is set when there may be output to read, or the job ended."""
        return self._followers.watch(id)

    async def read(self, job: Job, which: Selection, after: int) -> LogPage:
        """Return a page of output. `job` was read before: if it was over then, all of its output is there now."""
        page = await self._logs.read(which, after)
        return msgspec.structs.replace(page, ended=not page.more and is_over(job, which))


def is_over(job: Job, which: Selection) -> bool:
    """Return whether the selected attempts will write no more."""
    if job.status in FINAL:
        return True
    if which.claim_id is not None:
        return job.claim_id > which.claim_id or (job.claim_id == which.claim_id and job.status != "running")
    return which.attempt is not None and job.attempt > which.attempt


def _progress(note: ProgressNote) -> JobProgress:
    total = note.total if note.total is not None and math.isfinite(note.total) and note.total > 0 else None
    percent = None if total is None else round(100 * min(1.0, max(0.0, note.done / total)), 2)
    message = None if note.message is None else note.message[:MAX_MESSAGE_CHARS]
    return JobProgress(note.done, total, message, percent)
