"""How many workers there should be: what is seen and what happened before in, a decision with its reason out.

Two ways to judge. By `depth`, the plain one: more than `threshold_high` jobs wait → one worker more; fewer than
`threshold_low` wait, and have for `stable_seconds` → one less. By `demand`: how many threads it takes to work off what
waits within `target_seconds`, from the run times observed; it goes to that number at once, and down as the other does.

Both keep within `min_workers` and `max_workers`, change nothing within `cooldown_seconds` of the last change (a worker
that was just started has not had time to help), and only ever remove a worker that is idle. An autoscaler that applies a
decision notes it for the next one (`History.changed`); one that only recommends does not, and so repeats its
recommendation until the operator acts.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

Action = Literal["up", "down", "stay"]
Basis = Literal["depth", "demand"]


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator decided."""

    threshold_high: int = 10
    threshold_low: int = 2
    stable_seconds: float = 30.0
    cooldown_seconds: float = 5.0
    min_workers: int = 1
    max_workers: int = 4
    basis: Basis = "depth"
    target_seconds: float = 60.0


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What is seen now. `workers` are those that run or start; one that drains is as good as gone."""

    queue_depth: int
    workers: int
    idle: int = 0
    """Workers that could be removed now, because they run nothing."""
    threads_per_worker: float = 1.0
    threads_used: int = 0
    pending_thread_seconds: float | None = None
    """How long one thread would be busy with all that waits; None while no run time is known."""


class History(msgspec.Struct, frozen=True):
    """What a decision needs to know of earlier ones."""

    low_since: float | None = None
    """Since when fewer workers would do."""
    changed_at: float | None = None

    def changed(self, now: float) -> "History":
        """After a decision was acted on."""
        return replace(self, changed_at=now)


class Decision(msgspec.Struct, frozen=True):
    action: Action
    workers: int
    """How many there are."""
    wanted: int
    """How many there should be. Going down it is one fewer at a time."""
    queue_depth: int
    reason: str
    """Why, for people."""


class ScalingState(msgspec.Struct, frozen=True, kw_only=True):
    """What an autoscaler tells about itself: its latest decision, and whether it acts on it."""

    mode: str
    """`recommend`, or the name of what starts the workers."""
    min_workers: int
    max_workers: int
    decision: Decision

    @property
    def acts(self) -> bool:
        return self.mode != "recommend"


class _Wish(msgspec.Struct, frozen=True):
    """A number of workers before stability and cool-down had their say."""

    wanted: int
    why: str
    at_once: bool = False
    """Not a matter of load: no waiting for a stable queue."""


def decide(load: Load, history: History, rules: Rules, now: float) -> tuple[Decision, History]:
    """Return the decision, and the history for the next one."""
    wish = _bounds(load, rules) or _by_demand(load, rules) or _by_depth(load, rules)
    fewer = wish.wanted < load.workers
    low_since = (now if history.low_since is None else history.low_since) if fewer else None
    history = replace(history, low_since=low_since)
    if wish.wanted == load.workers:
        return _stay(load, wish.why), history
    obstacle = (_not_stable(wish, history, rules, now) or _none_idle(load)) if fewer else None
    obstacle = obstacle or _cooling(history, rules, now)
    if obstacle is not None:
        return _stay(load, f"{wish.why}; {obstacle}"), history
    if fewer:
        left = load.workers - 1
        return Decision("down", load.workers, left, load.queue_depth, f"{wish.why}: one goes"), history
    more = wish.wanted - load.workers
    reason = f"{wish.why}: {more} more"
    return Decision("up", load.workers, wish.wanted, load.queue_depth, reason), history


def _stay(load: Load, reason: str) -> Decision:
    return Decision("stay", load.workers, load.workers, load.queue_depth, reason)


# ── how many ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _bounds(load: Load, rules: Rules) -> _Wish | None:
    """The operator's bounds come before any load."""
    if load.workers < rules.min_workers:
        why = f"{_workers(load.workers)}, fewer than the minimum of {rules.min_workers}"
        return _Wish(rules.min_workers, why)
    if load.workers > rules.max_workers:
        why = f"{_workers(load.workers)}, more than the maximum of {rules.max_workers}"
        return _Wish(rules.max_workers, why, at_once=True)
    return None


def _by_depth(load: Load, rules: Rules) -> _Wish:
    depth, workers = load.queue_depth, load.workers
    if depth > 0 and workers == 0:
        return _Wish(1, f"{_waiting(depth)} and no worker runs")
    if depth > rules.threshold_high:
        why = f"{_waiting(depth)}, above the threshold of {rules.threshold_high}"
        if workers == rules.max_workers:
            return _Wish(workers, f"{why}, but {_workers(workers)} already, the maximum")
        return _Wish(workers + 1, why)
    if depth < rules.threshold_low:
        why = f"{_waiting(depth)}, below the threshold of {rules.threshold_low}"
        if workers == rules.min_workers:
            return _Wish(workers, f"{why}, and {_workers(workers)}, the minimum")
        return _Wish(workers - 1, why)
    return _Wish(
        workers,
        f"{_waiting(depth)}, between the thresholds of {rules.threshold_low} and {rules.threshold_high}",
    )


def _by_demand(load: Load, rules: Rules) -> _Wish | None:
    """By the work that waits. None when that is not asked for or not known: then depth has to do."""
    if rules.basis != "demand" or load.pending_thread_seconds is None:
        return None
    threads = threads_needed(load, load.pending_thread_seconds, rules.target_seconds)
    per_worker = max(load.threads_per_worker, 1.0)
    enough = math.ceil(threads / per_worker)
    if load.queue_depth > 0:
        enough = max(enough, 1)
    wanted = min(max(enough, rules.min_workers), rules.max_workers)
    why = (
        f"{_waiting(load.queue_depth)}, {load.pending_thread_seconds:.1f} thread-seconds of work, "
        f"and {load.threads_used} threads are busy: to be through within {rules.target_seconds:g} s takes "
        f"{math.ceil(threads)} threads, {_count(enough, 'worker')}"
    )
    if enough > wanted:
        why += f", of which {rules.max_workers} are allowed"
    elif enough < wanted:
        why += f", but {rules.min_workers} is the minimum"
    return _Wish(wanted, why)


def threads_needed(load: Load, pending_thread_seconds: float, target_seconds: float) -> float:
    """Threads that would be through with what waits and what runs within the target.

    A job longer than the target cannot be hurried by giving it more than its own threads, so no job counts for more
    than that. What runs is taken to be of the kind that waits; with nothing waiting it keeps what it has.
    """
    if load.queue_depth == 0:
        return float(load.threads_used)
    share = min(1.0, pending_thread_seconds / load.queue_depth / target_seconds)
    return (load.queue_depth + load.threads_used) * share


def pending_thread_seconds(
    queued_by_type: Iterable[tuple[str, int]], run_us: Mapping[str, int]
) -> float | None:
    """Return how long one thread would be busy with these (type, number) of jobs, by the run times observed per type.

    Types without an observed run time are taken to be as long as the average of the others that wait. None when no run
    time is known of any type that waits; 0 when no job waits.
    """
    known_us = known_jobs = unknown_jobs = 0
    for type, number in queued_by_type:
        if type in run_us:
            known_us += number * run_us[type]
            known_jobs += number
        else:
            unknown_jobs += number
    if known_jobs == 0:
        return None if unknown_jobs else 0.0
    return known_us * (known_jobs + unknown_jobs) / known_jobs / 1_000_000


# ── whether now ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _not_stable(wish: _Wish, history: History, rules: Rules, now: float) -> str | None:
    if wish.at_once or history.low_since is None:
        return None
    quiet = now - history.low_since
    if quiet >= rules.stable_seconds:
        return None
    return f"fewer would do since {quiet:.0f} s, not yet for {rules.stable_seconds:g} s"


def _none_idle(load: Load) -> str | None:
    return None if load.idle else "but every worker that could go is busy"


def _cooling(history: History, rules: Rules, now: float) -> str | None:
    if history.changed_at is None:
        return None
    left = history.changed_at + rules.cooldown_seconds - now
    return (
        f"the last change is not {rules.cooldown_seconds:g} s ago, {left:.1f} s to go" if left > 0 else None
    )


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _waiting(depth: int) -> str:
    return f"{_count(depth, 'job')} {'waits' if depth == 1 else 'wait'}"


def _workers(number: int) -> str:
    return f"{_count(number, 'worker')} {'runs' if number == 1 else 'run'}"
