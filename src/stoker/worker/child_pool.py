"""The worker's children: starts them, gives them work, ends them. No connection and no reports in here.

A job takes its threads while it runs; the sum never exceeds the worker's number. Short jobs that were assigned ahead of
time (the prefetch) are queued at a child that is busy with a short one, so that the child never waits for the next. If
that one turns out long, those behind it are taken back: another child gets them, and what cannot start within
`PATIENCE_SECONDS` is handed back to the coordinator, uncharged.

Async tasks share one child, which holds one thread for as long as it runs any of them.

The states of a child and all decisions are in `stoker.worker.child_states`, without side effects; this module carries
them out.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import structlog

from stoker.domain.retry import Kind, problem
from stoker.executors.pipe import OutcomeBatch, Ready, WorkOutcome
from stoker.executors.process import Child, advice
from stoker.system import SYSTEM
from stoker.wire.frames import Assignment, AssignmentBatch
from stoker.worker import child_states as states
from stoker.worker.child_states import Busy, Ending, Idle, Limits, Starting, Work
from stoker.worker.routes import Executor
from stoker.worker.slot import Slot

REFILL_BELOW: Final = 64
RECYCLE_EVERY_SECONDS: Final = 1.0
_TAKES_WORK: Final = (Idle, Busy)

log = structlog.get_logger()


class ChildPool:
    """Runs the work of one worker in child processes: starts them, chooses one for each job, ends jobs, reports ends."""

    def __init__(
        self,
        limits: Limits,
        spawn: Callable[[Executor, str], Child],
        *,
        executor_of: Callable[[str], Executor],
        ended: Callable[[OutcomeBatch], None],
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
        self._free_cpus = list(cpus) if cpus is not None and len(cpus) >= self._threads else []
        self.works: dict[str, Work] = {}
        self.closing = False

    @property
    def used(self) -> int:
        """The number of threads that work holds."""
        return sum([slot.threads for slot in self._slots.values()])

    @property
    def children(self) -> list[Child]:
        return list(self._slots)

    def work_at(self, child: Child, index: int) -> Work | None:
        """Return the work that a child speaks of, if it is still ours."""
        slot = self._slots.get(child)
        work = None if slot is None else slot.sent.get(index)
        return work if work is not None and self._is_current(work) else None

    def _is_current(self, work: Work) -> bool:
        return self.works.get(work.id) is work

    # ── starting children ──────────────────────────────────────────────────────────────────────────────────────────

    def open(self) -> None:
        """Start a Python child for each thread, so that the first jobs find them warm."""
        while self._open_another("python", "") is not None:
            pass

    def warm(self, executor: Executor) -> None:
        """Start the first child of this kind before it is needed."""
        self._open_another(executor, "")

    def _open_another(self, executor: Executor, type: str) -> Slot | None:
        """Start one more warm child, if this kind may have one more."""
        there = [s for s in self._slots.values() if s.executor == executor and not states.is_leaving(s.state)]
        most = 1 if executor == "async" else self._threads
        return self._open(executor, type) if len(there) < most else None

    def _open(self, executor: Executor, type: str) -> Slot | None:
        """Start a child. Return None when the system refuses (no memory, no descriptors, a binary that is gone), for a
        while after that, and when the worker leaves."""
        if self.closing or self._now() < self._open_after:
            return None
        try:
            child = self._spawn(executor, type)
        except OSError as error:
            log.error("child_cannot_start", executor=executor, detail=advice(error))
            self._start_later()
            return None
        slot = self._slots[child] = Slot(child, executor)
        return slot

    def _start_later(self) -> None:
        """Wait before the next start, longer after each failure: else a child that cannot start is started for ever."""
        self._failed_starts += 1
        self._open_after = self._now() + min(5.0, 0.1 * 2 ** min(self._failed_starts, 10))

    # ── taking work ────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, batches: list[AssignmentBatch]) -> None:
        """Accept assigned jobs, and give them to children as far as there is room."""
        now = self._now()
        for batch in batches:
            if not self.works.keys().isdisjoint(batch.ids):
                # Assigned again while the old claim is still here: the old one is void, whatever it does.
                for id in [id for id in batch.ids if id in self.works]:
                    self.drop(id, self.works[id].claim_id)
            pairs = zip(batch.ids, batch.payloads, strict=True)
            works = {id: Work(id, payload, batch.template, now) for id, payload in pairs}
            self.works.update(works)
            self._waiting.extend(works.values())
        self.pump()

    def claims_among(self, ids: set[str]) -> dict[str, int]:
        """Return the claims under which jobs of these ids are here."""
        return {id: self.works[id].claim_id for id in ids if id in self.works}

    def decline(self, batches: list[AssignmentBatch], why: str) -> None:
        """Hand back assigned jobs without accepting them."""
        now = self._now()
        works = [Work(id, b"", batch.template, now) for batch in batches for id in batch.ids]
        self._end_all(works, "handed_back", why)

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
                slot.add(waiting.popleft(), self._now(), self._free_cpus)
                if not waiting or not states.are_alike(waiting[0].template, template):
                    break
            else:
                if self._is_up(executor):
                    break
                starting.append(waiting.popleft())
        waiting.extendleft(reversed(starting))
        for slot in [slot for slot in self._slots.values() if slot.outgoing]:
            slot.send()

    def _is_up(self, executor: Executor) -> bool:
        """Return whether a child of this executor is ready. An executor that starts a process for each job always is."""
        if executor in ("runner", "command"):
            return True
        return any(slot.child.ready for slot in self._slots.values() if slot.executor == executor)

    def _places(self, executor: Executor, template: Assignment) -> Iterator[Slot]:
        """Yield the slot for the next work of this kind, and for the one after it, as long as there is room. The caller must
        use each slot before it asks for another."""
        type, threads = template.type, template.threads
        if executor in ("runner", "command"):
            while self.used + threads <= self._threads and (new := self._open(executor, type)) is not None:
                yield new
            return
        slots = [
            slot
            for slot in self._slots.values()
            if slot.executor == executor and isinstance(slot.state, _TAKES_WORK)
        ]
        if not slots:
            self._open_another(executor, type)
            return
        together = executor == "async"
        free = self._threads - self.used
        for slot in slots:  # idle children first, which leaves nothing to decide
            if not slot.sent:
                if free < threads:
                    return
                free -= 1 if together else threads
                yield slot
        now = self._now()
        for at in states.places(
            [len(slot.sent) for slot in slots],
            [at for at, slot in enumerate(slots) if slot.is_closed(now)],
            free=free,
            threads=threads,
            together=together,
            depth=self._limits.async_concurrency if together else states.DEPTH,
        ):
            if at == states.ANOTHER_CHILD:
                self._open_another(executor, type)
            else:
                yield slots[at]

    # ── what children say ──────────────────────────────────────────────────────────────────────────────────────────

    def on_ready(self, child: Child, ready: Ready) -> None:
        self._failed_starts = 0
        slot = self._slots[child]
        if isinstance(slot.state, Starting):
            slot.state = states.IDLE
        self.pump()

    def on_results(self, child: Child, told: OutcomeBatch) -> None:
        """Report the work that a child finished, and send it more. Work that was taken back or dropped is left out."""
        slot = self._slots[child]
        slot.silent_ticks = 0
        sent, held = slot.sent, self.works
        works = [sent.pop(index, None) for index in told.indexes]
        ours = [work for work in works if work is not None and held.get(work.id) is work]
        ended = told
        if len(ours) < len(works):
            ended = told.only([work is not None and held.get(work.id) is work for work in works])
        for work in ours:
            del held[work.id]
        ended.ids[:] = [work.id for work in ours]
        ended.claim_ids[:] = [work.template.claim_id for work in ours]
        if told.others:
            ended.others[:] = self._end_others(slot, told.others)
        if isinstance(slot.state, Ending):
            slot.state = states.spared(slot.state, slot.sent)
        if not sent:
            slot.free(self._free_cpus)
        if self._waiting and len(sent) < REFILL_BELOW:
            self.pump()
        if ended.ids or ended.others:
            self._ended(ended)

    def _end_others(self, slot: Slot, told: list[WorkOutcome]) -> list[WorkOutcome]:
        """Return how work ended that did not complete; what the child declined waits again."""
        ended: list[WorkOutcome] = []
        back: list[Work] = []
        for one in list(told):
            work = slot.sent.pop(one.index, None)
            if work is None or not self._is_current(work):
                continue
            if one.kind == "handed_back":
                back.append(work)
                continue
            del self.works[work.id]
            ended.append(states.end_of(slot.state, work, one, together=slot.together))
        if back:
            self._put_back(back)
        return ended

    def on_exit(self, child: Child) -> None:
        """Handle the end of a child. The job that it was killed for, or else what ran in it, is charged; jobs that waited
        behind go to another child, and tasks that ran beside one in an async child are handed back."""
        slot = self._slots.pop(child)
        running = {work.index: started for work, started in slot.running()}
        left = states.leftover(slot.state, slot.sent, [slot.sent[index] for index in running], slot.last)
        slot.free(self._free_cpus)
        if slot.together:
            self._hand_back_started(left.rest)
        else:
            self._put_back(left.rest)
        lost = [work for work in left.lost if self._is_current(work)]
        self._end_all(lost, "lost", "the job had run, but its process crashed before the result was sent")
        for work in left.ended:
            if self._is_current(work):
                self._end_victim(slot, work, running.get(work.index))
        if not child.ready:
            self._start_later()
        if not self.closing:
            self.open()
            self.pump()

    def _hand_back_started(self, works: list[Work]) -> None:
        """Hand back tasks that ran beside one whose process had to be killed. They had started, so another start needs
        another claim: the coordinator gives it, and charges no attempt."""
        ended: list[WorkOutcome] = []
        for work in works:
            if self._is_current(work):
                del self.works[work.id]
                kind: Kind = "cancelled" if work.cancelled else "handed_back"
                error = problem(kind, "the process that it shared with another job was killed")
                ended.append(self._end_now(work, kind, error, work.started))
        if ended:
            self._ended(OutcomeBatch(others=ended))

    def _end_victim(self, slot: Slot, work: Work, started: float | None) -> None:
        """Report the job for which a child was ended or, if it ended by itself, the job that crashed it."""
        del self.works[work.id]
        state = slot.state
        kind, error = (state.kind, state.error) if isinstance(state, Ending) else ("crash", b"")
        error = error or states.crash_error(slot.child.returncode)
        self._ended(OutcomeBatch(others=[self._end_now(work, kind, error, started)]))

    def _put_back(self, works: list[Work]) -> None:
        """Return work that a child has not started to the front of the queue."""
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
        """Enforce timeouts, take back waiting work, notice dead children. Return the work whose start is to be reported."""
        now = self._now()
        starts: list[tuple[Work, float]] = []
        for slot in list(self._slots.values()):
            slot.child.poll()
            if slot.child.ended:
                continue
            slot.send_due_signal(now)
            skip = states.taking_back(slot.state)
            running = slot.running()
            starts += [item for item in running if self._watch(slot, *item, now)]
            slot.watch_silence(runs=bool(running))
            if skip is not None:
                self._put_back(slot.take_back(skip))
                self.pump()
        self._hand_back_late(now)
        if now >= self._next_recycle:
            self._next_recycle = now + RECYCLE_EVERY_SECONDS
            self._recycle()
        self.open()
        return starts

    def _watch(self, slot: Slot, work: Work, started: float, now: float) -> bool:
        """End running work if it must end, and take back work behind a long job. Return whether to report its start now."""
        ran = now - started
        if not isinstance(slot.state, Ending):
            reason = states.reason_to_end(work, held=self._is_current(work), ran=ran)
            memory_mb = work.template.memory_mb
            if reason is None and memory_mb is not None and not slot.together:
                used_kb = self._memory_kb(slot.child.pid)
                reason = states.memory_reason(memory_mb, used_kb, warm=slot.child.warm)
            if reason is not None:
                grace = self._limits.cancel_grace_sec if reason.grace is None else reason.grace
                slot.end_work(work, reason.kind, reason.error, now, grace)
        if ran > states.STUCK_SECONDS and len(slot.sent) > 1 and not slot.together:
            slot.begin_to_take_back(work.index)
        if ran > states.TELL_START_SECONDS and not work.told_start:
            work.told_start = True
            return True
        return False

    def _hand_back_late(self, now: float) -> None:
        late: list[Work] = []
        for work in self._waiting:
            if now - work.received > states.PATIENCE_SECONDS:
                is_up = self._is_up(self._executor_of(work.template.type))
                if now - work.received > states.patience(is_up=is_up, can_start=now >= self._open_after):
                    late.append(work)
        if late:
            self._end_waiting(late, "handed_back", "no thread became free in time")

    def _recycle(self) -> None:
        """Replace warm children that ran many jobs or grew large, once they are idle: leaks must not outlive them."""
        for slot in list(self._slots.values()):
            child = slot.child
            if not child.warm or isinstance(slot.state, Starting | Ending):
                continue
            if states.is_worn(child.jobs_taken, self._memory_kb(child.pid), self._limits):
                slot.state = states.retired(slot.state)
            if states.is_leaving(slot.state) and not slot.sent:
                slot.retire(self._now())

    def retire_idle(self) -> None:
        """Ask idle children that have a lifespan to leave it; this worker starts no others. `close` ends the rest."""
        self.closing = True
        for slot in list(self._slots.values()):
            if slot.child.has_lifespan and slot.child.ready and not slot.sent:
                slot.retire(self._now())

    @property
    def is_retiring(self) -> bool:
        """Whether children that were asked to leave their lifespan are still there."""
        return any(slot.leaves_lifespan for slot in self._slots.values())

    # ── ending work ────────────────────────────────────────────────────────────────────────────────────────────────

    def _end_waiting(self, works: list[Work], kind: Kind, why: str) -> None:
        """End work that has not started."""
        gone = set(map(id, works))
        self._waiting = deque(work for work in self._waiting if id(work) not in gone)
        self._end_all(works, kind, why)

    def hand_back_waiting(self, why: str) -> None:
        """Give back everything that has not started: at once what waits here, a tick later what waits in a child."""
        self._end_waiting(list(self._waiting), "handed_back", why)
        for slot in self._slots.values():
            if len(slot.sent) > 1 and not slot.together:
                slot.begin_to_take_back(slot.last)

    def cancel(self, job_id: str, claim_id: int) -> None:
        """Cancel a job, whether it waits or runs."""
        work = self.works.get(job_id)
        if work is None or work.claim_id != claim_id or work.cancelled:
            return
        work.cancelled = True
        if not self._stop(work):
            self._end_waiting([work], "cancelled", "the job was cancelled before it started")

    def drop(self, job_id: str, claim_id: int) -> None:
        """End a job without a report: the coordinator says that it no longer belongs to this worker."""
        work = self.works.get(job_id)
        if work is None or work.claim_id != claim_id:
            return
        del self.works[job_id]
        if not self._stop(work):
            self._waiting.remove(work)

    def _stop(self, work: Work) -> bool:
        """End work that was sent to a child: kill it if it runs, else keep it from starting; the tick sees to the rest.
        Return False for work that still waits here."""
        slot = next((slot for slot in self._slots.values() if slot.sent.get(work.index) is work), None)
        if slot is None:
            return False
        for running, started in slot.running():
            if running is work:
                self._watch(slot, work, started, self._now())
                return True
        slot.begin_to_take_back(slot.child.shared_state.running()[0])
        return True

    def kill_all(self) -> None:
        """Kill whatever runs here and report nothing, because the session is lost and its jobs belong to other workers."""
        self.works.clear()
        self._waiting.clear()
        for slot in self._slots.values():
            if slot.sent:
                slot.give_up("lost")
                slot.child.kill()

    def lose_all(self) -> None:
        """Kill everything, because the lease is over and the jobs may be running elsewhere. Report started work as lost, so
        that the attempt is charged if the session is still valid: without a report it would count as an assignment that
        never arrived, which is not charged."""
        started: set[int] = set()
        for slot in self._slots.values():
            begun = states.begun(slot.state, slot.sent, slot.last)
            started.update(map(id, slot.sent.values() if slot.together else begun))
        works = list(self.works.values())
        self.kill_all()
        why = "no heartbeat was confirmed before the lease of its worker ended"
        self._end_all([work for work in works if id(work) in started], "lost", why)
        self._end_all([work for work in works if id(work) not in started], "handed_back", why)

    def end_running(self, why: str) -> None:
        """Hand back what still runs: the grace period is over."""
        for slot in self._slots.values():
            if slot.together:
                works = [work for work in slot.sent.values() if self._is_current(work)]
                slot.sent.clear()
                self._put_back(works)
                self._end_waiting([work for work in works if self._is_current(work)], "handed_back", why)
                slot.child.kill()
            else:
                for work, _ in slot.running():
                    error = problem("handed_back", why)
                    slot.end_work(work, "handed_back", error, self._now(), self._limits.cancel_grace_sec)

    def close(self) -> None:
        """End all children now."""
        self.closing = True
        for slot in list(self._slots.values()):
            slot.give_up("handed_back")
            slot.child.end()

    def _end_all(self, works: list[Work], kind: Kind, why: str) -> None:
        """Report that all of this work ended as `kind`, with the same error."""
        if works:
            error = problem(kind, why)
            for work in works:
                if self._is_current(work):
                    del self.works[work.id]
            self._ended(OutcomeBatch(others=[self._end_now(work, kind, error) for work in works]))

    def _end_now(self, work: Work, kind: Kind, error: bytes, started: float | None = None) -> WorkOutcome:
        now, claim_id = self._now(), work.claim_id
        return WorkOutcome(work.index, kind, None, error, started, now, id=work.id, claim_id=claim_id)
