"""What a child of the pool is doing, and the decisions about it. Pure: no I/O, no clock; the present is an argument.

A slot of the pool (`stoker.worker.slot.Slot`) is a child and the work that was sent to it. It is in one state:

    Starting ──► Idle ◄──► Busy ──► TakingBack     any state ──► Ending ──► the child is gone
                   └───────►└────► Retiring

Only `Idle` and `Busy` slots are sent work. `TakingBack` and `Ending` interrupt another state, which they name in `then`:
the slot returns to it when the work was taken back, or when the job that was to end has ended by itself.

Work is sent under an index that only grows in its child. A child that runs its work one by one writes the index of the
last job that it started into the shared state; that index is `last` here.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, Literal, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from stoker.domain.retry import Kind, problem
from stoker.executors.pipe import WorkOutcome
from stoker.wire.frames import Assignment

DEPTH: Final = 128
"""The most work that is queued at one child. Messages are expensive beside short jobs, so it is sent many at once; but
work that is queued at one child cannot run in another that is idle."""
STUCK_SECONDS: Final = 0.03
"""No work is queued behind a job that has run for longer than this, and work queued there before is taken back."""
PATIENCE_SECONDS: Final = 0.25
START_PATIENCE_SECONDS: Final = 15.0
REFUSED_PATIENCE_SECONDS: Final = 1.0
"""How long work waits while the system refuses to start a child for it; then another worker gets it."""
TELL_START_SECONDS: Final = 0.02
TIMEOUT_GRACE_SECONDS: Final = 0.5
COOPERATION_SECONDS: Final = 0.5
"""How long a job may take to notice that it was cancelled before it gets a signal."""

NEVER: Final = float("inf")
WHAT_RUNS: Final = -1
"""Used instead of the index of a job: all work that runs in the child."""
ANOTHER_CHILD: Final = -1
"""Used instead of the index of a child: start another one."""


class Limits(Protocol):
    """The settings that the pool reads."""

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
    """One assigned job in this worker, waiting or running. `template` has the fields that its whole batch shares."""

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


# ── states ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Starting(msgspec.Struct, frozen=True):
    """The child has not said that it is ready."""


class Idle(msgspec.Struct, frozen=True):
    """The child is ready, and all that it was sent has ended."""


class Busy(msgspec.Struct, frozen=True):
    """The child has work, and may be sent more."""


class Retiring(msgspec.Struct, frozen=True):
    """The child may finish its work and is sent no more; another one replaces it. An idle one that was asked to leave its
    lifespan is killed at `kill_at`."""

    kill_at: float = NEVER


class TakingBack(msgspec.Struct, frozen=True):
    """The indexes from `first` to before `end` are marked to be skipped. At the next tick the child has seen the mark, and
    those that it has not reached are free to run elsewhere."""

    first: int
    end: int
    then: "Starting | Idle | Busy | Retiring"


class Ending(msgspec.Struct, frozen=True):
    """The child is being ended because of the job at `index`, or of all that runs. That job ends as `kind` with `error`;
    without an error, with what the child or its exit says. First the job is asked, then signals follow: SIGTERM at
    `terminate_at` (`NEVER` once it was sent), SIGKILL at `kill_at`."""

    index: int
    kind: Kind
    error: bytes
    terminate_at: float
    kill_at: float
    then: "Starting | Idle | Busy | Retiring | TakingBack"


State = Starting | Idle | Busy | TakingBack | Ending | Retiring
STARTING: Final = Starting()
IDLE: Final = Idle()
BUSY: Final = Busy()


def rested(state: State) -> State:
    """Return the state after the last work of the slot ended."""
    match state:
        case Busy():
            return IDLE
        case TakingBack() | Ending():
            return replace(state, then=rested(state.then))
    return state


def retired(state: State) -> State:
    """Return the state in which the slot is sent no more work and ends when it has none."""
    match state:
        case Idle() | Busy():
            return Retiring()
        case TakingBack():
            return replace(state, then=retired(state.then))
    return state


def is_leaving(state: State) -> bool:
    """Return whether the slot is to be replaced, also when something interrupts its retiring."""
    while isinstance(state, TakingBack | Ending):
        state = state.then
    return isinstance(state, Retiring)


def taking_back(state: State) -> TakingBack | None:
    """Return the range that is being taken back, also while the child is ended."""
    found = state.then if isinstance(state, Ending) else state
    return found if isinstance(found, TakingBack) else None


def begin_to_take_back(state: State, first: int, end: int) -> State:
    """Take back the indexes from `first` to before `end`, unless a range is being taken back already."""
    if isinstance(state, TakingBack):
        return state
    if not isinstance(state, Ending):
        return TakingBack(first, end, state)
    then = state.then
    return state if isinstance(then, TakingBack) else replace(state, then=TakingBack(first, end, then))


def taken_back(state: State) -> State:
    """Return the state after the range was taken back."""
    if isinstance(state, Ending):
        return replace(state, then=taken_back(state.then))
    return state.then if isinstance(state, TakingBack) else state


def ending(
    state: State, index: int, kind: Kind, error: bytes, *, now: float, grace: float, softly: bool
) -> State:
    """Begin to end a job: `softly` if it is asked first, else with SIGTERM now. A child is ended for the first reason."""
    if isinstance(state, Ending):
        return state
    if softly:
        terminate_at = now + COOPERATION_SECONDS
        return Ending(index, kind, error, terminate_at, terminate_at + grace, state)
    return Ending(index, kind, error, NEVER, now + grace, state)


def spared(state: State, sent: Collection[int]) -> State:
    """Return the state to go back to if the job that was to end has ended by itself, before any signal."""
    if isinstance(state, Ending) and state.terminate_at != NEVER and state.index not in sent:
        return state.then
    return state


def due(state: State, now: float) -> Literal["terminate", "kill"] | None:
    """Return the signal that is due now, if any."""
    if isinstance(state, Ending | Retiring) and now >= state.kill_at:
        return "kill"
    if isinstance(state, Ending) and now >= state.terminate_at:
        return "terminate"
    return None


def kill_at(state: State) -> float:
    """Return when the child gets SIGKILL."""
    return state.kill_at if isinstance(state, Ending | Retiring) else NEVER


# ── which child gets which work ────────────────────────────────────────────────────────────────────────────────────


def places(
    loads: list[int], closed: Collection[int], *, free: int, threads: int, together: bool, depth: int
) -> Iterator[int]:
    """Yield the place in `loads` of the child for the next job, and for the one after it, as long as there is room; and
    `ANOTHER_CHILD` where one more child would find a free thread.

    `loads` is how much work each child has, and `closed` are the places of those that get nothing behind what they have.
    The child with the least work is next; when that one can take no more, no child can. `free` is the number of free
    threads, and each job needs `threads`; with `together`, all jobs of a child share one.
    """
    for level in range(min(loads), depth):
        for at, load in enumerate(loads):
            if load > level:
                continue
            if level == 0:
                if free < threads:
                    return
                free -= 1 if together else threads
                yield at
                continue
            if free >= threads:
                yield ANOTHER_CHILD  # no child is idle, but threads are: the new one takes the next job when it is ready
            if at in closed or (threads > 1 and not together):
                return
            yield at
    if free >= threads:
        yield ANOTHER_CHILD  # all children are full, which is no reason to leave a thread idle


def are_alike(one: Assignment, other: Assignment) -> bool:
    """Return whether jobs of both can take the same places."""
    return one is other or (one.type == other.type and one.threads == other.threads)


def patience(*, is_up: bool, can_start: bool) -> float:
    """Return for how long work may wait for a child: one that is up, that starts, or that the system refuses to start."""
    if is_up:
        return PATIENCE_SECONDS
    return START_PATIENCE_SECONDS if can_start else REFUSED_PATIENCE_SECONDS


# ── what runs for too long, or needs too much ──────────────────────────────────────────────────────────────────────


class EndReason(NamedTuple):
    """Why running work has to end, and how long it has after SIGTERM; None for the grace period of a cancelled job."""

    kind: Kind
    error: bytes
    grace: float | None = None


def reason_to_end(work: Work, *, held: bool, ran: float) -> EndReason | None:
    """Return why work that ran for this long has to end. `held` says whether its claim is still this worker's."""
    timeout = work.template.timeout_sec
    if not held:
        return EndReason("lost", b"")
    if work.cancelled:
        return EndReason("cancelled", problem("cancelled", "the job was cancelled while it ran"))
    if timeout is None or ran < timeout:
        return None
    message = f"the job ran for longer than its timeout of {timeout:g} s and was killed"
    return EndReason("timeout", problem("timeout", message, timeout_sec=timeout), TIMEOUT_GRACE_SECONDS)


def memory_reason(memory_mb: int, used_kb: int, *, warm: bool) -> EndReason | None:
    """Return why work with this limit has to end. The limit inside the process stops most; this stops what grandchildren
    take, or a library that ignores it. A warm child has memory of its own before a job begins."""
    if used_kb <= memory_mb * 1024 + (64 * 1024 if warm else 0):
        return None
    message = f"the job needed more memory than its limit of {memory_mb} MB and was killed"
    return EndReason("error", problem("memory_limit", message, memory_mb=memory_mb), 0.0)


def is_worn(jobs: int, memory_kb: int, limits: Limits) -> bool:
    """Return whether a warm child ran so many jobs, or grew so large, that another should replace it."""
    return jobs >= limits.child_max_jobs or memory_kb > limits.child_max_memory_mb * 1024


# ── what becomes of the work of a child ────────────────────────────────────────────────────────────────────────────


def unreached(skip: TakingBack, sent: Collection[int], last: int) -> list[int]:
    """Return the indexes of a range, marked a tick ago, that the child cannot start any more. What it reached meanwhile
    it either started or declined, and it says which."""
    return [index for index in range(max(skip.first, last + 1), skip.end) if index in sent]


def begun(state: State, sent: Mapping[int, Work], last: int) -> list[Work]:
    """Return the work that the child has started. Part of it may be finished, with a result that was not sent yet."""
    skip = taking_back(state)
    first, end = (0, 0) if skip is None else (skip.first, skip.end)
    return [work for index, work in sent.items() if index <= last and not first <= index < end]


class Leftover(NamedTuple):
    """Divides the work of a child that is gone by how it is reported."""

    ended: list[Work]
    """Ends for the reason for which the child was ended, or as a crash if it ended by itself."""
    lost: list[Work]
    """Had run, but its result was lost with the child. The attempt is charged."""
    rest: list[Work]
    """Had not started or, in an async child, ran beside the job that ended. The attempt is not charged."""


def leftover(state: State, sent: Mapping[int, Work], running: list[Work], last: int) -> Leftover:
    """Divide the work that was sent to a child, after the child has ended."""
    ended = running
    if isinstance(state, Ending) and state.index != WHAT_RUNS:
        ended = [sent[state.index]] if state.index in sent else []
    started = begun(state, sent, last)
    lost = [work for work in started if work not in ended]
    rest = [work for work in sent.values() if work not in ended and work not in started]
    return Leftover(ended, lost, rest)


def end_of(state: State, work: Work, told: WorkOutcome, *, together: bool) -> WorkOutcome:
    """Return how work ended, by what its child told. A job that was asked to end ends for the reason it was asked, unless it
    was done before."""
    kind, error = told.kind, told.error
    if kind in ("cancelled", "error"):
        if isinstance(state, Ending) and state.index == work.index:
            kind, error = state.kind, state.error or error
        elif together and work.cancelled:
            kind = "cancelled"
    if kind != "completed" and error is None:
        error = problem(kind, f"the job ended as {kind}")
    result = told.result if kind == "completed" else None
    note = told.note if kind == "error" else None
    return replace(told, id=work.id, claim_id=work.claim_id, kind=kind, result=result, error=error, note=note)


def crash_error(returncode: int | None) -> bytes:
    """Describe the end of a child that ended by itself."""
    if returncode is not None and returncode < 0:
        hint = "; perhaps the system ran out of memory" if returncode == -9 else ""
        message = f"the job's process was killed by signal {-returncode}{hint}"
        return problem("crash", message, signal=-returncode)
    message = f"the job's process ended by itself with exit code {returncode}"
    return problem("crash", message, exit_code=returncode)
