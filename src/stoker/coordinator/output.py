"""What running jobs say: their output goes to its store, their progress stays in memory, and whoever follows is woken.

A worker is heard about claims that its session holds at this moment, and about nothing else: what arrives for a claim that
was reported, taken back or given to somebody else is ignored. A worker therefore sends the last output of an attempt before
its report, and on one connection that is also the order in which they arrive; so once a job is final, all of its output has
been appended.

Output lives as long as its job: the keeper walks through what is stored and deletes that of jobs which are gone.
"""

import asyncio
import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import structlog

from stoker.bus.local import JobWaiters, Watch
from stoker.coordinator.sessions import Sessions, WorkerSession
from stoker.domain.errors import StoreUnavailable
from stoker.domain.job import Job
from stoker.domain.lifecycle import FINAL
from stoker.domain.retry import Claim
from stoker.store.base import Store
from stoker.store.logs import LogPage, Logs, Piece, Selection
from stoker.wire.frames import OutputChunk, ProgressNote

MAX_OFFSET: Final = 2**53
MAX_MESSAGE_CHARS: Final = 500
KEEP_BATCH: Final = 200
KEEP_EVERY_SECONDS: Final = 30.0

log = structlog.get_logger()


class Progress(msgspec.Struct, frozen=True):
    """How far a running job says it is. `percent` is null while the total is unknown."""

    done: float
    total: float | None
    message: str | None
    percent: float | None


class OutputDesk:
    """Takes what workers say about the jobs they run, and answers those who want to know."""

    def __init__(self, store: Store, logs: Logs, sessions: Sessions) -> None:
        self._store = store
        self._logs = logs
        self._sessions = sessions
        self._progress: dict[str, tuple[int, Progress]] = {}
        self._followers = JobWaiters()

    # ── from workers ───────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, session: WorkerSession, chunks: Sequence[OutputChunk]) -> None:
        """Judge and append at once: the very next frame may be the report that ends the claim."""
        now = self._store.now_us()
        pieces = [
            Piece(chunk.id, chunk.claim_id, claim.attempt, chunk.stream, chunk.offset, now, chunk.data)
            for chunk in chunks
            if 0 <= chunk.offset <= MAX_OFFSET
            and (claim := self._held(session, chunk.id, chunk.claim_id)) is not None
        ]
        self._logs.append(pieces)
        self._followers.finished({piece.job_id for piece in pieces})

    def note(self, session: WorkerSession, notes: Sequence[ProgressNote]) -> None:
        for note in notes:
            if math.isfinite(note.done) and self._held(session, note.id, note.claim_id) is not None:
                self._progress[note.id] = (note.claim_id, _progress(note))

    def _held(self, session: WorkerSession, id: str, claim_id: int) -> Claim | None:
        if self._sessions.get(session.id) is not session:  # given up, or replaced by a newer connection
            return None
        holding = session.held.get(id)
        return holding.claim if holding is not None and holding.claim.claim_id == claim_id else None

    # ── from the coordinator ───────────────────────────────────────────────────────────────────────────────────────

    def ended(self, ids: Iterable[str]) -> None:
        """These attempts are over: their progress is forgotten, and followers look whether that was all."""
        if not self._progress and not self._followers:
            return
        ids = list(ids)
        for id in ids:
            self._progress.pop(id, None)
        self._followers.finished(ids)

    def ended_all(self) -> None:
        self._followers.finished_all()

    # ── for those who look ─────────────────────────────────────────────────────────────────────────────────────────

    def progress(self, job: Job) -> Progress | None:
        """The latest word of the attempt that runs now."""
        if job.status != "running":
            return None
        claim_id, progress = self._progress.get(job.id, (0, None))
        return progress if claim_id == job.claim_id else None

    def watch(self, id: str) -> Watch:
        """`with desk.watch(id) as news:` is set when there may be something new to read, or an end."""
        return self._followers.watch(id)

    async def read(self, job: Job, which: Selection, after: int) -> LogPage:
        """A page of output. `job` was looked at before: if it was over then, all of its output is there now."""
        page = await self._logs.read(which, after)
        return msgspec.structs.replace(page, ended=not page.more and is_over(job, which))


def is_over(job: Job, which: Selection) -> bool:
    """Whether the selected attempts will write no more."""
    if job.status in FINAL:
        return True
    if which.claim_id is not None:
        return job.claim_id > which.claim_id or (job.claim_id == which.claim_id and job.status != "running")
    return which.attempt is not None and job.attempt > which.attempt


def _progress(note: ProgressNote) -> Progress:
    total = note.total if note.total is not None and math.isfinite(note.total) and note.total > 0 else None
    percent = None if total is None else round(100 * min(1.0, max(0.0, note.done / total)), 2)
    message = None if note.message is None else note.message[:MAX_MESSAGE_CHARS]
    return Progress(note.done, total, message, percent)


class LogKeeper:
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
            except StoreUnavailable as error:
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
        jobs = await self._store.get(ids) if ids else []
        gone = [id for id, job in zip(ids, jobs, strict=True) if job is None]
        if gone:
            await self._logs.delete(gone)
        return len(gone)
