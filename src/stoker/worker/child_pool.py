"""The worker's threads: which child runs which job, who waits, who is late. No connection and no reports in here.

A job takes its threads while it runs; the sum never exceeds the worker's number. Short jobs that were assigned ahead of
time (the prefetch) are queued at a child that is busy with a short one, so that the child never waits for the next. If
that one turns out long, those behind it are taken back: another child gets them, and what cannot start within
`PATIENCE_SECONDS` is handed back to the coordinator, uncharged.

Async tasks share one child, which holds one thread for as long as it runs any of them.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import compress, groupby
from operator import attrgetter
from typing import Final, Protocol

import msgspec
import structlog
from msgspec.structs import astuple

from stoker.domain.retry import Kind, problem
from stoker.executors.pipe import ChildBatch, ChildResult, CompletedResults, Ready, Results
from stoker.executors.process import Child, advice
from stoker.system import SYSTEM
from stoker.wire.frames import Assignment, AssignmentBatch
from stoker.worker.ends import CompletedWork, Ended, Ends, cuts
from stoker.worker.routes import Executor

DEPTH: Final = 128
"""A trip through a child's pipe costs as much as many short jobs; but what one child has, an idle one cannot take."""
REFILL_BELOW: Final = 64
BATCH_BYTES: Final = 1024 * 1024
STUCK_SECONDS: Final = 0.03
PATIENCE_SECONDS: Final = 0.25
START_PATIENCE_SECONDS: Final = 15.0
LIFESPAN_EXIT_SECONDS: Final = 5.0
"""So long may the lifespan of an app take to end; then its process is killed."""
REFUSED_PATIENCE_SECONDS: Final = 1.0
"""While the system refuses the child that would run it, a job is better off at another worker."""
TELL_START_SECONDS: Final = 0.02
TIMEOUT_GRACE_SECONDS: Final = 0.5
COOPERATION_SECONDS: Final = 0.5
"""How long a job may take to notice that it was cancelled before it gets a signal."""
RECYCLE_EVERY_SECONDS: Final = 1.0
SILENT_TICKS: Final = 200
"""So many looks (ten seconds) at a child that has jobs, runs none and says nothing: then it will not run them. Looks are
counted and not seconds, because a machine that stood still has not looked."""


log = structlog.get_logger()


class Limits(Protocol):
    """What this needs to know of the settings."""

    @property
    def worker_threads(self) -> int: ...
    @property
    def cancel_grace_sec(self) -> float: ...
    @property
    def async_concurrency(self) -> int: ...
    @property
    def child_max_jobs(self) -> int: ...
    @property
    def child_max_memory_mb(self) -> int: ...


class Work(msgspec.Struct, eq=False, gc=False):
    """One assignment on its way through this worker. `template` is what it shares with the others of its batch."""

    id: str
    payload: bytes
    template: Assignment
    received: float
    index: int = -1
    started: float | None = None
    told_start: bool = False
    cancelled: bool = False

    @property
    def claim_id(self) -> int:
        return self.template.claim_id


class Slot:
    """A child and the work that was sent to it, in order; the last of it, `outgoing`, in a moment. `ending` says why the
    child is being ended."""

    def __init__(self, child: Child, executor: Executor) -> None:
        self.child = child
        self.executor = executor
        self.sent: dict[int, Work] = {}
        self.outgoing: list[Work] = []
        self.threads = 0
        self.next_index = 0
        self.ending: Kind | None = None
        self.ended_work: Work | None = None
        self.ending_error: bytes | None = None
        self.terminate_at: float | None = None
        self.kill_at: float | None = None
        self.skipping: tuple[int, int] | None = None
        self.retiring = False
        self.silent_ticks = 0
        self.cpus: list[int] | None = None

    @property
    def usable(self) -> bool:
        return self.child.ready and self.ending is None and self.skipping is None and not self.retiring

    def running(self) -> list[tuple[Work, float]]:
        """The work that runs right now and since when: all of it in an async child, else what the shared state tells."""
        if self.executor == "async":
            return [(work, work.started) for work in self.sent.values() if work.started is not None]
        index, busy, started = self.child.shared_state.running()
        work = self.sent.get(index) if busy else None
        return [] if work is None else [(work, started)]


class ChildPool:
    """All children of one worker."""

    def __init__(
        self,
        limits: Limits,
        spawn: Callable[[Executor, str], Child],
        *,
        executor_of: Callable[[str], Executor],
        ended: Callable[[Ends], None],
        now: Callable[[], float],
        memory_kb: Callable[[int], int] = SYSTEM.group_memory_kb,
        cpus: list[int] | None = None,
    ) -> None:
        self._limits = limits
        self._threads = limits.worker_threads
        self._spawn = spawn
        self._executor_of = executor_of
        self._ended = ended
        self._now = now
        self._memory_kb = memory_kb
        self._slots: dict[Child, Slot] = {}
        self._waiting: deque[Work] = deque()
        self._failed_starts = 0
        self._open_after = 0.0
        self._next_recycle = 0.0
        # Pinning makes sense only where every thread of the worker can have a CPU of its own.
        self._free_cpus = list(cpus) if cpus is not None and len(cpus) >= self._threads else None
        self.works: dict[str, Work] = {}
        self.closing = False

    @property
    def used(self) -> int:
        return sum(slot.threads for slot in self._slots.values())

    @property
    def children(self) -> list[Child]:
        return list(self._slots)

    def work_at(self, child: Child, index: int) -> Work | None:
        """The work that a child speaks of, if it is still ours."""
        slot = self._slots.get(child)
        work = None if slot is None else slot.sent.get(index)
        return work if work is not None and self._is_current(work) else None

    # ── taking work ────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self) -> None:
        """Start a Python child for each thread, so that the first jobs find them warm."""
        while self._may_open("python"):
            self._open("python", "")

    def _may_open(self, executor: Executor) -> bool:
        if self.closing or self._now() < self._open_after:
            return False
        there = sum(slot.executor == executor and not slot.retiring for slot in self._slots.values())
        return there < (1 if executor == "async" else self._threads)

    def _open(self, executor: Executor, type: str) -> Slot | None:
        """One more child; None when the system refuses (no memory, no descriptors, a binary that is gone)."""
        try:
            child = self._spawn(executor, type)
        except OSError as error:
            log.error("child_cannot_start", executor=executor, detail=advice(error))
            self._start_later()
            return None
        slot = self._slots[child] = Slot(child, executor)
        return slot

    def _start_later(self) -> None:
        """One that cannot even start would be started again for ever: try again, but ever more slowly."""
        self._failed_starts += 1
        self._open_after = self._now() + min(5.0, 0.1 * 2 ** min(self._failed_starts, 10))

    def take(self, batches: list[AssignmentBatch]) -> None:
        now = self._now()
        for batch in batches:
            if not self.works.keys().isdisjoint(batch.ids):
                # Assigned again while the old claim is still here: the old one is void, whatever it does.
                for id in [id for id in batch.ids if id in self.works]:
                    self.drop(id, self.works[id].claim_id)
            works = {work.id: work for work in works_of(batch, now)}
            self.works.update(works)
            self._waiting.extend(works.values())
        self.pump()

    def claims_among(self, ids: set[str]) -> dict[str, int]:
        """The claims under which those of these jobs are here that are."""
        if self.works.keys().isdisjoint(ids):
            return {}
        return {id: self.works[id].claim_id for id in ids if id in self.works}

    def decline(self, batches: list[AssignmentBatch], why: str) -> None:
        """Hand work back without ever having held it."""
        now = self._now()
        works = [work for batch in batches for work in works_of(batch, now)]
        self._end_all([self._given_up(work, "handed_back", why) for work in works])

    def pump(self) -> None:
        """Give waiting work to children, in the order it came: first to idle ones, then behind short jobs.

        Work that waits for a thread holds up what came after it, for any executor, because the order is that of the
        priorities; work whose child is still starting holds up no other work.
        """
        waiting = self._waiting
        starting: list[Work] = []
        while waiting:
            template = waiting[0].template
            executor = self._executor_of(template.type)
            for slot in self._places(executor, template):
                self._hand_over(slot, waiting.popleft())
                if not waiting or not are_alike(waiting[0].template, template):
                    break
            else:
                if self._is_up(executor):
                    break
                starting.append(waiting.popleft())
        waiting.extendleft(reversed(starting))
        for slot in [slot for slot in self._slots.values() if slot.outgoing]:
            outgoing, slot.outgoing = slot.outgoing, []
            slot.child.send(child_batches(outgoing, slot.cpus))

    def _is_up(self, executor: Executor) -> bool:
        """Return whether a child of this executor is ready. An executor that starts a process for each job always is."""
        if executor in ("runner", "command"):
            return True
        return any(slot.child.ready for slot in self._slots.values() if slot.executor == executor)

    def warm(self, executor: Executor) -> None:
        """Start the first child of this kind before it is needed."""
        if self._may_open(executor):
            self._open(executor, "")

    def _places(self, executor: Executor, template: Assignment) -> Iterator[Slot]:
        """Yield the slot for the next work of this kind, and for the one after it, as long as there is room. The caller must
        use each slot before it asks for another."""
        if executor in ("runner", "command"):
            return self._new_processes(executor, template)
        slots = [slot for slot in self._slots.values() if slot.executor == executor and slot.usable]
        if slots:
            return self._places_among(slots, executor, template)
        self._open_another(executor, template)
        return iter(())

    def _new_processes(self, executor: Executor, template: Assignment) -> Iterator[Slot]:
        while self._fits(template) and not self.closing and self._now() >= self._open_after:
            slot = self._open(executor, template.type)
            if slot is None:
                return
            yield slot

    def _places_among(self, slots: list[Slot], executor: Executor, template: Assignment) -> Iterator[Slot]:
        """Yield the slot whose child has the least work. When that one can take no more, no child can."""
        together = executor == "async"
        closed = [] if together else [slot for slot in slots if slot.threads > 1 or self._is_long(slot)]
        depth = self._limits.async_concurrency if together else DEPTH
        fits = self._fits(template)
        for level in range(min(len(slot.sent) for slot in slots), depth):
            for slot in slots:
                if len(slot.sent) > level:
                    continue
                if level == 0:
                    if not fits:
                        return
                    yield slot
                    fits = self._fits(template)
                    continue
                if fits:
                    # No child is idle, but threads are free: one more child, which takes the next job when it is ready.
                    self._open_another(executor, template)
                if slot in closed or (template.threads > 1 and not together):
                    return
                yield slot
        if fits:
            self._open_another(
                executor, template
            )  # everybody is full, which is no reason to leave a thread idle

    def _fits(self, template: Assignment) -> bool:
        return self.used + template.threads <= self._threads

    def _open_another(self, executor: Executor, template: Assignment) -> None:
        if self._may_open(executor):
            self._open(executor, template.type)

    def _is_long(self, slot: Slot) -> bool:
        return any(self._now() - started > STUCK_SECONDS for _, started in slot.running())

    def _hand_over(self, slot: Slot, work: Work) -> None:
        work.index = slot.next_index
        slot.next_index += 1
        slot.sent[work.index] = work
        slot.outgoing.append(work)
        if slot.executor == "async":
            slot.threads = 1
            work.started = self._now()
        elif work.template.threads > slot.threads:
            slot.threads = work.template.threads
            self._pin(slot, slot.threads)

    def _pin(self, slot: Slot, threads: int) -> None:
        """Give a job that asked for several threads CPUs of its own."""
        if threads > 1 and self._free_cpus is not None and slot.cpus is None:
            slot.cpus, self._free_cpus = self._free_cpus[:threads], self._free_cpus[threads:]

    def _idle(self, slot: Slot) -> None:
        """Nothing of this slot runs any more: its threads and CPUs are free."""
        slot.threads = 0
        if slot.cpus is not None and self._free_cpus is not None:
            self._free_cpus += slot.cpus
            slot.cpus = None

    # ── what children say ──────────────────────────────────────────────────────────────────────────────────────────

    def on_ready(self, child: Child, ready: Ready) -> None:
        self._failed_starts = 0
        self.pump()

    def on_results(self, child: Child, results: Results) -> None:
        slot = self._slots[child]
        slot.silent_ticks = 0
        ends = Ends(self._complete(slot, results.completed))
        back: list[Work] = []
        for result in results.others:
            work = slot.sent.pop(result.index, None)
            if work is None or not self._is_current(work):
                continue  # taken back or dropped meanwhile
            if result.kind == "handed_back":
                back.append(work)
                continue
            del self.works[work.id]
            ends.others.append(self._ended_by(slot, work, result))
        self._put_back(back)
        if slot.ending is not None and slot.ended_work is not None and slot.ended_work.index not in slot.sent:
            self._spare(slot)
        if not slot.sent:
            self._idle(slot)
        if len(slot.sent) < REFILL_BELOW:
            self.pump()
        if ends:
            self._ended(ends)

    def _complete(self, slot: Slot, completed: CompletedResults) -> CompletedWork:
        """What completed and is still ours; the rest was taken back or dropped meanwhile."""
        sent, held = slot.sent, self.works
        works = [sent.pop(index, None) for index in completed.indexes]
        ours = [work for work in works if work is not None and held.get(work.id) is work]
        columns = astuple(completed)[1:]
        if len(ours) < len(works):
            mask = [work is not None and held.get(work.id) is work for work in works]
            columns = tuple(list(compress(column, mask)) for column in columns)
        for work in ours:
            del held[work.id]
        return CompletedWork([work.id for work in ours], [work.template.claim_id for work in ours], *columns)

    def _ended_by(self, slot: Slot, work: Work, result: ChildResult) -> Ended:
        """A result as an end. One that was asked to end ends for the reason it was asked, unless it was done before."""
        kind, error = result.kind, result.error
        asked = slot.ended_work is work or (slot.executor == "async" and work.cancelled)
        if asked and kind in ("cancelled", "error"):
            kind = slot.ending if slot.ended_work is work and slot.ending is not None else "cancelled"
            error = slot.ending_error if slot.ended_work is work and slot.ending_error is not None else error
        if kind != "completed" and error is None:
            error = problem(kind, f"the job ended as {kind}")
        return Ended(
            work.id,
            work.claim_id,
            kind,
            result=result.result if kind == "completed" else None,
            error=error,
            started=result.started,
            finished=result.finished,
            cpu_us=result.cpu_us,
            peak_memory_kb=result.peak_memory_kb,
            note=result.note if kind == "error" else None,
        )

    def _spare(self, slot: Slot) -> None:
        """The one that was to end has ended by itself, before any signal: the child may live."""
        if slot.terminate_at is not None:
            slot.ending = slot.ended_work = slot.ending_error = slot.terminate_at = slot.kill_at = None

    def on_exit(self, child: Child) -> None:
        """Handle the end of a child. The job that it was killed for, or else what ran in it, is charged; jobs that waited
        behind go to another child, and tasks that ran beside one in an async child are handed back."""
        slot = self._slots.pop(child)
        running = {work.index: (work, started) for work, started in slot.running()}
        if slot.ended_work is not None:
            victims = [slot.ended_work] if slot.ended_work.index in slot.sent else []
        else:
            victims = [work for work, _ in running.values()]
        self._idle(slot)
        begun = self._begun(slot)
        others = [w for w in slot.sent.values() if w not in victims and w not in begun]
        if slot.executor == "async":
            self._hand_back_started(others)
        else:
            self._put_back(others)
        for work in begun:
            if work not in victims and self._is_current(work):
                self._lose_result(work)
        for work in victims:
            if self._is_current(work):
                started = running[work.index][1] if work.index in running else None
                self._end_victim(slot, work, started)
        if not child.ready:
            self._start_later()
        if not self.closing:
            self.open()
            self.pump()

    def _begun(self, slot: Slot) -> list[Work]:
        """Work that the child finished, but whose result went down with it: it ran, so it cannot be free."""
        if slot.executor == "async":
            return []
        last, _, _ = slot.child.shared_state.running()
        first, end = slot.skipping or (0, 0)
        return [work for index, work in slot.sent.items() if index <= last and not first <= index < end]

    def _lose_result(self, work: Work) -> None:
        del self.works[work.id]
        why = "the job had run, but its process crashed before the result was sent"
        self._end_all([self._given_up(work, "lost", why)])

    def _hand_back_started(self, works: list[Work]) -> None:
        """Hand back tasks that ran beside one whose process had to be killed. They had started, so another start needs
        another claim: the coordinator gives it, and charges no attempt."""
        others = [work for work in works if self._is_current(work)]
        if not others:
            return
        ended: list[Ended] = []
        for work in others:
            del self.works[work.id]
            kind: Kind = "cancelled" if work.cancelled else "handed_back"
            error = problem(kind, "the process that it shared with another job was killed")
            ended.append(self._ended_now(work, kind, error, work.started))
        self._end_all(ended)

    def _end_victim(self, slot: Slot, work: Work, started: float | None) -> None:
        del self.works[work.id]
        kind: Kind = slot.ending or "crash"
        error = slot.ending_error or crash_error(slot.child.returncode)
        self._end_all([self._ended_now(work, kind, error, started)])

    def _is_current(self, work: Work) -> bool:
        return self.works.get(work.id) is work

    def _put_back(self, works: list[Work]) -> None:
        """Work that was sent to a child and not started waits again, ahead of what came later."""
        for work in reversed(works):
            work.index = -1
            work.started = None
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
            self._carry_out(slot, now)
            range_ = slot.skipping
            running = slot.running()
            for work, started in running:
                starts += self._watch(slot, work, started, now)
            self._watch_silence(slot, runs=bool(running))
            if range_ is not None:
                self._take_back(slot, range_)
        self._hand_back_late(now)
        if now >= self._next_recycle:
            self._next_recycle = now + RECYCLE_EVERY_SECONDS
            self._recycle()
        self.open()
        return starts

    def _carry_out(self, slot: Slot, now: float) -> None:
        """The next step of ending a child that was asked to end: first a word, then SIGTERM, then SIGKILL."""
        if slot.kill_at is not None and now >= slot.kill_at:
            slot.child.kill()
        elif slot.terminate_at is not None and now >= slot.terminate_at:
            slot.terminate_at = None
            slot.child.terminate()

    def _watch(self, slot: Slot, work: Work, started: float, now: float) -> list[tuple[Work, float]]:
        ran = now - started
        timeout = work.template.timeout_sec
        if not self._is_current(work):
            self._end(slot, work, "lost", None)
        elif work.cancelled:
            self._end_cancelled(slot, work)
        elif timeout is not None and ran >= timeout:
            message = f"the job ran for longer than its timeout of {timeout:g} s and was killed"
            self._end(
                slot, work, "timeout", problem("timeout", message, timeout_sec=timeout), TIMEOUT_GRACE_SECONDS
            )
        elif work.template.memory_mb is not None and slot.executor != "async":
            self._watch_memory(slot, work, work.template.memory_mb)
        if ran > STUCK_SECONDS and len(slot.sent) > 1 and slot.executor != "async":
            self._begin_to_take_back(slot, work.index)
        if ran > TELL_START_SECONDS and not work.told_start:
            work.told_start = True
            return [(work, started)]
        return []

    def _watch_silence(self, slot: Slot, *, runs: bool) -> None:
        """End a child that lost the jobs it was sent, as when a task read them from the pipe."""
        slot.silent_ticks = 0 if runs or not slot.sent else slot.silent_ticks + 1
        if slot.silent_ticks == SILENT_TICKS:
            log.warning("child_is_silent", pid=slot.child.pid, jobs=len(slot.sent))
            slot.child.kill()

    def _watch_memory(self, slot: Slot, work: Work, memory_mb: int) -> None:
        """The job's own limit stops most; this stops what its grandchildren take, or a library that ignores it."""
        if self._memory_kb(slot.child.pid) > memory_mb * 1024 + self._baseline_kb(slot):
            message = f"the job needed more memory than its limit of {memory_mb} MB and was killed"
            self._end(slot, work, "error", problem("memory_limit", message, memory_mb=memory_mb), 0.0)

    def _baseline_kb(self, slot: Slot) -> int:
        """What a child has before a job begins; a process of the job's own starts with next to nothing."""
        return 64 * 1024 if slot.child.warm else 0

    def _begin_to_take_back(self, slot: Slot, running: int) -> None:
        if slot.skipping is None:
            slot.skipping = (running + 1, slot.next_index)
            slot.child.shared_state.skip(*slot.skipping)

    def _take_back(self, slot: Slot, range_: tuple[int, int]) -> None:
        """A tick after the range was written: what stands behind the running job cannot start any more. What the child
        reached meanwhile it either started or declined, and it says which."""
        first, end = range_
        index, _, _ = slot.child.shared_state.running()
        back = [slot.sent.pop(i) for i in range(max(first, index + 1), end) if i in slot.sent]
        slot.skipping = None
        self._put_back(back)
        self.pump()

    def _hand_back_late(self, now: float) -> None:
        late = [work for work in self._waiting if now - work.received > PATIENCE_SECONDS]
        late = [work for work in late if now - work.received > self._patience(work)]
        if late:
            self._end_waiting(late, "handed_back", "no thread became free in time")

    def _patience(self, work: Work) -> float:
        if self._is_up(self._executor_of(work.template.type)):
            return PATIENCE_SECONDS
        return START_PATIENCE_SECONDS if self._now() >= self._open_after else REFUSED_PATIENCE_SECONDS

    def _recycle(self) -> None:
        """Replace idle warm children that ran many jobs or grew large: leaks must not outlive them."""
        for slot in list(self._slots.values()):
            if not slot.child.warm or not slot.child.ready or slot.ending is not None:
                continue
            old = slot.child.jobs_taken >= self._limits.child_max_jobs
            large = self._memory_kb(slot.child.pid) > self._limits.child_max_memory_mb * 1024
            slot.retiring = slot.retiring or old or large
            if slot.retiring and not slot.sent:
                self._retire(slot)

    def _retire(self, slot: Slot) -> None:
        """End an idle child. One that has a lifespan to leave gets time for it."""
        if not slot.child.has_lifespan:
            slot.child.end()
        elif slot.kill_at is None:
            slot.kill_at = self._now() + LIFESPAN_EXIT_SECONDS
            slot.child.terminate()

    def retire_idle(self) -> None:
        """Ask idle children that have a lifespan to leave it; this worker starts no others. `close` ends the rest."""
        self.closing = True
        for slot in list(self._slots.values()):
            if slot.child.has_lifespan and slot.child.ready and not slot.sent:
                self._retire(slot)

    @property
    def is_retiring(self) -> bool:
        """Whether children that were asked to leave their lifespan are still there."""
        return any(slot.child.has_lifespan and slot.kill_at is not None for slot in self._slots.values())

    # ── ending work ────────────────────────────────────────────────────────────────────────────────────────────────

    def _end_waiting(self, works: list[Work], kind: Kind, why: str) -> None:
        """End work that has not started."""
        gone = set(map(id, works))
        self._waiting = deque(work for work in self._waiting if id(work) not in gone)
        error = problem(kind, why)
        for work in works:
            del self.works[work.id]
        self._end_all([self._ended_now(work, kind, error) for work in works])

    def hand_back_waiting(self, why: str) -> None:
        """Give back everything that has not started: at once what waits here, a tick later what waits in a child."""
        if self._waiting:
            self._end_waiting(list(self._waiting), "handed_back", why)
        for slot in self._slots.values():
            if len(slot.sent) > 1 and slot.executor != "async":
                self._begin_to_take_back(slot, slot.child.shared_state.running()[0])

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
        """End one piece of work without a report: the coordinator says that it no longer belongs to this worker."""
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
        for running, started in slot.running():
            if running is work:
                self._watch(slot, work, started, self._now())
                return
        self._begin_to_take_back(slot, slot.child.shared_state.running()[0])

    def kill_all(self) -> None:
        """Kill whatever runs here and report nothing, because the session is lost and its jobs belong to other workers."""
        self.works.clear()
        self._waiting.clear()
        for slot in self._slots.values():
            if slot.sent:
                slot.ending = slot.ending or "lost"
                slot.child.kill()

    def lose_all(self) -> None:
        """The lease is over: whatever runs here may be running elsewhere already. Should the session still stand, what had
        started is charged as lost; silence would pass for an assignment that never came, which costs nothing."""
        started = {id(work) for slot in self._slots.values() for work in self._started(slot)}
        works = list(self.works.values())
        self.kill_all()
        why = "no heartbeat was confirmed before the lease of its worker ended"
        self._end_all(
            [self._given_up(work, "lost" if id(work) in started else "handed_back", why) for work in works]
        )

    def _started(self, slot: Slot) -> list[Work]:
        return list(slot.sent.values()) if slot.executor == "async" else self._begun(slot)

    def _given_up(self, work: Work, kind: Kind, why: str) -> Ended:
        return self._ended_now(work, kind, problem(kind, why))

    def _ended_now(self, work: Work, kind: Kind, error: bytes, started: float | None = None) -> Ended:
        return Ended(work.id, work.claim_id, kind, finished=self._now(), started=started, error=error)

    def _end_all(self, ended: list[Ended]) -> None:
        self._ended(Ends(others=ended))

    def end_running(self, why: str) -> None:
        """Hand back what still runs: the grace period is over."""
        for slot in self._slots.values():
            running = slot.running()
            if slot.executor == "async":
                self._put_back_async(slot, why)
            elif running:
                self._end(slot, running[0][0], "handed_back", problem("handed_back", why))

    def _put_back_async(self, slot: Slot, why: str) -> None:
        works = [work for work in slot.sent.values() if self._is_current(work)]
        slot.sent.clear()
        self._put_back(works)
        if works:
            self._end_waiting([work for work in works if self._is_current(work)], "handed_back", why)
        slot.child.kill()

    def _end_cancelled(self, slot: Slot, work: Work) -> None:
        """A word first, so that a job that listens can tidy up; then the signals."""
        if slot.ending is None:
            error = problem("cancelled", "the job was cancelled while it ran")
            self._end_child(slot, work, "cancelled", error, self._limits.cancel_grace_sec)
            slot.child.cancel(work.index)

    def _end(
        self, slot: Slot, work: Work, kind: Kind, error: bytes | None, grace: float | None = None
    ) -> None:
        if slot.ending is not None:
            return
        grace = self._limits.cancel_grace_sec if grace is None else grace
        self._end_child(slot, work, kind, error, grace)
        if slot.executor == "async":
            slot.child.cancel(work.index)  # its neighbours should not pay: it gets a moment to go by itself
        else:
            slot.terminate_at, slot.kill_at = None, self._now() + grace
            slot.child.terminate()

    def _end_child(self, slot: Slot, work: Work, kind: Kind, error: bytes | None, grace: float) -> None:
        slot.ending, slot.ended_work, slot.ending_error = kind, work, error
        slot.terminate_at = self._now() + COOPERATION_SECONDS
        slot.kill_at = slot.terminate_at + grace

    def _find(self, job_id: str, claim_id: int) -> Work | None:
        work = self.works.get(job_id)
        return work if work is not None and work.claim_id == claim_id else None

    def _slot_of(self, work: Work) -> Slot | None:
        if work.index < 0:
            return None
        return next((slot for slot in self._slots.values() if slot.sent.get(work.index) is work), None)

    def close(self) -> None:
        """End all children now."""
        self.closing = True
        for slot in list(self._slots.values()):
            slot.ending = slot.ending or "handed_back"
            slot.child.end()


def works_of(batch: AssignmentBatch, now: float) -> list[Work]:
    template = batch.template
    return [Work(id, payload, template, now) for id, payload in zip(batch.ids, batch.payloads, strict=True)]


def are_alike(one: Assignment, other: Assignment) -> bool:
    """Whether the same places will do."""
    return one is other or (one.type == other.type and one.threads == other.threads)


def child_batches(works: list[Work], cpus: list[int] | None) -> list[ChildBatch]:
    """Work with indexes that follow each other, as it is sent."""
    batches: list[ChildBatch] = []
    for template, group in groupby(works, attrgetter("template")):
        alike = list(group)
        ids, payloads = [work.id for work in alike], [work.payload for work in alike]
        for first, end in cuts([len(payload) for payload in payloads], BATCH_BYTES, DEPTH):
            batches.append(
                ChildBatch(alike[first].index, template, ids[first:end], payloads[first:end], cpus)
            )
    return batches


def crash_error(returncode: int | None) -> bytes:
    """What to say of a child that ended by itself."""
    if returncode is not None and returncode < 0:
        hint = "; perhaps the system ran out of memory" if returncode == -9 else ""
        return problem(
            "crash", f"the job's process was killed by signal {-returncode}{hint}", signal=-returncode
        )
    return problem(
        "crash", f"the job's process ended by itself with exit code {returncode}", exit_code=returncode
    )
