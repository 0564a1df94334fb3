"""Schedules: which ticks fire a job, and what is recorded of each.

A schedule is a row. `next_at` is its first tick of which nothing is recorded yet; the transaction that moves `next_at`
on also records the ticks that it passes and inserts their jobs, so each tick is recorded once, whichever coordinator
does it.

The rules, all of them in `step`:

- A tick may fire from its time (plus its jitter) until `max(catch_up_sec, 60)` seconds later. Of the ticks that are due at
  once, as after an outage, at most `catch_up_max` fire, the latest first. Every other tick that is due is `missed`.
- A tick that may fire is `skipped` when the schedule's `overlap` forbids it, because the job of an earlier tick, or one that
  was triggered, has not ended; or when the last `pause_after_failures` jobs failed, which also pauses the schedule.
- While a schedule is paused nothing is written. What it passed is recorded as skipped, in one row, when it is resumed.
- Neighbouring ticks that were missed, or skipped by a pause, share one record: `tick` is the first and `last` the last of
  them. A year of `* * * * *` is one row.

`queue_one` inserts the job of the next tick as `blocked`; it is released when the earlier jobs have ended.
"""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import islice, takewhile
from typing import Annotated, Final, Literal

import msgspec
from msgspec.structs import replace

from stoker.domain.job import Job, OnConflict
from stoker.domain.lifecycle import FINAL, Status
from stoker.domain.recurrence import (
    SECOND,
    BadSchedule,
    Recurrence,
    check_cron,
    check_timezone,
)

GRACE_SEC: Final = 60
"""A tick may fire so much later than its time, also without `catch_up_sec`."""
MAX_CATCH_UP_SEC: Final = 366 * 86_400
MAX_CATCH_UP: Final = 1_000
MAX_JITTER_SEC: Final = 86_400
MAX_BACKFILL: Final = 1_000
MAX_PAYLOAD_BYTES: Final = 256 * 1024
MAX_OPEN: Final = 100
"""The most unfinished jobs that a schedule remembers, for `overlap` and `pause_after_failures`."""
POLL_US: Final = SECOND
"""How often to look whether a job that is held back may start."""

NAME_PATTERN: Final = r"\A[A-Za-z0-9_][A-Za-z0-9_.:@+-]*\Z"
ScheduleName = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=NAME_PATTERN)]
RESERVED_NAMES: Final = frozenset({"preview"})
"""Paths of the API that look like names."""

Overlap = Literal["allow", "skip", "queue_one", "cancel_previous"]
Outcome = Literal["fired", "skipped", "missed"]
TickKind = Literal["tick", "trigger", "backfill"]
PauseReason = Literal["user", "failures"]


class Schedule(msgspec.Struct, frozen=True):
    """A schedule as the store holds it. The field order is the column order."""

    name: str
    cron: str | None
    every_us: int | None
    timezone: str
    job: bytes
    """What to submit, as the JSON of a `JobSpec`."""
    overlap: Overlap
    catch_up_sec: float
    catch_up_max: int
    jitter_us: int
    start_at: int | None
    end_at: int | None
    pause_after_failures: int | None
    created_at: int
    updated_at: int
    paused_at: int | None = None
    pause_reason: PauseReason | None = None
    next_at: int | None = None
    """The first tick of which nothing is recorded; None when no tick comes any more."""
    due_at: int | None = None
    """When to look at this schedule again; None for never."""
    last_tick: int | None = None
    """The latest tick that is recorded."""
    last_run_at: int | None = None
    last_job_id: str | None = None
    failures: int = 0
    """How many of its jobs failed one after the other."""
    open_jobs: tuple[str, ...] = ()
    """Jobs that had not ended when last looked at, the oldest first; empty where no rule asks for them."""
    held_job: str | None = None
    """The job that waits for the others in `open_jobs` to end."""
    app: str | None = None
    """The app whose code declares it."""
    orphaned_at: int | None = None
    """Since when that code no longer does."""

    @property
    def recurrence(self) -> Recurrence:
        anchor = self.created_at if self.start_at is None else self.start_at
        return Recurrence(self.cron, self.every_us, self.timezone, self.start_at, self.end_at, anchor)

    @property
    def paused(self) -> bool:
        return self.paused_at is not None

    @property
    def watches_jobs(self) -> bool:
        """Whether a rule asks how its jobs end."""
        return self.overlap != "allow" or self.pause_after_failures is not None


COLUMNS: Final = Schedule.__struct_fields__


class Definition(msgspec.Struct, frozen=True):
    """What a person or an app says of a schedule; the names are those of `Schedule`. `paused` None leaves a pause as it
    is."""

    cron: str | None
    every_us: int | None
    timezone: str
    job: bytes
    overlap: Overlap = "allow"
    catch_up_sec: float = GRACE_SEC
    catch_up_max: int = 1
    jitter_us: int = 0
    start_at: int | None = None
    end_at: int | None = None
    pause_after_failures: int | None = None
    paused: bool | None = None


class Tick(msgspec.Struct, frozen=True):
    """What became of a tick, or of all ticks from `tick` to `last`. The field order is the column order.

    A `trigger` is no tick: its `tick` is when it was asked for. A `backfill` fires a tick of the past."""

    schedule: str
    kind: TickKind
    tick: int
    last: int
    outcome: Outcome
    reason: str | None
    """For a tick that did not fire: `overlap`, `paused`, `failures`, `changed`, `late`, `catch_up_max`, `unique_key`, or
    why its job was refused."""
    job_id: str | None
    at: int
    """When this was recorded."""


TICK_COLUMNS: Final = Tick.__struct_fields__


class Step(msgspec.Struct, frozen=True):
    """What to do with a schedule, decided and ready to be stored. `fire` are ticks to insert jobs for, `hold` says that
    theirs is inserted as blocked."""

    schedule: Schedule
    ticks: list[Tick] = []
    fire: list[int] = []
    hold: bool = False
    cancel: tuple[str, ...] = ()
    release: str | None = None


class Firing(msgspec.Struct, frozen=True):
    """A job to insert, and the tick that it is for."""

    kind: TickKind
    tick: int
    job: Job
    on_conflict: OnConflict = "return"


class ScheduleDecision(msgspec.Struct, frozen=True):
    """What a store does to one schedule in one transaction: insert jobs, cancel and release others, record ticks and
    write the row, or delete it where `schedule` is None."""

    schedule: Schedule | None
    ticks: Sequence[Tick] = ()
    firings: Sequence[Firing] = ()
    cancel: Sequence[str] = ()
    release: Sequence[str] = ()


class Declaration(msgspec.Struct, frozen=True):
    """The schedules that an app last declared, as a digest, and the version of its code. The field order is the column
    order."""

    app: str
    digest: bytes
    version: int | None
    at: int


class Inserted(msgspec.Struct, frozen=True):
    """What became of a firing: the job that stands for it, or why there is none. `repeated` when another submission made
    it."""

    job_id: str | None
    repeated: bool = False
    refused: str | None = None


# ── what a definition may say ──────────────────────────────────────────────────────────────────────────────────────


def check(definition: Definition) -> None:
    """Raise `BadSchedule`, which names the field, for a definition that cannot be."""
    if (definition.cron is None) == (definition.every_us is None):
        field = "cron" if definition.cron is None else "every_sec"
        raise BadSchedule(
            field, "must be given, or every_sec" if field == "cron" else "excludes cron; give one"
        )
    check_timezone(definition.timezone)
    if definition.cron is not None:
        check_cron(definition.cron, definition.timezone)
    if definition.every_us is not None and definition.jitter_us > definition.every_us:
        raise BadSchedule("jitter_sec", "must not be longer than every_sec")
    if definition.end_at is not None and definition.end_at <= (definition.start_at or 0):
        raise BadSchedule("end_at", "must be later than start_at")


def check_name(name: str) -> None:
    """Raise `BadSchedule` for a name that paths of the API have taken."""
    if name in RESERVED_NAMES:
        raise BadSchedule("name", f"{name!r} is taken by a path of the API; choose another")


# ── changing a schedule ────────────────────────────────────────────────────────────────────────────────────────────


def created(name: str, definition: Definition, now: int, last_tick: int | None = None) -> Schedule:
    """Return a new schedule. `last_tick` is the latest that is recorded of one that had the same name."""
    fields = {field: getattr(definition, field) for field in _DEFINED}
    fresh = Schedule(name=name, created_at=now, updated_at=now, last_tick=last_tick, **fields)
    fresh = _placed(fresh, now)
    return _due(_pause(fresh, "user", now) if definition.paused else fresh, now)


_DEFINED: Final = tuple(field for field in Definition.__struct_fields__ if field != "paused")
_TIMING: Final = ("cron", "every_us", "timezone", "start_at", "end_at")


def changed(schedule: Schedule, definition: Definition, now: int) -> Step:
    """Return a schedule with another definition. What was due by the old one is decided before (`step`), so a change of its
    times touches only ticks later than now."""
    fields = {field: getattr(definition, field) for field in _DEFINED}
    after = replace(schedule, **fields, updated_at=now)
    if not after.watches_jobs:
        after = replace(after, open_jobs=(), failures=0)
    ticks: list[Tick] = []
    if any(getattr(after, field) != getattr(schedule, field) for field in _TIMING):
        ticks += _passed(schedule, now, "paused" if schedule.paused else "changed")
        after = _placed(_recorded(after, ticks), now)
    if definition.paused is True:
        after = after if after.paused else _pause(after, "user", now)
    elif definition.paused is False and after.paused:
        resuming = resumed(after, now)
        after, ticks = resuming.schedule, ticks + resuming.ticks
    release = schedule.held_job if after.overlap != "queue_one" else None
    if release is not None:
        after = replace(after, held_job=None)
    return Step(_due(after, now), ticks, release=release)


def paused(schedule: Schedule, now: int) -> Schedule:
    """Return it paused; one that is paused already stays as it is."""
    return schedule if schedule.paused else _due(_pause(schedule, "user", now), now)


def resumed(schedule: Schedule, now: int) -> Step:
    """Return it unpaused; what it passed while it was paused is recorded as skipped."""
    if not schedule.paused:
        return Step(schedule)
    ticks = _passed(schedule, now, "paused")
    after = replace(schedule, paused_at=None, pause_reason=None, failures=0)
    after = _recorded(after, ticks)
    return Step(_due(_placed(after, now), now), ticks)


def _with_job(schedule: Schedule, job_id: str, now: int) -> Schedule:
    open_jobs = (*schedule.open_jobs, job_id)[-MAX_OPEN:] if schedule.watches_jobs else ()
    return replace(schedule, last_run_at=now, last_job_id=job_id, open_jobs=open_jobs)


def _pause(schedule: Schedule, reason: PauseReason, now: int) -> Schedule:
    return replace(schedule, paused_at=now, pause_reason=reason)


def _placed(schedule: Schedule, now: int) -> Schedule:
    """Return it at its first tick later than now, and than all that is recorded."""
    return replace(schedule, next_at=schedule.recurrence.after(max(now, schedule.last_tick or 0)))


def _due(schedule: Schedule, now: int) -> Schedule:
    """Return it with the time at which to look at it again."""
    times: list[int] = []
    if schedule.next_at is not None and not schedule.paused:
        times.append(schedule.next_at + jitter_us(schedule, schedule.next_at))
    if schedule.held_job is not None:
        times.append(now + POLL_US)
    return replace(schedule, due_at=min(times, default=None))


def _passed(schedule: Schedule, now: int, reason: str) -> list[Tick]:
    """Return the record of the ticks from `next_at` until now as skipped; none if there is no such tick."""
    first = schedule.next_at
    if first is None or first > now:
        return []
    (last,) = schedule.recurrence.latest(first, now, 1)
    return [Tick(schedule.name, "tick", first, last, "skipped", reason, None, now)]


def _recorded(schedule: Schedule, ticks: Sequence[Tick]) -> Schedule:
    known = [schedule.last_tick] if schedule.last_tick is not None else []
    latest = max((*known, *(tick.last for tick in ticks)), default=None)
    return replace(schedule, last_tick=latest)


# ── the step at a tick ─────────────────────────────────────────────────────────────────────────────────────────────


def jitter_us(schedule: Schedule, tick: int) -> int:
    """Return how much later than its time a tick is due: the same for all who ask."""
    if schedule.jitter_us == 0:
        return 0
    digest = hashlib.blake2b(f"{schedule.name}\0{tick}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % (schedule.jitter_us + 1)


def window_us(schedule: Schedule) -> int:
    """Return how long after its time a tick may fire."""
    return round(max(schedule.catch_up_sec, GRACE_SEC) * SECOND) + schedule.jitter_us


def step(schedule: Schedule, now: int, statuses: Mapping[str, Status]) -> Step:
    """Return what is due at a schedule now. `statuses` are those of its `open_jobs`; one that is not there is long over."""
    looked, release = _looked_at(schedule, statuses)
    due = [] if looked.paused else _due_ticks(looked, now)
    if not due:
        return Step(_due(looked, now), release=release)
    limit = looked.pause_after_failures
    if limit is not None and looked.failures >= limit:
        ticks = [Tick(looked.name, "tick", due[0], due[-1], "skipped", "failures", None, now)]
        after = _pause(
            replace(looked, last_tick=due[-1], next_at=looked.recurrence.after(due[-1])), "failures", now
        )
        return Step(_due(after, now), ticks, release=release)
    fire, ticks = _judged(looked, due, now)
    return _fired(looked, fire, ticks, now, release)


def _looked_at(schedule: Schedule, statuses: Mapping[str, Status]) -> tuple[Schedule, str | None]:
    """Return the schedule with what became of its jobs, and the job that is to be released."""
    if not schedule.open_jobs and schedule.held_job is None:
        return schedule, None
    failures = schedule.failures
    open_jobs: list[str] = []
    for id in schedule.open_jobs:
        status = statuses.get(id)
        if status is not None and status not in FINAL:
            open_jobs.append(id)
        elif status == "failed":
            failures += 1
        elif status == "completed":
            failures = 0
    held = schedule.held_job if schedule.held_job in open_jobs else None
    release = held if held is not None and open_jobs == [held] else None
    return replace(
        schedule, open_jobs=tuple(open_jobs), failures=failures, held_job=None if release else held
    ), release


def _due_ticks(schedule: Schedule, now: int) -> list[int]:
    """Return the first tick that is due, and the latest ones of those behind it that may be of interest; in order."""
    first = schedule.next_at
    if first is None or first + jitter_us(schedule, first) > now:
        return []
    following = schedule.recurrence.after(first)
    if following is None or following > now:
        return [first]
    # Ticks are recorded in order: one whose jitter is over waits for an earlier one whose is not.
    waiting = schedule.jitter_us // (schedule.every_us or 60 * SECOND) + 1
    latest = schedule.recurrence.latest(first, now, schedule.catch_up_max + waiting)
    due = list(takewhile(lambda tick: tick + jitter_us(schedule, tick) <= now, latest))
    return due if due and due[0] == first else [first, *due]


def _judged(schedule: Schedule, due: list[int], now: int) -> tuple[list[int], list[Tick]]:
    """Return the ticks that may fire, and the record of those that are missed."""
    in_time = [tick for tick in due if tick + window_us(schedule) >= now]
    fire = in_time[-schedule.catch_up_max :]
    if fire and fire[0] == due[0]:
        return fire, []
    before = fire[0] - 1 if fire else due[-1]
    (last,) = schedule.recurrence.latest(due[0], before, 1)
    reason = "late" if last + window_us(schedule) < now else "catch_up_max"
    return fire, [Tick(schedule.name, "tick", due[0], last, "missed", reason, None, now)]


def _fired(schedule: Schedule, fire: list[int], ticks: list[Tick], now: int, release: str | None) -> Step:
    """Apply the rule for overlaps to ticks that may fire, the latest first."""
    latest_first = fire[::-1]
    # A job that is being released has not begun, and counts like one that runs.
    busy = bool(schedule.open_jobs)
    hold = False
    cancel: tuple[str, ...] = ()
    if schedule.overlap == "skip":
        chosen = [] if busy else latest_first[:1]
    elif schedule.overlap == "queue_one":
        chosen = [] if schedule.held_job is not None else latest_first[:1]
        hold = busy and bool(chosen)
    elif schedule.overlap == "cancel_previous":
        chosen = latest_first[:1]
        cancel = schedule.open_jobs if chosen else ()
    else:
        chosen = latest_first
    skipped = [
        Tick(schedule.name, "tick", tick, tick, "skipped", "overlap", None, now)
        for tick in fire
        if tick not in chosen
    ]
    recorded = _recorded(schedule, [*ticks, *skipped])
    last = max((recorded.last_tick or 0, *fire))
    after = replace(recorded, last_tick=last, next_at=schedule.recurrence.after(last))
    return Step(_due(after, now), [*ticks, *skipped], chosen, hold, cancel, release)


def after_inserts(
    decision: ScheduleDecision, inserted: Sequence[Inserted], now: int
) -> tuple[Schedule | None, list[Tick]]:
    """Return the row and the records to write, once it is known what became of the firings."""
    schedule = decision.schedule
    ticks = list(decision.ticks)
    # The latest first is the order in which they are inserted; the latest job is the last one that the row remembers.
    for firing, what in sorted(zip(decision.firings, inserted, strict=True), key=lambda pair: pair[0].tick):
        name = "" if schedule is None else schedule.name
        fired = what.job_id is not None and not what.repeated
        reason = None if fired else ("unique_key" if what.repeated else what.refused)
        outcome: Outcome = "fired" if fired else "skipped"
        ticks.append(Tick(name, firing.kind, firing.tick, firing.tick, outcome, reason, what.job_id, now))
        if schedule is None or not fired or what.job_id is None or firing.kind == "backfill":
            continue
        schedule = _with_job(schedule, what.job_id, now)
        if firing.job.status == "blocked":
            schedule = _due(replace(schedule, held_job=what.job_id), now)
    return schedule, ticks


def to_cancel(decision: ScheduleDecision, inserted: Sequence[Inserted]) -> Sequence[str]:
    """Return the earlier jobs to cancel. Where none takes their place, because the unique key was taken, they go on."""
    took_place = any(what.job_id is not None and not what.repeated for what in inserted)
    return decision.cancel if took_place else ()


def next_ticks(schedule: Schedule, now: int, count: int) -> list[int]:
    """Return the ticks to come, whether or not the schedule is paused."""
    return list(islice(schedule.recurrence.ticks(max(now, schedule.last_tick or 0)), count))


# ── schedules that apps declare ────────────────────────────────────────────────────────────────────────────────────


def is_news(last: Declaration | None, digest: bytes, version: int | None, *, empty: bool) -> bool:
    """Return whether a declaration is to be applied: it differs from the app's last one, and its version is not older.
    An app that never declared anything, and does not now, is no news."""
    if last is None:
        return not empty
    older = (version if version is not None else -1) < (last.version if last.version is not None else -1)
    return last.digest != digest and not older


def declared(
    schedule: Schedule | None, name: str, definition: Definition, app: str, now: int, last_tick: int | None
) -> Step:
    """Return a schedule as an app declares it. A pause survives, and so does a schedule of another app."""
    if schedule is None:
        return Step(replace(created(name, definition, now, last_tick), app=app))
    if schedule.app not in (None, app):
        return Step(schedule)
    made = changed(schedule, definition, now)
    return replace(made, schedule=replace(made.schedule, app=app, orphaned_at=None))


def orphaned(schedule: Schedule, now: int) -> Schedule:
    """Return it after its app stopped declaring it. It goes on until it is pruned."""
    return schedule if schedule.orphaned_at is not None else replace(schedule, orphaned_at=now)
