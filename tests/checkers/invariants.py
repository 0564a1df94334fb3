"""The invariants of PROMISES.md, one function each: a history in, what is wrong with it out.

`check` runs all of them. Each function looks at one promise only and leaves to the others what is theirs, so a broken
history is rejected by the invariant that names what is broken.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import combinations
from typing import Final, NamedTuple

from tests.checkers.history import (
    Change,
    Effect,
    Fault,
    History,
    Item,
    Op,
    StoredAttempt,
    StoredJob,
    Violation,
)

FINAL: Final = frozenset({"completed", "failed", "cancelled"})
BACKED_OFF: Final = frozenset({"error", "timeout", "crash"})
OWN_END: Final = frozenset({"completed", "error", "invalid"})
FREE: Final = frozenset({"handed_back", "snoozed"})
"""Ends of an attempt that are not charged."""
MAX_SNOOZES: Final = 1_000
RESULT_SECONDS: Final = 0.1
"""Within this time the results of short jobs have left their process."""
EPSILON: Final = 1e-6
WRITING: Final = 2.5
"""The longest that a slow disk takes for what it was given, and some more."""
SHORT_PAUSE: Final = 0.05
"""The part of a lease in which a machine may stand still and do no harm: a tenth of it is kept for killing."""
TOLD: Final = 2.0
"""So soon a worker is told of a cancel."""


class Run(NamedTuple):
    """One execution: of which claim, where, from when to when."""

    claim: int
    worker: str
    start: float
    end: float
    last: Effect


class Book:
    """A history with its records sorted by job."""

    def __init__(self, history: History) -> None:
        self.history = history

    @cached_property
    def stored(self) -> dict[str, StoredJob]:
        return {job.id: job for job in self.history.jobs}

    @cached_property
    def effects(self) -> dict[str, list[Effect]]:
        found: dict[str, list[Effect]] = defaultdict(list)
        for effect in self.history.effects:
            found[effect.job].append(effect)
        return found

    @cached_property
    def changes(self) -> dict[str, list[Change]]:
        found: dict[str, list[Change]] = defaultdict(list)
        for change in self.history.journal:
            found[change.job].append(change)
        return found

    @cached_property
    def attempts(self) -> dict[str, list[StoredAttempt]]:
        found: dict[str, list[StoredAttempt]] = defaultdict(list)
        for attempt in self.history.attempts:
            found[attempt.job].append(attempt)
        return found

    @cached_property
    def replays(self) -> dict[str, list[Op]]:
        """Replays that were or may have been done, by job."""
        found: dict[str, list[Op]] = defaultdict(list)
        for op in self.history.ops:
            if op.what == "replay" and op.answer != "refused":
                for job in op.jobs:
                    found[job].append(op)
        return found

    @cached_property
    def runs(self) -> dict[str, list[Run]]:
        return {job: list(_runs(effects, self.history.ended)) for job, effects in self.effects.items()}

    def submissions(self) -> Iterator[tuple[Op, Item, str]]:
        """Every acknowledged job: the request, what it asked, the id that it was given."""
        for op in self.history.ops:
            if op.what == "submit" and op.answer == "ok":
                for item, job in zip(op.items, op.jobs, strict=True):
                    yield op, item, job

    def replayed_between(self, job: str, begins: float, ends: float) -> bool:
        """Whether a replay may have been carried out in that time."""
        return any(
            op.called <= ends and (op.answered is None or op.answer == "unknown" or op.answered >= begins)
            for op in self.replays[job]
        )

    def charged(self, job: str) -> list[StoredAttempt]:
        """The attempts since the job was last replayed that were not handed back, the latest last."""
        replayed = [c.claim for c in self.changes[job] if c.old in FINAL and c.new == "queued"]
        since = max(replayed, default=0)
        own = [a for a in self.attempts[job] if a.claim > since and a.kind not in FREE]
        return sorted(own, key=lambda attempt: attempt.claim)

    def generations(self, job: str) -> int:
        """How often the job was given fresh attempts, the first time included."""
        if self.changes[job]:
            return 1 + sum(change.old in FINAL and change.new == "queued" for change in self.changes[job])
        return 1 + len(self.replays[job])

    def faults(self, *kinds: str, who: str | None, begins: float, ends: float) -> list[Fault]:
        """What was done to somebody, or to all of them, in that time; to anybody, if `who` is None."""
        return [
            fault
            for fault in self.history.faults
            if (not kinds or fault.kind in kinds)
            and (who is None or fault.who in (who, "*"))
            and fault.begins <= ends
            and fault.ends >= begins
        ]


def _runs(effects: list[Effect], ended: float) -> Iterator[Run]:
    running: dict[tuple[int, str], Effect] = {}
    for effect in effects:
        key = (effect.claim, effect.run)
        if effect.what == "start":
            running[key] = effect
        elif key in running:
            yield _run(running.pop(key), effect, effect.at)
    for effect in running.values():
        yield _run(effect, effect, ended)


def _run(start: Effect, last: Effect, end: float) -> Run:
    return Run(start.claim, start.worker, start.at, end, last)


Found = Iterator[tuple[str | None, str]]
"""What an invariant yields: the job, if it is about one, and what is wrong."""
Invariant = Callable[[Book], Found]


# ── submissions ────────────────────────────────────────────────────────────────────────────────────────────────────


def acknowledged_jobs_are_stored(book: Book) -> Found:
    """P1: a submission that was answered is in the store, as it was sent."""
    for op, item, id in book.submissions():
        job = book.stored.get(id)
        if job is None:
            yield id, f"{op.client} was told at {op.answered} that {item.marker} is stored as {id}; it is not"
        elif job.marker != item.marker:
            yield id, f"{op.client} sent {item.marker} and the store holds {job.marker}"


def one_job_per_key(book: Book) -> Found:
    """P2: same key and body, same job; same key and another body is refused."""
    known: dict[tuple[str, str], tuple[str, str]] = {}
    for op, item, id in book.submissions():
        if item.key is None:
            continue
        body, first = known.setdefault((op.client, item.key), (item.body, id))
        if first != id:
            yield id, f"key {item.key} of {op.client} made {first} and then {id}"
        elif body != item.body:
            yield id, f"key {item.key} of {op.client} was accepted again with another body"
    keyed = {item.marker: item.key for op in book.history.ops for item in op.items if item.key is not None}
    copies = Counter(job.marker for job in book.history.jobs if job.marker in keyed)
    for marker, count in copies.items():
        if count > 1:
            yield None, f"{count} jobs are stored for {marker}, which was sent under key {keyed[marker]}"


def one_job_per_client_id(book: Book) -> Found:
    """P2: a job has the id that its client made; the same id and body again is that job, and makes no second one."""
    known: dict[str, str] = {}
    for op, item, id in book.submissions():
        if item.id is None:
            continue
        if item.id != id:
            yield id, f"{op.client} sent {item.marker} with the id {item.id} and was told {id}"
        elif known.setdefault(id, item.body) != item.body:
            yield id, f"id {id} of {op.client} was accepted again with another body"
    named = {item.marker: item.id for op in book.history.ops for item in op.items if item.id is not None}
    copies = Counter(job.marker for job in book.history.jobs if job.marker in named)
    for marker, count in copies.items():
        if count > 1:
            yield None, f"{count} jobs are stored for {marker}, which was sent with the id {named[marker]}"


def ids_are_refused_for_a_reason(book: Book) -> Found:
    """A submission is refused for its id only if that id was sent with another body too: a refusal of one client's request
    fails no other."""
    bodies: dict[str, set[str]] = defaultdict(set)
    for op in book.history.ops:
        for item in op.items:
            bodies[item.id or ""].add(item.body)
    for op in book.history.ops:
        if op.why == "IdMismatch" and not any(item.id and len(bodies[item.id]) > 1 for item in op.items):
            yield None, f"{op.client} was refused at {op.answered} for an id that stands for one request only"


def every_stored_job_was_submitted(book: Book) -> Found:
    """What is stored was sent, as often as it is stored; what was refused is not stored. Jobs without a marker are somebody
    else's."""
    sent = Counter(
        item.marker
        for op in book.history.ops
        if op.what == "submit" and op.answer != "refused"
        for item in op.items
    )
    for marker, count in Counter(job.marker for job in book.history.jobs).items():
        if marker and count > sent[marker]:
            yield None, f"{count} jobs are stored for {marker}, which was sent {sent[marker]} times"


def answers_come_after_the_commit(book: Book) -> Found:
    """P1: whatever a client was told was stored by then."""
    slack = book.history.rules.clock_slack + EPSILON
    for op, item, id in book.submissions():
        inserted = [change.at for change in book.changes[id] if change.old is None]
        if inserted and op.answered is not None and op.answered < inserted[0] - slack:
            yield id, f"{item.marker} was accepted at {op.answered:.3f} and stored at {inserted[0]:.3f}"
    for op in book.history.ops:
        if op.what == "submit" or op.answer != "ok" or op.status not in FINAL or op.answered is None:
            continue
        ends = [change.at for change in book.changes[op.jobs[0]] if change.new == op.status]
        if ends and op.answered < ends[0] - slack:
            yield (
                op.jobs[0],
                f"{op.client} was told at {op.answered:.3f} that it is {op.status}; that was stored at {ends[0]:.3f}",
            )


def totals_add_up(book: Book) -> Found:
    """Everything that was stored is completed, failed or cancelled, and the counters say the same."""
    counts = book.history.counts
    if counts is None:
        return
    told = {status: count for status, count in counts.items() if count}
    actual = dict(Counter(job.status for job in book.history.jobs))
    if told != actual:
        yield None, f"the counters say {told}, the rows {actual}"


def bytes_stay_bounded(book: Book) -> Found:
    """No place of a coordinator holds more bytes of payloads than it may, but for one large payload alone."""
    for seen in book.history.bytes:
        if seen.peak > max(seen.bound, seen.largest):
            yield None, f"{seen.peak} bytes in a {seen.place}, where {seen.bound} are allowed"


# ── outcomes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def one_outcome_per_job(book: Book) -> Found:
    """P3: between two replays a job gets one final status, by the claim that was current; nothing but an attempt completes
    or fails it."""
    for id, changes in book.changes.items():
        outcome: Change | None = None
        current = 0
        for change in changes:
            if change.new == "running":
                current = change.claim
            if change.old in FINAL and change.new not in FINAL:
                outcome = None
            if change.new in FINAL:
                if outcome is not None:
                    yield id, f"it became {outcome.new} and, without a replay, {change.new}"
                elif change.old != "running" and change.new != "cancelled":
                    yield id, f"it was {change.old} and became {change.new} at {change.at:.3f}"
                if change.old == "running" and change.claim != current:
                    yield id, f"claim {change.claim} ended it while claim {current} held it"
                outcome = change


def the_result_is_that_of_the_attempt(book: Book) -> Found:
    """P3: the stored result is what the attempt with the stored claim returned."""
    for job in book.history.jobs:
        if job.status != "completed":
            if job.value is not None:
                yield job.id, f"it is {job.status}, and the store holds the result {job.value!r}"
            continue
        ends = [e for e in book.effects[job.id] if e.what == "end" and e.kind == "completed"]
        own = [effect for effect in ends if effect.claim == job.claim]
        if not own:
            claims = [effect.claim for effect in ends]
            yield job.id, f"it is completed under claim {job.claim}, but only claims {claims} completed it"
        elif own[-1].value != job.value:
            yield job.id, f"claim {job.claim} returned {own[-1].value!r}, the store holds {job.value!r}"


def acknowledged_reports_are_stored(book: Book) -> Found:
    """A worker forgets what was acknowledged, so that must be in the store: as the outcome or as an earlier attempt."""
    completions = {(change.job, change.claim) for change in book.history.journal if change.new == "completed"}
    ends = {(attempt.job, attempt.claim): attempt.kind for attempt in book.history.attempts}
    for ack in book.history.acks:
        key = (ack.job, ack.claim)
        if ack.stale or (ack.kind == "completed" and key in completions):
            continue
        job = book.stored.get(ack.job)
        if job is not None and job.claim == ack.claim and job.status == ack.kind:
            continue
        # A worker reports a snooze as an error with a note.
        if ends.get(key) not in ((ack.kind, "snoozed") if ack.kind == "error" else (ack.kind,)):
            yield (
                ack.job,
                f"{ack.worker} was told at {ack.at:.3f} that claim {ack.claim} is stored as {ack.kind}; "
                f"the store has {ends.get(key)}",
            )


def what_was_seen_final_stays(book: Book) -> Found:
    """A client that saw a final status can rely on it: without a replay it never changes, for nobody who looks later."""
    seen = [op for op in book.history.ops if op.answer == "ok" and op.status is not None and op.jobs]
    looks: dict[str, list[Op]] = defaultdict(list)
    for op in seen:
        looks[op.jobs[0]].append(op)
    for op in seen:
        id = op.jobs[0]
        job = book.stored.get(id)
        if job is None or op.status not in FINAL or op.answered is None:
            continue
        for later in looks[id]:
            if later.called > op.answered and later.status != op.status and not _replayed(book, op, later):
                yield (
                    id,
                    f"{op.client} saw it {op.status} by {op.answered:.3f}; it was {later.status} after that",
                )
        if book.replayed_between(id, op.called, book.history.ended):
            continue
        if job.status != op.status:
            yield id, f"{op.client} was told at {op.answered:.3f} that it is {op.status}; it is {job.status}"
        elif op.status == "completed" and op.value != job.value:
            yield id, f"{op.client} was told the result {op.value!r}; the store holds {job.value!r}"


def _replayed(book: Book, earlier: Op, later: Op) -> bool:
    ends = book.history.ended if later.answered is None else later.answered
    return book.replayed_between(earlier.jobs[0], earlier.called, ends)


def a_final_status_is_left_only_by_a_replay(book: Book) -> Found:
    """And what is completed stays so: there is nothing to do again."""
    for id, changes in book.changes.items():
        for change in changes:
            if change.old not in FINAL or change.new in FINAL:
                continue
            if (
                change.old == "completed"
                or (change.new != "queued" and change.claim != 0)  # never claimed: it may wait for its time
                or not book.replayed_between(id, change.at, change.at)
            ):
                yield id, f"it left {change.old} for {change.new} at {change.at:.3f}, and nobody replayed it"


def claim_numbers_only_grow(book: Book) -> Found:
    """P3: each claim gets the next number, and a number runs once."""
    for id, changes in book.changes.items():
        last = 0
        for change in changes:
            expected = last + 1 if change.new == "running" else last
            if change.claim != expected:
                yield id, f"claim {change.claim} at {change.at:.3f}, where {expected} was due"
            last = max(last, change.claim)
    for id, effects in book.effects.items():
        starts = Counter(effect.claim for effect in effects if effect.what == "start")
        for claim, count in starts.items():
            if count > 1:
                yield id, f"claim {claim} was started {count} times"


def what_starts_was_claimed(book: Book) -> Found:
    """P3: a worker runs what the store holds, under a claim that is stored by then."""
    slack = book.history.rules.clock_slack + EPSILON
    for id, effects in book.effects.items():
        if id not in book.stored:
            yield id, "it ran, and the store does not have it"
        if not book.changes[id]:
            continue
        claimed = {change.claim: change.at for change in book.changes[id] if change.new == "running"}
        for effect in effects:
            if effect.what != "start":
                continue
            if effect.claim not in claimed:
                yield id, f"claim {effect.claim} started, and nobody had claimed it"
            elif effect.at < claimed[effect.claim] - slack:
                yield (
                    id,
                    f"claim {effect.claim} started {claimed[effect.claim] - effect.at:.3f} s before it was stored",
                )


def current_reports_are_taken(book: Book) -> Found:
    """P11: what finishes is accepted while its claim is current."""
    for ack in book.history.acks:
        if not ack.stale:
            continue
        claimed = any(c.claim == ack.claim and c.new == "running" for c in book.changes[ack.job])
        left = _left_running(book.changes[ack.job], ack.claim)
        if claimed and (left is None or left > ack.at):
            yield ack.job, f"claim {ack.claim} was current when its report was refused at {ack.at:.3f}"


# ── attempts ───────────────────────────────────────────────────────────────────────────────────────────────────────


def starts_stay_within_attempts(book: Book) -> Found:
    """P4, P6, P13: starts minus hand-backs never exceed the attempts; a job that crashes its process gets three.

    Only what did not come to its own end can be handed back: an attempt that ended well, or with an error of its own,
    counts, whatever the store calls it.
    """
    for job in book.history.jobs:
        rounds = book.generations(job.id)
        runs = {run.claim: run.last for run in book.runs.get(job.id, [])}
        returned = {a.claim for a in book.attempts[job.id] if a.kind in FREE}
        free = {claim for claim in returned & runs.keys() if runs[claim].kind not in OWN_END}
        if len(runs) - len(free) > job.max_attempts * rounds:
            yield (
                job.id,
                f"{len(runs)} starts, {len(free)} of them handed back, with {job.max_attempts} attempts "
                f"({rounds} times)",
            )
        crashes = [attempt.claim for attempt in book.charged(job.id) if attempt.kind == "crash"]
        limit = book.history.rules.crash_limit
        if len(crashes) > limit or (len(crashes) == limit and job.claim > crashes[-1]):
            yield job.id, f"{len(crashes)} crashes, and claim {job.claim} after that"


def failures_had_their_attempts(book: Book) -> Found:
    """P6, P13: a job fails only after all the attempts that it has since its last replay were charged, by three crashes, or
    by an error that no retry mends; what was handed back is never charged."""
    for job in book.history.jobs:
        for attempt in book.attempts[job.id]:
            if attempt.charged == (attempt.kind in FREE):
                yield job.id, f"claim {attempt.claim} ended as {attempt.kind}, charged: {attempt.charged}"
        if book.replays[job.id] and not book.changes[job.id]:
            continue  # nobody can tell which attempts came after the replay
        charged = book.charged(job.id)
        crashes = sum(attempt.kind == "crash" for attempt in charged)
        if job.crashes != crashes:
            yield job.id, f"it crashed {crashes} times, and the store has counted {job.crashes}"
        if job.status != "failed" or crashes >= book.history.rules.crash_limit:
            continue
        last = charged[-1].kind if charged else None
        if last == "invalid" or (last == "error" and job.never):
            continue
        if len(charged) < job.max_attempts:
            yield job.id, f"it failed after {len(charged)} of {job.max_attempts} attempts"


def overlap_only_inside_a_pause(book: Book) -> Found:
    """P4: two attempts run at once only while the machine of the older claim stands still, for longer than a lease leaves
    for killing, or when a clock is set; it ends the older one as soon as it can."""
    rules = book.history.rules
    for id, runs in book.runs.items():
        for earlier, later in combinations(sorted(runs, key=lambda run: (run.start, run.claim)), 2):
            if later.start >= earlier.end - EPSILON:
                continue
            older = min(earlier, later, key=lambda run: run.claim)
            since = earlier.start - rules.lease - rules.rescue_slack
            pauses = book.faults("pause", who=older.worker, begins=since, ends=older.end)
            faults = [pause for pause in pauses if pause.ends - pause.begins >= rules.lease * SHORT_PAUSE]
            faults += book.faults("clock", who="*", begins=since, ends=older.end)
            spans = _merged(faults, rules.kill_slack)
            if any(begins <= later.start and older.end <= ends for begins, ends in spans):
                continue
            yield (
                id,
                f"claim {later.claim} started at {later.start:.3f} on {later.worker} while claim "
                f"{earlier.claim} ran on {earlier.worker} until {earlier.end:.3f}",
            )


def _merged(faults: list[Fault], slack: float) -> list[tuple[float, float]]:
    """The time that these faults cover, with some more to recover from each."""
    spans: list[tuple[float, float]] = []
    for fault in sorted(faults, key=lambda fault: fault.begins):
        begins, ends = fault.begins, fault.ends + slack
        if spans and begins <= spans[-1][1]:
            begins, ends = spans[-1][0], max(spans.pop()[1], ends)
        spans.append((begins, ends))
    return spans


def charges_are_earned(book: Book) -> Found:
    """P13: an error or a crash is charged only to an attempt that ended so by itself."""
    ends = {(e.job, e.claim): e.kind for e in book.history.effects if e.what != "start"}
    for attempt in book.history.attempts:
        own = ends.get((attempt.job, attempt.claim))
        if attempt.kind in ("error", "invalid", "crash") and own != attempt.kind:
            yield attempt.job, f"claim {attempt.claim} is stored as {attempt.kind}, and it ended as {own}"


def what_started_was_not_lost_on_the_way(book: Book) -> Found:
    """P4: an assignment that never came may be handed back for nothing; one that was started only by its own worker. A
    clock that is set makes an assignment on its way look old."""
    if book.history.reports is None:
        return
    said = {(report.job, report.claim) for report in book.history.reports}
    started = {(e.job, e.claim) for e in book.history.effects if e.what == "start"}
    for attempt in book.history.attempts:
        key = (attempt.job, attempt.claim)
        if attempt.kind != "handed_back" or key not in started - said:
            continue
        held = [change.at for change in book.changes[attempt.job] if change.claim == attempt.claim]
        since = min(held, default=0.0) - book.history.rules.rescue_slack
        if not book.faults("clock", who="*", begins=since, ends=max(held, default=0.0)):
            text = f"claim {attempt.claim} had started and was handed back without a word of its worker"
            yield attempt.job, text


def no_session_expires_right_after_an_outage(book: Book) -> Found:
    """P11: nobody is given up before heartbeats were possible again for one full timeout. What was decided before the outage
    may be written in its first moments: the disk, or the database, goes on while a coordinator stands still."""
    lease = book.history.rules.lease
    reported = {(r.job, r.claim) for r in book.history.reports or []}
    for attempt in book.history.attempts:
        if attempt.kind != "lost" or (attempt.job, attempt.claim) in reported:
            continue
        left = _left_running(book.changes[attempt.job], attempt.claim)
        for outage in book.history.outages:
            if left is not None and outage.begins + WRITING < left < outage.ends + lease - 0.6:
                yield (
                    attempt.job,
                    f"claim {attempt.claim} was given up at {left:.3f}; the outage had ended at {outage.ends:.3f}",
                )


def nobody_is_given_up_without_a_fault(book: Book) -> Found:
    """P5: a lease ends early for a reason: something was done to its worker, the network, the store or a coordinator. Where
    nobody knows the worker, because the job never started, to anybody."""
    starts = {(e.job, e.claim): e.worker for e in book.history.effects if e.what == "start"}
    taken_along = _ended_before_a_crash(book)
    reach = book.history.rules.lease + book.history.rules.rescue_slack
    for attempt in book.history.attempts:
        left = _left_running(book.changes[attempt.job], attempt.claim)
        if attempt.kind != "lost" or left is None or (attempt.job, attempt.claim) in taken_along:
            continue
        worker = starts.get((attempt.job, attempt.claim))
        if not book.faults(who=worker, begins=left - reach, ends=left):
            yield (
                attempt.job,
                f"claim {attempt.claim} on {worker or 'some worker'} was lost at {left:.3f} without a fault",
            )


def _ended_before_a_crash(book: Book) -> set[tuple[str, int]]:
    """Attempts whose results another job of the same process may have taken along: it crashed within a moment."""
    crashes = [(e.run, e.at) for e in book.history.effects if e.what == "killed" and e.kind == "crash"]
    ends = [e for e in book.history.effects if e.what == "end"]
    return {
        (end.job, end.claim)
        for end in ends
        for run, at in crashes
        if run == end.run and 0 <= at - end.at <= RESULT_SECONDS
    }


def the_lost_are_rescued_in_time(book: Book) -> Found:
    """P5: when nothing hinders it, a dead worker's jobs are put back within the heartbeat timeout plus five seconds."""
    rules, quiet = book.history.rules, book.history.quiet_from
    died = {death.session: death.at for death in book.history.deaths}
    if quiet is None:
        return
    for id, changes in book.changes.items():
        for change in changes:
            if change.new != "running" or change.worker not in died:
                continue
            limit = max(died[change.worker], quiet, change.at) + rules.lease + rules.rescue_slack
            left = _left_running(changes, change.claim)
            if (left is None and book.history.ended > limit) or (left is not None and left > limit):
                yield (
                    id,
                    f"its worker {change.worker} died at {died[change.worker]:.3f}; claim {change.claim} "
                    f"was {'never' if left is None else f'at {left:.3f}'} taken from it, {limit:.3f} was the limit",
                )


def _left_running(changes: list[Change], claim: int) -> float | None:
    return next((c.at for c in changes if c.claim == claim and c.old == "running" != c.new), None)


def retry_delays_are_within_bounds(book: Book) -> Found:
    """A retry waits base^n seconds, capped, give or take the jitter, or as long as the job's own policy says; and it does
    wait."""
    rules = book.history.rules
    for attempt in book.history.attempts:
        delay = attempt.retry_delay
        if delay is None:
            if attempt.kind in BACKED_OFF and _queued_at_once(book, attempt):
                yield attempt.job, f"claim {attempt.claim} ended as {attempt.kind} and was queued at once"
            continue
        stored = book.stored.get(attempt.job)
        if attempt.kind == "snoozed":
            yield from _waited(book, attempt, delay)
            continue
        if stored is not None and stored.delays is not None:
            low, high = stored.delays[min(attempt.attempt, len(stored.delays)) - 1]
        else:
            plain = min(rules.backoff_base ** min(attempt.attempt, 64), rules.backoff_cap)
            low, high = plain * (1 - rules.backoff_jitter), plain * (1 + rules.backoff_jitter)
        if not low - 1e-3 <= delay <= high + 1e-3:
            yield (
                attempt.job,
                f"attempt {attempt.attempt} waits {delay:.3f} s; {low:.3f} to {high:.3f} is allowed",
            )
        yield from _waited(book, attempt, delay)
    first_called: dict[str, float] = {}
    for op in book.history.ops:
        for item in op.items:
            first_called[item.marker] = min(op.called, first_called.get(item.marker, op.called))
    for _, item, id in book.submissions():
        yield from _not_before(book, id, first_called[item.marker], item.delay)


def _queued_at_once(book: Book, attempt: StoredAttempt) -> bool:
    return any(
        change.claim == attempt.claim and change.old == "running" and change.new == "queued"
        for change in book.changes[attempt.job]
    )


def _waited(book: Book, attempt: StoredAttempt, delay: float) -> Found:
    """From the end of one run to the beginning of the next."""
    ends = [run.end for run in book.runs.get(attempt.job, []) if run.claim == attempt.claim]
    following = [run.start for run in book.runs.get(attempt.job, []) if run.claim > attempt.claim]
    if not ends or not following or _hurried(book, attempt.job, ends[0], min(following)):
        return
    if min(following) < ends[0] + delay - 0.01:
        yield (
            attempt.job,
            f"claim {attempt.claim} had to wait {delay:.3f} s; the next began after {min(following) - ends[0]:.3f} s",
        )


def _not_before(book: Book, id: str, called: float, delay: float) -> Found:
    starts = [effect.at for effect in book.effects[id] if effect.what == "start"]
    if delay and starts and starts[0] < called + delay - 0.01 and not _hurried(book, id, called, starts[0]):
        yield id, f"it was to wait {delay:.3f} s and began after {starts[0] - called:.3f} s"


def _hurried(book: Book, job: str, begins: float, ends: float) -> bool:
    """Whether somebody hurried the job, a clock was set meanwhile, or clocks did not agree."""
    return book.replayed_between(job, begins, ends) or bool(
        book.faults("clock", "skew", who="*", begins=begins, ends=ends)
    )


def what_is_due_is_queued_in_time(book: Book) -> Found:
    """P5: each unfinished job has a due time, at which somebody looks after it. While a clock is set, times mean little."""
    rules, quiet = book.history.rules, book.history.quiet_from
    if quiet is None or any(fault.kind in ("clock", "skew") for fault in book.history.faults):
        return
    for attempt in book.history.attempts:
        changes = book.changes[attempt.job]
        if attempt.retry_delay is None or not changes:
            continue
        put_off = [c.at for c in changes if c.claim == attempt.claim and c.new == "scheduled"]
        queued = [c.at for c in changes if c.claim == attempt.claim and c.old == "scheduled"]
        limit = max(put_off[0] + attempt.retry_delay, quiet) + rules.rescue_slack if put_off else 0.0
        if put_off and (queued[0] if queued else book.history.ended) > limit:
            yield (
                attempt.job,
                f"claim {attempt.claim} was to be retried at {limit - rules.rescue_slack:.3f} at the latest",
            )


def a_retry_does_not_wait_for_a_clock_that_was_set_back(book: Book) -> Found:
    """P8: while nothing else is wrong, a retry is queued after its delay, whatever time a clock that was ahead gave it."""
    slack = book.history.rules.rescue_slack
    for fault in book.history.faults:
        if fault.kind != "set_back":
            continue
        for attempt in book.history.attempts:
            changes = [c for c in book.changes[attempt.job] if c.claim == attempt.claim]
            put_off = next((c.at for c in changes if c.new == "scheduled"), None)
            if attempt.retry_delay is None or put_off is None:
                continue
            queued = next((c.at for c in changes if c.old == "scheduled"), book.history.ended)
            limit = max(put_off, fault.begins) + attempt.retry_delay + slack
            if limit < min(queued, fault.ends):
                yield (
                    attempt.job,
                    f"claim {attempt.claim} was to be retried {attempt.retry_delay:.3f} s after the clock was set back",
                )


def no_lower_rank_is_claimed_before_a_better_job(book: Book) -> Found:
    """P14: while a job waits, nothing of a lower rank is claimed for the worker that both wait for. Under faults a worker
    may be away for one and back for the other."""
    quiet = book.history.quiet_from
    if quiet is None:
        return
    by_place: dict[str, list[tuple[StoredJob, float, float]]] = defaultdict(list)
    for job in book.history.jobs:
        if job.place is not None:
            by_place[job.place] += [(job, *wait) for wait in _waits(book.changes[job.id])]
    for waits in by_place.values():
        for better, since, until in waits:
            worse = [
                job.id
                for job, _, claimed in waits
                if job.rank > better.rank and max(since, quiet) + EPSILON < claimed < until - EPSILON
            ]
            if worse:
                yield better.id, f"waited while {len(worse)} of a lower rank were claimed, {worse[0]} first"


def _waits(changes: list[Change]) -> Iterator[tuple[float, float]]:
    """From when to when a job was queued until it was claimed."""
    since = None
    for change in changes:
        if change.new == "running" and since is not None:
            yield since, change.at
        since = change.at if change.new == "queued" else None


def timeouts_are_kept(book: Book) -> Found:
    """A job is ended soon after its timeout, not counting the time in which its machine stood still, and none is ended by it
    before."""
    rules = book.history.rules
    timed_out = {(a.job, a.claim) for a in book.history.attempts if a.kind == "timeout"}
    for job in book.history.jobs:
        for run in book.runs.get(job.id, []):
            lasted = run.end - run.start
            if (job.id, run.claim) in timed_out and (job.timeout is None or lasted < job.timeout - 0.01):
                yield job.id, f"claim {run.claim} timed out after {lasted:.3f} of {job.timeout or 0:.3f} s"
            if job.timeout is None:
                continue
            paused = book.faults("pause", who=run.worker, begins=run.start, ends=run.end)
            stood = sum(min(pause.ends, run.end) - max(pause.begins, run.start) for pause in paused)
            if lasted > job.timeout + stood + rules.kill_slack:
                yield (
                    job.id,
                    f"claim {run.claim} ran for {lasted:.3f} s with a timeout of {job.timeout:.3f} s",
                )


# ── cancelling, and the end ────────────────────────────────────────────────────────────────────────────────────────


def nothing_starts_after_a_cancel(book: Book) -> Found:
    """P7: once a cancel is acknowledged, no further claim starts; of a job that waited, none at all."""
    for op in book.history.ops:
        if op.what != "cancel" or op.answer != "ok" or op.answered is None:
            continue
        for effect in book.effects[op.jobs[0]]:
            if effect.what != "start" or effect.at <= op.answered:
                continue
            on_its_way = op.status == "running" and op.claim is not None and effect.claim <= op.claim
            if on_its_way and (effect.at <= op.answered + TOLD or _hindered(book, op.answered, effect)):
                continue
            if not book.replayed_between(effect.job, op.called, effect.at):
                yield (
                    effect.job,
                    f"{op.client} was told at {op.answered:.3f} that it is cancelled ({op.status}); "
                    f"claim {effect.claim} started at {effect.at:.3f}",
                )


def _hindered(book: Book, cancelled: float, start: Effect) -> bool:
    reach = book.history.rules.lease + book.history.rules.rescue_slack
    return bool(book.faults(who=start.worker, begins=cancelled - reach, ends=start.at))


def a_cancel_ends_what_runs(book: Book) -> Found:
    """P7: the worker is told within two seconds, and the job has its grace. If something was done to its worker, or to all
    of them, about that time, it may take until the lease is over."""
    rules = book.history.rules
    for op in book.history.ops:
        if op.what != "cancel" or op.answer != "ok" or op.status != "running" or op.answered is None:
            continue
        for run in book.runs.get(op.jobs[0], []):
            if run.claim != op.claim:
                continue
            since = max(op.answered, run.start)
            limit = since + TOLD + rules.kill_slack
            if run.end > limit:
                limit = max([limit, *_mended(book, run, op.answered)])
            if run.end > limit:
                yield (
                    run.last.job,
                    f"claim {run.claim} ran until {run.end:.3f}; it was cancelled at {op.answered:.3f}",
                )


def _mended(book: Book, run: Run, cancelled: float) -> list[float]:
    """When each fault that may have kept a cancel from its worker was over, and what it can have cost."""
    rules, quiet = book.history.rules, book.history.quiet_from
    reach = rules.lease + rules.rescue_slack
    faults = book.faults(who=run.worker, begins=cancelled - reach, ends=run.end)
    ends = [
        fault.ends if quiet is None else min(fault.ends, quiet) for fault in faults if fault.kind != "skew"
    ]
    return [max(end, cancelled, run.start) + TOLD + rules.kill_slack + reach for end in ends]


def nobody_is_cancelled_unasked(book: Book) -> Found:
    asked = {op.jobs[0] for op in book.history.ops if op.what == "cancel" and op.answer != "refused"}
    for job in book.history.jobs:
        if job.status == "cancelled" and not job.expired and job.id not in asked:
            yield job.id, "it is cancelled, and nobody asked for that"


def everything_is_final_after_quiet(book: Book) -> Found:
    """P5: no job is stuck."""
    if book.history.quiet_from is None:
        return
    for job in book.history.jobs:
        if job.status not in FINAL:
            yield job.id, f"{job.marker} is {job.status} (claim {job.claim}) at the end of the quiet phase"


def snoozes_are_asked_for_counted_and_bounded(book: Book) -> Found:
    """An attempt is stored as snoozed only if its task asked for it; the store counts them since the last replay."""
    ends = {(e.job, e.claim): e.kind for e in book.history.effects if e.what != "start"}
    for job in book.history.jobs:
        snoozed = [attempt for attempt in book.attempts[job.id] if attempt.kind == "snoozed"]
        for attempt in snoozed:
            own = ends.get((job.id, attempt.claim))
            if own != "snoozed":
                yield job.id, f"claim {attempt.claim} is stored as snoozed, and it ended as {own}"
        replayed = [c.claim for c in book.changes[job.id] if c.old in FINAL and c.new not in FINAL]
        since = sum(attempt.claim > max(replayed, default=0) for attempt in snoozed)
        if job.snoozes != since or since > MAX_SNOOZES:
            yield job.id, f"it snoozed {since} times, and the store has counted {job.snoozes}"


def each_end_is_told_by_one_delivery(book: Book) -> Found:
    """Each end of a job with a webhook has exactly one delivery, stored with it; and it ends too when nothing disturbs
    it."""
    if book.history.deliveries is None:
        return
    told = Counter(delivery.job for delivery in book.history.deliveries)
    for job in book.history.jobs:
        changes = book.changes[job.id]
        ends = [
            change
            for place, change in enumerate(changes)
            if change.new in FINAL
            and change.old not in FINAL
            # An end that was undone in the same transaction is none.
            and not (place + 1 < len(changes) and changes[place + 1].at == change.at)
        ]
        wanted = len(ends) if job.notify else 0
        if told[job.id] != wanted:
            yield job.id, f"it ended {wanted} times, and {told[job.id]} deliveries tell of it"
    for delivery in book.history.deliveries:
        if book.history.quiet_from is not None and delivery.status not in FINAL:
            yield delivery.job, f"the delivery of its end is {delivery.status}"


def each_cron_tick_fires_once(book: Book) -> Found:
    """P12: one job per schedule and tick."""
    fired = Counter((tick.schedule, tick.tick) for tick in book.history.fired_ticks)
    expected = {(tick.schedule, tick.tick) for tick in book.history.expected_ticks}
    for schedule, tick in sorted(expected | fired.keys()):
        count = fired[schedule, tick]
        if (count != 1) if (schedule, tick) in expected else count:
            yield None, f"{schedule} fired {count} times at {tick}"


def one_unfinished_job_holds_a_key(book: Book) -> Found:
    """A unique key is held by one unfinished job at most, at every commit."""
    for clash in book.history.key_clashes:
        yield clash.jobs[0], f"{len(clash.jobs)} unfinished jobs held the key {clash.key} at {clash.at:.3f}"


def nothing_starts_after_it_expired(book: Book) -> Found:
    """A job that has not started by its expiry never starts, by the store's clock."""
    for start in book.history.starts:
        if start.attempt == 1 and start.expires_at is not None and start.claimed_at >= start.expires_at:
            late = (start.claimed_at - start.expires_at) / 1_000_000
            yield start.job, f"was claimed at {start.at:.3f}, {late:.3f} s after it had expired"


def an_acknowledged_edit_is_what_runs(book: Book) -> Found:
    """What a client was told of an edit is what the next claim takes."""
    for start in book.history.starts:
        if start.edit < start.told:
            yield (
                start.job,
                f"was claimed at {start.at:.3f} with edit {start.edit}, and {start.told} was acknowledged",
            )


def ready_only_while_jobs_can_be_stored(book: Book) -> Found:
    """P15: while nothing can be stored, nobody is told otherwise for longer than the last write is trusted."""
    history = book.history
    for answer in history.readies:
        for outage in history.unwritable:
            known_from = outage.begins + history.rules.ready_trust + WRITING
            inside = known_from <= answer.asked and answer.answered <= outage.ends
            if answer.ready and inside and not _stood_still(history, outage.begins, answer.answered):
                yield (
                    None,
                    f"{answer.coordinator} said at {answer.answered:.3f} that it is ready: nothing could be stored",
                )


def _stood_still(history: History, begins: float, ends: float) -> bool:
    """Whether a process may have heard of an old write as late as this, because it had not run meanwhile."""
    return any(
        fault.kind.endswith(("pause", "stopped", "blocked")) and fault.begins <= ends and fault.ends >= begins
        for fault in history.faults
    )


def ready_again_after_quiet(book: Book) -> Found:
    """P15: a coordinator that can store jobs again says so."""
    history = book.history
    if history.quiet_from is None:
        return
    again_from = history.quiet_from + history.rules.ready_again
    last = {answer.coordinator: answer for answer in history.readies if answer.asked >= again_from}
    for name, answer in sorted(last.items()):
        if not answer.ready:
            yield None, f"{name} was not ready at {answer.answered:.3f}, long after all faults had ended"


INVARIANTS: Final[dict[str, Invariant]] = {
    invariant.__name__: invariant
    for invariant in (
        acknowledged_jobs_are_stored,
        one_job_per_key,
        one_job_per_client_id,
        ids_are_refused_for_a_reason,
        every_stored_job_was_submitted,
        answers_come_after_the_commit,
        totals_add_up,
        bytes_stay_bounded,
        one_outcome_per_job,
        the_result_is_that_of_the_attempt,
        acknowledged_reports_are_stored,
        what_was_seen_final_stays,
        a_final_status_is_left_only_by_a_replay,
        claim_numbers_only_grow,
        what_starts_was_claimed,
        current_reports_are_taken,
        starts_stay_within_attempts,
        failures_had_their_attempts,
        overlap_only_inside_a_pause,
        charges_are_earned,
        what_started_was_not_lost_on_the_way,
        no_session_expires_right_after_an_outage,
        nobody_is_given_up_without_a_fault,
        the_lost_are_rescued_in_time,
        retry_delays_are_within_bounds,
        what_is_due_is_queued_in_time,
        a_retry_does_not_wait_for_a_clock_that_was_set_back,
        no_lower_rank_is_claimed_before_a_better_job,
        timeouts_are_kept,
        nothing_starts_after_a_cancel,
        a_cancel_ends_what_runs,
        nobody_is_cancelled_unasked,
        everything_is_final_after_quiet,
        snoozes_are_asked_for_counted_and_bounded,
        each_end_is_told_by_one_delivery,
        each_cron_tick_fires_once,
        one_unfinished_job_holds_a_key,
        nothing_starts_after_it_expired,
        an_acknowledged_edit_is_what_runs,
        ready_only_while_jobs_can_be_stored,
        ready_again_after_quiet,
    )
}


def check(history: History) -> list[Violation]:
    """Everything that is wrong with a history."""
    book = Book(history)
    return [
        Violation(name, job, text) for name, invariant in INVARIANTS.items() for job, text in invariant(book)
    ]
