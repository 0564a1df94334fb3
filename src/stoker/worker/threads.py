"""The worker's threads: which child runs which job, who waits, who is late. No connection and no reports in here.

A job takes its threads while it runs; the sum never exceeds the worker's number. Short jobs that were assigned ahead of
time (the window) are queued at a child that is busy with a short one, so that the child never waits for the next. If
that one turns out long, those behind it are taken back: another child gets them, and what cannot start within
`PATIENCE_SECONDS` is handed back to the coordinator, uncharged.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from stoker.domain.retry import Kind, problem
from stoker.executors.pipe import ChildJob, ChildResult, Ready
from stoker.executors.process import PythonChild
from stoker.wire.frames import Assignment

DEPTH: Final = 64
REFILL_BELOW: Final = 24
STUCK_SECONDS: Final = 0.03
PATIENCE_SECONDS: Final = 0.25
START_PATIENCE_SECONDS: Final = 15.0
TELL_START_SECONDS: Final = 0.02
TIMEOUT_GRACE_SECONDS: Final = 0.5


class Work:
    """One assignment on its way through this worker."""

    __slots__ = ("assignment", "cancelled", "index", "received", "told_start")

    def __init__(self, assignment: Assignment, received: float) -> None:
        self.assignment = assignment
        self.received = received
        self.index = -1
        self.told_start = False
        self.cancelled = False


class Ended:
    """How a piece of work ended; times are readings of the monotonic clock."""

    __slots__ = ("error", "finished", "kind", "result", "started", "work")

    def __init__(
        self,
        work: Work,
        kind: Kind,
        *,
        finished: float,
        started: float | None = None,
        result: bytes | None = None,
        error: bytes | None = None,
    ) -> None:
        self.work = work
        self.kind = kind
        self.result = result
        self.error = error
        self.started = started
        self.finished = finished


class Slot:
    """A child and the work that was sent to it, in order. `doom` says why it is being ended."""

    def __init__(self, child: PythonChild) -> None:
        self.child = child
        self.sent: dict[int, Work] = {}
        self.threads = 0
        self.next_index = 0
        self.doom: Kind | None = None
        self.doomed: Work | None = None
        self.doom_error: bytes | None = None
        self.kill_at: float | None = None
        self.skipping: tuple[int, int] | None = None

    @property
    def usable(self) -> bool:
        return self.child.ready and self.doom is None and self.skipping is None

    def running(self) -> tuple[Work, float] | None:
        """The work that runs right now and since when, read off the board."""
        index, busy, started = self.child.board.running()
        work = self.sent.get(index) if busy else None
        return None if work is None else (work, started)


class Threads:
    """All children of one worker."""

    def __init__(
        self,
        threads: int,
        spawn: Callable[["Threads"], PythonChild],
        *,
        ended: Callable[[list[Ended]], None],
        now: Callable[[], float],
        cancel_grace_seconds: float,
    ) -> None:
        self._threads = threads
        self._spawn = spawn
        self._ended = ended
        self._now = now
        self._grace = cancel_grace_seconds
        self._slots: dict[PythonChild, Slot] = {}
        self._waiting: deque[Work] = deque()
        self.works: dict[str, Work] = {}
        self.closing = False
        self._failed_starts = 0
        self._open_after = 0.0

    @property
    def used(self) -> int:
        return sum(slot.threads for slot in self._slots.values())

    @property
    def children(self) -> list[PythonChild]:
        return list(self._slots)

    # ── taking work ────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self) -> None:
        """Start a child for each thread, so that the first jobs find them warm."""
        if self._now() < self._open_after:
            return
        while len(self._slots) < self._threads and not self.closing:
            child = self._spawn(self)
            self._slots[child] = Slot(child)

    def take(self, assignments: list[Assignment]) -> None:
        now = self._now()
        for assignment in assignments:
            held = self.works.get(assignment.id)
            if held is not None:
                # Assigned again while the old claim is still here: the old one is void, whatever it does.
                self.drop(assignment.id, held.assignment.claim_id)
            work = Work(assignment, now)
            self.works[assignment.id] = work
            self._waiting.append(work)
        self.pump()

    def pump(self) -> None:
        """Give waiting work to children: first to idle ones, then behind short jobs."""
        batches: dict[Slot, list[ChildJob]] = {}
        while self._waiting:
            work = self._waiting[0]
            slot = self._place(work)
            if slot is None:
                break
            self._waiting.popleft()
            batches.setdefault(slot, []).append(self._hand_over(slot, work))
        for slot, jobs in batches.items():
            slot.child.send(jobs)

    def _place(self, work: Work) -> Slot | None:
        threads = work.assignment.threads
        best: Slot | None = None
        used = 0
        for slot in self._slots.values():
            used += slot.threads
            if slot.usable and (best is None or len(slot.sent) < len(best.sent)):
                best = slot
        if best is None:
            return None
        if not best.sent:
            return best if used + threads <= self._threads else None
        if threads > 1 or best.threads > 1 or len(best.sent) >= DEPTH or self._is_long(best):
            return None
        return best

    def _is_long(self, slot: Slot) -> bool:
        running = slot.running()
        return running is not None and self._now() - running[1] > STUCK_SECONDS

    def _hand_over(self, slot: Slot, work: Work) -> ChildJob:
        work.index = slot.next_index
        slot.next_index += 1
        slot.sent[work.index] = work
        slot.threads = max(slot.threads, work.assignment.threads)
        a = work.assignment
        return ChildJob(
            work.index,
            a.id,
            a.claim_id,
            a.type,
            a.payload,
            a.attempt,
            a.max_attempts,
            a.threads,
            a.queue,
            a.name,
            a.metadata,
        )

    # ── what children say ──────────────────────────────────────────────────────────────────────────────────────────

    def on_ready(self, child: PythonChild, ready: Ready) -> None:
        self._failed_starts = 0
        self.pump()

    def on_results(self, child: PythonChild, results: list[ChildResult]) -> None:
        slot = self._slots[child]
        ended: list[Ended] = []
        for result in results:
            work = slot.sent.pop(result.index, None)
            if work is None or not self._is_current(work):
                continue  # taken back or dropped meanwhile
            if result.kind == "handed_back":
                self._put_back([work])
                continue
            del self.works[work.assignment.id]
            ended.append(
                Ended(
                    work,
                    result.kind,
                    result=result.result,
                    error=result.error,
                    started=result.started,
                    finished=result.finished,
                )
            )
        if not slot.sent:
            slot.threads = 0
        if self._waiting and len(slot.sent) < REFILL_BELOW:
            self.pump()
        if ended:
            self._ended(ended)

    def on_exit(self, child: PythonChild) -> None:
        """A child ended: whoever ran is charged, whoever waited behind it goes to another child."""
        slot = self._slots.pop(child)
        running = slot.running()
        victim = slot.doomed or (None if running is None else running[0])
        self._put_back([work for work in slot.sent.values() if work is not victim])
        if victim is not None and self._is_current(victim):
            started = running[1] if running is not None and running[0] is victim else None
            self._end_victim(slot, victim, started)
        if not child.ready:
            # One that cannot even start would be started again for ever: try again, but ever more slowly.
            self._failed_starts += 1
            self._open_after = self._now() + min(5.0, 0.1 * 2**self._failed_starts)
        if not self.closing:
            self.open()
            self.pump()

    def _end_victim(self, slot: Slot, work: Work, started: float | None) -> None:
        del self.works[work.assignment.id]
        kind: Kind = slot.doom or "crash"
        error = slot.doom_error or crash_error(slot.child.returncode)
        self._ended([Ended(work, kind, error=error, started=started, finished=self._now())])

    def _is_current(self, work: Work) -> bool:
        return self.works.get(work.assignment.id) is work

    def _put_back(self, works: list[Work]) -> None:
        """Work that was sent to a child and not started waits again, ahead of what came later."""
        for work in reversed(works):
            work.index = -1
            if self._is_current(work):
                self._waiting.appendleft(work)
        for work in works:
            if work.cancelled and self._is_current(work):
                self._end_waiting([work], "cancelled", "the job was cancelled before it started")

    # ── the clock ──────────────────────────────────────────────────────────────────────────────────────────────────

    def tick(self) -> list[tuple[Work, float]]:
        """Look after timeouts, stuck queues and dead children; the work whose start is worth telling."""
        now = self._now()
        starts: list[tuple[Work, float]] = []
        for slot in list(self._slots.values()):
            slot.child.poll()
            if slot.child.ended:
                continue
            if slot.kill_at is not None and now >= slot.kill_at:
                slot.child.kill()
            range_ = slot.skipping
            running = slot.running()
            if running is not None:
                starts += self._watch(slot, *running, now)
            if range_ is not None:
                self._take_back(slot, range_)
        self._hand_back_late(now)
        if len(self._slots) < self._threads and not self.closing:
            self.open()
        return starts

    def _watch(self, slot: Slot, work: Work, started: float, now: float) -> list[tuple[Work, float]]:
        ran = now - started
        timeout = work.assignment.timeout_sec
        if not self._is_current(work):
            self._end(slot, work, "lost", None)
        elif work.cancelled:
            self._end(slot, work, "cancelled", problem("cancelled", "the job was cancelled while it ran"))
        elif timeout is not None and ran >= timeout:
            message = f"the job ran for longer than its timeout of {timeout:g} s and was killed"
            self._end(
                slot, work, "timeout", problem("timeout", message, timeout_sec=timeout), TIMEOUT_GRACE_SECONDS
            )
        if ran > STUCK_SECONDS and len(slot.sent) > 1:
            self._begin_to_take_back(slot, work.index)
        if ran > TELL_START_SECONDS and not work.told_start:
            work.told_start = True
            return [(work, started)]
        return []

    def _begin_to_take_back(self, slot: Slot, running: int) -> None:
        if slot.skipping is None:
            slot.skipping = (running + 1, slot.next_index)
            slot.child.board.skip(*slot.skipping)

    def _take_back(self, slot: Slot, range_: tuple[int, int]) -> None:
        """A tick after the range was written: what stands behind the running job cannot start any more. What the child
        reached meanwhile it either started or declined, and it says which."""
        first, end = range_
        index, _, _ = slot.child.board.running()
        back = [slot.sent.pop(i) for i in range(max(first, index + 1), end) if i in slot.sent]
        slot.skipping = None
        self._put_back(back)
        self.pump()

    def _hand_back_late(self, now: float) -> None:
        up = any(slot.child.ready for slot in self._slots.values())
        patience = PATIENCE_SECONDS if up else START_PATIENCE_SECONDS
        late = [work for work in self._waiting if now - work.received > patience]
        if late:
            self._end_waiting(late, "handed_back", "no thread became free in time")

    # ── ending work ────────────────────────────────────────────────────────────────────────────────────────────────

    def _end_waiting(self, works: list[Work], kind: Kind, why: str) -> None:
        """End work that has not started."""
        gone = set(map(id, works))
        self._waiting = deque(work for work in self._waiting if id(work) not in gone)
        error = problem(kind, why)
        for work in works:
            del self.works[work.assignment.id]
        self._ended([Ended(work, kind, error=error, finished=self._now()) for work in works])

    def hand_back_waiting(self, why: str) -> None:
        """Give back everything that has not started: at once what waits here, a tick later what waits in a child."""
        if self._waiting:
            self._end_waiting(list(self._waiting), "handed_back", why)
        for slot in self._slots.values():
            if len(slot.sent) > 1:
                self._begin_to_take_back(slot, slot.child.board.running()[0])

    def cancel(self, job_id: str, claim_id: int) -> None:
        """End one piece of work as cancelled, wherever it is."""
        work = self._find(job_id, claim_id)
        if work is None or work.cancelled:
            return
        work.cancelled = True
        slot = self._slot_of(work)
        if slot is None:
            self._end_waiting([work], "cancelled", "the job was cancelled before it started")
        else:
            self._stop(slot, work)

    def drop(self, job_id: str, claim_id: int) -> None:
        """End one piece of work without a word: it belongs to somebody else."""
        work = self._find(job_id, claim_id)
        if work is None:
            return
        slot = self._slot_of(work)
        del self.works[job_id]
        if slot is None:
            self._waiting.remove(work)
        else:
            self._stop(slot, work)

    def _stop(self, slot: Slot, work: Work) -> None:
        """End work that was sent to a child: kill it if it runs, else keep it from starting; the tick sees to the
        rest."""
        running = slot.running()
        if running is not None and running[0] is work:
            self._watch(slot, work, running[1], self._now())
        else:
            self._begin_to_take_back(slot, slot.child.board.running()[0])

    def kill_all(self) -> None:
        """The lease is over: whatever runs here may be running elsewhere already."""
        self.works.clear()
        self._waiting.clear()
        for slot in self._slots.values():
            if slot.sent:
                slot.doom = slot.doom or "lost"
                slot.child.kill()

    def end_running(self, why: str) -> None:
        """Hand back what still runs: the grace period is over."""
        for slot in self._slots.values():
            running = slot.running()
            if running is not None:
                self._end(slot, running[0], "handed_back", problem("handed_back", why))

    def _end(
        self, slot: Slot, work: Work, kind: Kind, error: bytes | None, grace: float | None = None
    ) -> None:
        if slot.doom is None:
            slot.doom, slot.doomed, slot.doom_error = kind, work, error
            slot.kill_at = self._now() + (self._grace if grace is None else grace)
            slot.child.terminate()

    def _find(self, job_id: str, claim_id: int) -> Work | None:
        work = self.works.get(job_id)
        return work if work is not None and work.assignment.claim_id == claim_id else None

    def _slot_of(self, work: Work) -> Slot | None:
        if work.index < 0:
            return None
        return next((slot for slot in self._slots.values() if slot.sent.get(work.index) is work), None)

    def close(self) -> None:
        """End all children now."""
        self.closing = True
        for slot in list(self._slots.values()):
            slot.doom = slot.doom or "handed_back"
            slot.child.end()


def crash_error(returncode: int | None) -> bytes:
    """What to say of a child that ended by itself."""
    if returncode is not None and returncode < 0:
        return problem("crash", f"the job's process was killed by signal {-returncode}", signal=-returncode)
    return problem(
        "crash", f"the job's process ended by itself with exit code {returncode}", exit_code=returncode
    )
