"""Why a job is where it is, and what would move it: a pure function from what is known to an answer for people.

It asks what the planner asks (`placement.py`), in the same order, and stops at the first no: is the queue paused, is there a
worker, one with the type, the queue, the labels, enough threads, threads that are free now, and no other job ahead.
"""

import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from stoker.domain import extras
from stoker.domain.explain_extras import details_of, ended_because
from stoker.domain.fingerprint import error_type
from stoker.domain.job import Job, decode_map
from stoker.domain.lifecycle import FINAL
from stoker.domain.nearest import nearest
from stoker.domain.placement import DEGRADE_AFTER_US
from stoker.domain.retry_rules import MAX_SNOOZES, policy_text

POSITION_CAP: Final = 10_000
MAX_BLOCKERS: Final = 20
_SECOND: Final = 1_000_000

Code = Literal[
    "running",
    "finished",
    "cancelling",
    "scheduled",
    "backing_off",
    "snoozed",
    "blocked",
    "queue_paused",
    "no_worker",
    "no_worker_for_type",
    "no_worker_for_queue",
    "no_worker_for_labels",
    "threads_too_large",
    "waiting_for_threads",
    "waiting_in_line",
    "about_to_start",
]
BlockerKind = Literal["queue", "worker", "job", "threads", "time"]


class Blocker(msgspec.Struct, frozen=True):
    """One thing that stands in the way, or on which the job depends."""

    kind: BlockerKind
    id: str
    text: str


class Hand(msgspec.Struct, frozen=True):
    """A worker, as far as it matters here. `taking` is False for one that gets no more jobs."""

    id: str
    name: str
    threads: int
    free: int
    types: frozenset[str]
    queues: frozenset[str] | None
    labels: dict[str, str]
    taking: bool = True
    any_type: bool = False


class JobsAhead(msgspec.Struct, frozen=True):
    """Who stands before the job in its lane: how many, up to a cap, and the first of them."""

    ahead: int
    first_id: str | None = None

    @property
    def capped(self) -> bool:
        return self.ahead >= POSITION_CAP


class Facts(msgspec.Struct, frozen=True):
    """What is known besides the job itself. `run_us` is how long its type takes, as observed. `kept_until` is until when the
    type is kept from workers that take any, for one that names it and was here lately."""

    now: int
    workers: Sequence[Hand] = ()
    paused_at: int | None = None
    line: JobsAhead = JobsAhead(0)
    run_us: int | None = None
    kept_until: int = 0


class Explanation(msgspec.Struct, frozen=True):
    code: Code
    summary: str
    details: Sequence[str] = ()
    blockers: Sequence[Blocker] = ()
    position: int | None = None
    position_capped: bool = False
    estimate_sec: float | None = None
    commands: Sequence[str] = ()
    """What would move the job, or show more of it."""


def explain(job: Job, facts: Facts) -> Explanation:
    found = _explain(job, facts)
    more = details_of(job, facts.now, span)
    found = replace(found, details=[*found.details, *more]) if more else found
    used = extras.decode(job.extras)
    if used.schedule is None or used.scheduled_for is None:
        return found
    note = f"Schedule {used.schedule} made it for {moment(used.scheduled_for)}."
    shows = f"stoker schedules show {used.schedule}"
    return replace(found, details=[*found.details, note], commands=[*found.commands, shows])


def _explain(job: Job, facts: Facts) -> Explanation:
    if job.status in FINAL:
        return _finished(job)
    if job.status == "running":
        return _running(job, facts)
    if job.status == "scheduled":
        return _scheduled(job, facts)
    if job.status == "blocked" and extras.decode(job.extras).schedule is not None:
        text = "The job waits until the earlier jobs of its schedule have ended (overlap queue_one)."
        return Explanation("blocked", text)
    if job.status == "blocked":
        text = f"waits for {job.pending_deps} other {_plural('job', job.pending_deps)} to complete"
        return Explanation("blocked", f"The job {text}.")
    return _in_line(job, facts, _queued(job, facts))


# ── not waiting ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _finished(job: Job) -> Explanation:
    details = [] if job.completed_at is None else [f"It ended at {moment(job.completed_at)}."]
    if job.status == "completed":
        return Explanation("finished", "The job is completed.", details)
    again = [f"stoker job {job.id}", f"stoker retry {job.id}"]
    because = ended_because(job)
    if because is not None:
        return Explanation("finished", because, details, commands=again)
    if job.status == "cancelled":
        return Explanation("finished", "The job was cancelled.", details, commands=again)
    tries = f"{job.attempt} of {job.max_attempts} {_plural('attempt', job.max_attempts)}"
    summary = f"The job failed for good, after {tries}; it is among the dead letters."
    if job.discarded_at is not None:
        summary = f"The job failed for good, after {tries}, and was discarded."
    return Explanation("finished", summary, details, commands=again)


def _running(job: Job, facts: Facts) -> Explanation:
    worker = next(
        (hand.name for hand in facts.workers if hand.id == job.worker_id), job.worker_id or "a worker"
    )
    blocker = Blocker("worker", job.worker_id or "", f"runs on {worker}")
    if job.cancel_requested_at is not None:
        asked = span(facts.now - job.cancel_requested_at)
        summary = f"The job is to be cancelled: its worker was told {asked} ago and ends it."
        return Explanation("cancelling", summary, blockers=[blocker])
    details = [f"This is attempt {job.attempt} of {job.max_attempts}."]
    if job.started_at is None:
        summary = f"The job was given to {worker}, which has not said yet that it started."
    else:
        summary = f"The job runs on {worker} since {span(facts.now - job.started_at)}."
    if job.timeout_sec is not None:
        details.append(f"An attempt is ended after {job.timeout_sec:g} s.")
    commands = [f"stoker logs -f {job.id}"]
    return Explanation("running", summary, details, [blocker], commands=commands)


def _scheduled(job: Job, facts: Facts) -> Explanation:
    wait = max(0, job.run_at - facts.now)
    blocker = Blocker("time", moment(job.run_at), f"due in {span(wait)}")
    commands = [f"stoker retry {job.id}"]
    used = extras.decode(job.extras)
    if used.snoozes and (job.attempt == 0 or (job.error is not None and error_type(job.error) == "Snooze")):
        times = "once" if used.snoozes == 1 else f"{used.snoozes:,} times"
        summary = f"The job snoozes: its task cannot be done yet, and asked to run again in {span(wait)}."
        details = [f"It snoozed {times}, of at most {MAX_SNOOZES:,}; that costs no attempt."]
        return Explanation("snoozed", summary, details, [blocker], None, False, wait / _SECOND, commands)
    if job.attempt == 0:
        summary = f"The job is to start no earlier than in {span(wait)}."
        return Explanation("scheduled", summary, [], [blocker], None, False, wait / _SECOND, commands)
    summary = (
        f"The job is retrying: attempt {job.attempt + 1} of {job.max_attempts} is due in {span(wait)}, since the one before "
        "did not succeed."
    )
    details = ["Between attempts the pause grows, so that what is overloaded can recover."]
    if job.error is not None and error_type(job.error) == "RetryAfter":
        details = ["Its task asked to be tried again then (RetryAfter)."]
    elif used.retry is not None:
        details = [f"The job has a retry policy of its own: {policy_text(used.retry)}."]
    return Explanation("backing_off", summary, details, [blocker], None, False, wait / _SECOND, commands)


# ── queued ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _queued(job: Job, facts: Facts) -> Explanation:
    if facts.paused_at is not None:
        return _paused(job, facts.now - facts.paused_at)
    taking = [hand for hand in facts.workers if hand.taking]
    if not taking:
        return _no_worker(facts)
    wanted = {} if job.labels is None else decode_map(job.labels)
    able = _able(job, taking, facts)
    if not able:
        return _no_type(job, taking, facts)
    with_queue = [hand for hand in able if hand.queues is None or job.queue in hand.queues]
    if not with_queue:
        return _no_queue(job, able)
    with_labels = [hand for hand in with_queue if not _missing(hand, wanted)]
    if not with_labels:
        return _no_labels(wanted, with_queue)
    return _for_threads(job, facts, with_labels)


def _paused(job: Job, since_us: int) -> Explanation:
    blocker = Blocker("queue", job.queue, f"paused since {span(since_us)}")
    return Explanation(
        "queue_paused",
        f"The queue {job.queue} is paused: nothing of it starts until it is resumed.",
        blockers=[blocker],
        commands=[f"stoker queues resume {shlex.quote(job.queue)}"],
    )


def _no_worker(facts: Facts) -> Explanation:
    leaving = [Blocker("worker", hand.id, f"{hand.name} is leaving") for hand in facts.workers]
    summary = "No worker is connected." if not leaving else "Every worker is leaving, and takes no more jobs."
    return Explanation("no_worker", summary, blockers=leaving[:MAX_BLOCKERS], commands=["stoker worker"])


def _able(job: Job, hands: Sequence[Hand], facts: Facts) -> list[Hand]:
    """Return the workers that name the type. If none does, and none that did was here lately, return those that take any
    type."""
    named = [hand for hand in hands if job.type in hand.types]
    if named or facts.now < facts.kept_until:
        return named
    return [hand for hand in hands if hand.any_type]


def _no_type(job: Job, hands: Sequence[Hand], facts: Facts) -> Explanation:
    known = sorted({type for hand in hands for type in hand.types})
    shown = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
    details = [f"{len(hands)} {_plural('worker', len(hands))} can run: {shown or 'nothing'}."]
    if any(hand.any_type for hand in hands):
        wait = span(facts.kept_until - facts.now)
        details.append(
            f"A worker that names it was here lately; if none comes, one that takes any type gets it in {wait}."
        )
    meant = nearest(job.type, frozenset(known))
    return Explanation(
        "no_worker_for_type",
        f"No worker can run jobs of the type {job.type}" + (f"; did you mean {meant}?" if meant else "."),
        details,
        _blockers(hands, lambda hand: f"{hand.name} does not have the type {job.type}"),
        commands=["stoker worker --app MODULE:APP"],
    )


def _no_queue(job: Job, hands: Sequence[Hand]) -> Explanation:
    return Explanation(
        "no_worker_for_queue",
        f"No worker that can run {job.type} serves the queue {job.queue}.",
        [],
        _blockers(hands, lambda hand: f"{hand.name} serves only {', '.join(sorted(hand.queues or ()))}"),
        commands=[f"stoker worker --queues {shlex.quote(job.queue)}"],
    )


def _no_labels(wanted: dict[str, str], hands: Sequence[Hand]) -> Explanation:
    shown = ", ".join(f"{key}={value}" for key, value in wanted.items())
    options = " ".join(f"--label {shlex.quote(f'{key}={value}')}" for key, value in wanted.items())
    return Explanation(
        "no_worker_for_labels",
        f"No worker has the labels that the job asks for ({shown}).",
        [],
        _blockers(hands, lambda hand: f"{hand.name} lacks {', '.join(_missing(hand, wanted))}"),
        commands=[f"stoker worker {options}"],
    )


def _missing(hand: Hand, wanted: dict[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in wanted.items() if hand.labels.get(key) != value]


def _for_threads(job: Job, facts: Facts, hands: Sequence[Hand]) -> Explanation:
    demand = job.thread_demand
    if all(hand.threads < demand for hand in hands):
        waited = facts.now - job.run_at
        if job.on_oversize == "wait" or waited < DEGRADE_AFTER_US:
            return _too_large(job, hands, DEGRADE_AFTER_US - waited)
        demand = 1  # it may run on one thread by now
    places = sum(hand.free // demand for hand in hands)
    if facts.line.ahead < places:
        return Explanation(
            "about_to_start", "A worker has room: the job starts at any moment.", estimate_sec=0.0
        )
    blockers = _blockers(hands, lambda hand: _free_words(hand, demand), "threads")
    if facts.line.ahead:
        return _behind_others(job, facts, hands, blockers)
    summary = f"The job is next, and waits for {demand} free {_plural('thread', demand)} on one worker."
    commands = ["stoker workers", f"stoker worker --threads {demand}"]
    return Explanation("waiting_for_threads", summary, [], blockers, commands=commands)


def _too_large(job: Job, hands: Sequence[Hand], degrades_us: int) -> Explanation:
    largest = max(hand.threads for hand in hands)
    degrades = job.on_oversize == "degrade"
    return Explanation(
        "threads_too_large",
        f"The job asks for {job.thread_demand} threads, and the largest worker that could run it has {largest}.",
        [f"If none comes, it runs on one thread in {span(degrades_us)} (on_oversize is degrade)."]
        if degrades
        else ["It waits for a larger worker (on_oversize is wait)."],
        _blockers(hands, lambda hand: f"{hand.name} has {hand.threads} threads", "threads"),
        estimate_sec=max(0, degrades_us) / _SECOND if degrades else None,
        commands=[f"stoker worker --threads {job.thread_demand}"],
    )


def _behind_others(job: Job, facts: Facts, hands: Sequence[Hand], blockers: Sequence[Blocker]) -> Explanation:
    line = facts.line
    count = f"{line.ahead:,}" + (" or more" if line.capped else "")
    first = [] if line.first_id is None else [Blocker("job", line.first_id, "is first in line")]
    details = [
        "Counted are jobs that can run in the same places; of other types and queues there may be more."
    ]
    if facts.run_us is not None:
        details.append(f"Jobs of the type {job.type} take about {span(facts.run_us)}.")
    summary = f"{count} {_plural('job', line.ahead)} {'stands' if line.ahead == 1 else 'stand'} before it in the line."
    commands = ["stoker top", "stoker worker"]
    return Explanation("waiting_in_line", summary, details, [*first, *blockers], commands=commands)


def _in_line(job: Job, facts: Facts, found: Explanation) -> Explanation:
    """With the place in the line, and when the turn should come, by what was observed."""
    estimate = found.estimate_sec
    if found.code in ("waiting_in_line", "waiting_for_threads") and facts.run_us is not None:
        taking = [hand for hand in facts.workers if hand.taking]
        threads = sum(hand.threads for hand in _able(job, taking, facts))
        if threads and not facts.line.capped:
            turns = (facts.line.ahead + 1) * job.thread_demand / threads
            estimate = round(turns * facts.run_us / _SECOND, 3)
    return msgspec.structs.replace(
        found,
        position=min(facts.line.ahead, POSITION_CAP - 1) + 1,
        position_capped=facts.line.capped,
        estimate_sec=estimate,
    )


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _blockers(
    hands: Sequence[Hand], words: Callable[[Hand], str], kind: BlockerKind = "worker"
) -> list[Blocker]:
    return [Blocker(kind, hand.id, words(hand)) for hand in hands[:MAX_BLOCKERS]]


def _free_words(hand: Hand, demand: int) -> str:
    needs = "" if demand == 1 else f", and the job needs {demand}"
    return f"{hand.name} has {hand.free} of {hand.threads} {_plural('thread', hand.threads)} free{needs}"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else word + "s"


def span(us: int) -> str:
    """A duration for people: `850 ms`, `12 s`, `5 min`, `3 h`, `2 d`."""
    seconds = max(0, us) / _SECOND
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def moment(us: int) -> str:
    """A point in time as everywhere: RFC 3339, UTC."""
    return datetime.fromtimestamp(us // _SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{us % _SECOND:06d}Z"
