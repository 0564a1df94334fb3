"""One child of the pool: its state, the work that was sent to it, and the effects that only concern this child."""

from typing import Final

import structlog
from msgspec.structs import replace

from stoker.domain.retry import Kind
from stoker.executors.pipe import ChildBatch
from stoker.executors.process import Child
from stoker.executors.shared_state import NOTHING
from stoker.worker import child_states as states
from stoker.worker.child_states import (
    BUSY,
    DEPTH,
    IDLE,
    NEVER,
    STARTING,
    STUCK_SECONDS,
    WHAT_RUNS,
    Ending,
    Retiring,
    State,
    Work,
)
from stoker.worker.routes import Executor

BATCH_BYTES: Final = 1024 * 1024
LIFESPAN_EXIT_SECONDS: Final = 5.0
"""How long the lifespan of an app may take to end; then its process is killed."""
SILENT_TICKS: Final = 200
"""After this many looks (ten seconds) at a child that has jobs, runs none and says nothing, it will not run them. Looks are
counted and not seconds, because a machine that stood still has not looked."""

log = structlog.get_logger()


class Slot:
    """Holds a child of the pool, its state and its work. `sent` has all work placed here, in order; the part in
    `outgoing` is written to the child once the pool has placed all that it can."""

    def __init__(self, child: Child, executor: Executor) -> None:
        self.child = child
        self.executor = executor
        self.together = executor == "async"
        """Whether the child runs all its work at once."""
        self.state: State = IDLE if child.ready else STARTING
        self.sent: dict[int, Work] = {}
        self.outgoing: list[Work] = []
        self.next_index = 0
        self.threads = 0
        self.cpus: list[int] = []
        self.silent_ticks = 0

    def running(self) -> list[tuple[Work, float]]:
        """Return the work that runs now and since when."""
        if self.together:
            return [(work, work.started) for work in self.sent.values() if work.started is not None]
        index, busy, started = self.child.shared_state.running()
        work = self.sent.get(index) if busy else None
        return [] if work is None else [(work, started)]

    @property
    def last(self) -> int:
        """Return the index of the last job that the child has started, for a child that runs its work one by one."""
        return NOTHING if self.together else self.child.shared_state.running()[0]

    def is_closed(self, now: float) -> bool:
        """Return whether no work may be queued behind what runs: a job of several threads, or a long one."""
        if self.together:
            return False
        return self.threads > 1 or any(now - started > STUCK_SECONDS for _, started in self.running())

    def add(self, work: Work, now: float, free_cpus: list[int]) -> None:
        """Place work here; `send` writes it to the child. A job for several threads gets CPUs of its own, if any are
        free."""
        work.index = self.next_index
        self.next_index += 1
        self.sent[work.index] = work
        self.outgoing.append(work)
        self.state = BUSY
        if self.together:
            self.threads = 1
            work.started = now
        elif work.template.threads > self.threads:
            self.threads = threads = work.template.threads
            if threads > 1 and not self.cpus:
                self.cpus, free_cpus[:threads] = free_cpus[:threads], []

    def free(self, free_cpus: list[int]) -> None:
        """Give up threads and CPUs: nothing runs here any more."""
        self.state = IDLE if self.state is BUSY else states.rested(self.state)
        self.threads = 0
        if self.cpus:
            free_cpus += self.cpus
            self.cpus = []

    def send(self) -> None:
        """Send what was placed here, in batches of jobs that are alike."""
        outgoing, self.outgoing = self.outgoing, []
        batches: list[ChildBatch] = []
        template, ids, payloads, size = None, [""], [b""], 0
        for work in outgoing:
            size += len(work.payload)
            if work.template != template or size > BATCH_BYTES or len(ids) >= DEPTH:
                template, ids, payloads, size = work.template, [], [], len(work.payload)
                batches.append(ChildBatch(work.index, template, ids, payloads, self.cpus or None))
            ids.append(work.id)
            payloads.append(work.payload)
        self.child.send(batches)

    # ── taking back ────────────────────────────────────────────────────────────────────────────────────────────────

    def begin_to_take_back(self, last: int) -> None:
        """Mark the work behind the index `last` to be skipped."""
        if states.taking_back(self.state) is None:
            self.state = states.begin_to_take_back(self.state, last + 1, self.next_index)
            self.child.shared_state.skip(last + 1, self.next_index)

    def take_back(self, skip: states.TakingBack) -> list[Work]:
        """Return the work that the child has not reached, a tick after the range was marked."""
        self.state = states.taken_back(self.state)
        return [self.sent.pop(index) for index in states.unreached(skip, self.sent, self.last)]

    # ── ending ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def end_work(self, work: Work, kind: Kind, error: bytes, now: float, grace: float) -> None:
        """End work that runs. A cancelled job is asked first, so that it can tidy up; so is one in an async child, whose
        neighbours should not pay. Others get SIGTERM at once."""
        if isinstance(self.state, Ending):
            return
        softly = self.together or kind == "cancelled"
        self.state = states.ending(self.state, work.index, kind, error, now=now, grace=grace, softly=softly)
        if softly:
            self.child.cancel(work.index)
        else:
            self.child.terminate()

    def give_up(self, kind: Kind) -> None:
        """Record that running work is to be reported as `kind`. The caller ends the child."""
        self.state = states.ending(self.state, WHAT_RUNS, kind, b"", now=0.0, grace=NEVER, softly=False)

    def send_due_signal(self, now: float) -> None:
        """Send the next signal to a child that is being ended, when it is time."""
        signal = states.due(self.state, now)
        if signal == "kill":
            self.child.kill()
        elif signal == "terminate":
            self.state = replace(self.state, terminate_at=NEVER)
            self.child.terminate()

    def watch_silence(self, *, runs: bool) -> None:
        """End a child that lost the jobs it was sent, as when a task read them from the pipe."""
        self.silent_ticks = 0 if runs or not self.sent else self.silent_ticks + 1
        if self.silent_ticks == SILENT_TICKS:
            log.warning("child_is_silent", pid=self.child.pid, jobs=len(self.sent))
            self.child.kill()

    def retire(self, now: float) -> None:
        """End an idle child. One that has a lifespan to leave gets time for it."""
        if not self.child.has_lifespan:
            self.child.end()
        elif states.kill_at(self.state) == NEVER:
            self.state = Retiring(now + LIFESPAN_EXIT_SECONDS)
            self.child.terminate()

    @property
    def leaves_lifespan(self) -> bool:
        """Whether the child was asked to leave the lifespan of its app."""
        return self.child.has_lifespan and states.kill_at(self.state) < NEVER
