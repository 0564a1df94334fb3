"""Schedules: the loop that fires what is due, and what people and apps do to them.

Any coordinator may fire any schedule: the store gives each due row to one of them, and advances it and inserts its jobs
in one transaction (`stoker.store.schedules`). Nothing is kept here but when to look next. Without schedules the loop
sleeps: on a store of its own until one is made, on a shared store it looks every few seconds for those that others made.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
import structlog

from stoker.clock import SECOND
from stoker.coordinator.observers import Observers
from stoker.coordinator.schedule_fields import definition_of, job_of_tick, spec_of
from stoker.domain import schedule as rules
from stoker.domain.errors import MissingError, StateConflict, StoreUnavailable
from stoker.domain.extras import InvalidOption
from stoker.domain.job import DEFAULT_TYPE, Job, JobDefaults, JobSpec, PriorityOrder
from stoker.domain.recurrence import BadSchedule
from stoker.domain.schedule import (
    Declaration,
    Definition,
    Firing,
    Schedule,
    ScheduleDecision,
    Step,
    Tick,
    TickKind,
)
from stoker.ids import NewId
from stoker.store.base import Store
from stoker.store.schedules import (
    AppChange,
    Decide,
    ScheduleChange,
    ScheduleChanged,
    SchedulesQuery,
    Seen,
)
from stoker.store.submissions import Accepted
from stoker.wire.schedules import DeclaredSchedule

BATCH: Final = 16
"""Schedules fired in one transaction: on SQLite nothing else has a turn meanwhile."""
BETWEEN_SECONDS: Final = 0.005
"""The pause between two batches, in which other requests have their turn."""
LOOK_SECONDS: Final = 1.0
IDLE_LOOK_SECONDS: Final = 5.0
"""How often to look for schedules on a shared store that has none."""
PURGE_EVERY_SECONDS: Final = 60.0
PURGE_BATCH: Final = 500
PURGE_BATCHES: Final = 20

log = structlog.get_logger()


class JobRules(msgspec.Struct, frozen=True):
    """What a job gets that its submission does not say."""

    max_attempts: int
    order: PriorityOrder
    defaults: Callable[[str], JobDefaults]
    webhook_hosts: Sequence[str] = ()


class Backfilled(msgspec.Struct, frozen=True):
    """What a backfill inserted."""

    jobs: list[Job]
    already: int
    """Ticks of the span that had a job before."""


class Schedules:
    """The schedules of a coordinator. `wake` is called before a transaction that may insert jobs. Nothing is fired or
    changed while `why_not` says so."""

    def __init__(
        self,
        store: Store,
        jobs: JobRules,
        *,
        new_id: NewId,
        monotonic: Callable[[], float],
        kept_us: int,
        wake: Callable[[], None],
        observers: Observers,
        why_not: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._new_id = new_id
        self._monotonic = monotonic
        self._kept_us = kept_us
        self._wake = wake
        self._observers = observers
        self._why_not = why_not
        self._nudge = asyncio.Event()
        self._next_purge = monotonic() + PURGE_EVERY_SECONDS
        self._apps: dict[str, tuple[bytes, int | None]] = {}

    # ── the loop ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        while True:
            try:
                seconds = await self.work()
            except Exception as error:
                log.error(
                    "schedules_failed", detail=str(error), exc_info=not isinstance(error, StoreUnavailable)
                )
                seconds = LOOK_SECONDS
            await self._rest(seconds)

    async def work(self) -> float | None:
        """Fire what is due; return for how many seconds there is nothing to do, None for until it is nudged."""
        self._nudge.clear()
        if self._why_not() is not None:
            return LOOK_SECONDS
        due = await self._store.next_schedule_at()
        while due is not None and due <= self._store.now_us():
            if not await self.fire():
                break
            await asyncio.sleep(BETWEEN_SECONDS)
            due = await self._store.next_schedule_at()
        if due is None:
            return IDLE_LOOK_SECONDS if self._store.shared else None
        await self._purge()
        return min(LOOK_SECONDS, max(0.0, (due - self._store.now_us()) / SECOND))

    async def fire(self) -> int:
        """Advance some schedules that are due, in one transaction; return how many."""
        self._wake()
        changed = await self._store.change_schedules(ScheduleChange(self._decide_due, limit=BATCH))
        self._tell(changed)
        return len(changed)

    async def _purge(self) -> None:
        if self._monotonic() < self._next_purge:
            return
        before = self._store.now_us() - self._kept_us
        for _ in range(PURGE_BATCHES):
            if await self._store.purge_ticks(before, PURGE_BATCH) < PURGE_BATCH:
                break
        self._next_purge = self._monotonic() + PURGE_EVERY_SECONDS

    async def _rest(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._nudge.wait()
        except TimeoutError:
            pass

    # ── deciding ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _decide_due(self, seen: Seen) -> ScheduleDecision | None:
        return (
            None
            if seen.schedule is None
            else self._decided(rules.step(seen.schedule, seen.now, seen.statuses), seen.now)
        )

    def _decided(self, step: Step, now: int) -> ScheduleDecision:
        """Make the jobs of a step. A tick whose job cannot be made is recorded as skipped."""
        firings: list[Firing] = []
        ticks = list(step.ticks)
        for tick in step.fire:
            try:
                firings.append(self._firing("tick", step.schedule, tick, now, blocked=step.hold))
            except (InvalidOption, msgspec.DecodeError) as error:
                ticks.append(
                    Tick(step.schedule.name, "tick", tick, tick, "skipped", str(error)[:500], None, now)
                )
        release = () if step.release is None else (step.release,)
        return ScheduleDecision(step.schedule, ticks, firings, step.cancel, release)

    def _firing(
        self, kind: TickKind, schedule: Schedule, tick: int, now: int, *, blocked: bool = False
    ) -> Firing:
        spec = spec_of(schedule.job)
        defaults = self._jobs.defaults(spec.type or DEFAULT_TYPE)
        job = job_of_tick(
            schedule,
            tick,
            id=self._new_id(),
            now=now,
            defaults=defaults,
            max_attempts=self._jobs.max_attempts,
            order=self._jobs.order,
            webhook_hosts=self._jobs.webhook_hosts,
            blocked=blocked,
        )
        wanted = defaults.on_conflict if spec.on_conflict is msgspec.UNSET else spec.on_conflict
        return Firing(kind, tick, job, wanted or "return")

    def _after_due(self, seen: Seen, then: Callable[[Schedule], Step]) -> ScheduleDecision | None:
        """Fire what is due by the schedule as it is, then apply the change."""
        if seen.schedule is None:
            return None
        first = self._decided(rules.step(seen.schedule, seen.now, seen.statuses), seen.now)
        second = then(first.schedule or seen.schedule)
        release = () if second.release is None else (second.release,)
        return ScheduleDecision(
            second.schedule,
            [*first.ticks, *second.ticks],
            first.firings,
            first.cancel,
            [*first.release, *release],
        )

    async def _change(self, name: str, decide: Decide, ticks: Iterable[int] = ()) -> ScheduleChanged | None:
        if (why_not := self._why_not()) is not None:
            raise StoreUnavailable(why_not)
        self._wake()
        changed = await self._store.change_schedules(ScheduleChange(decide, (name,), ticks=tuple(ticks)))
        self._tell(changed)
        self._nudge.set()
        return changed[0] if changed else None

    async def _changed(self, name: str, decide: Decide) -> Schedule:
        """Return the schedule after a change. Raises `MissingError` where there is none."""
        changed = await self._change(name, decide)
        if changed is None or changed.after is None:
            raise _missing(name)
        return changed.after

    def _tell(self, changed: Sequence[ScheduleChanged]) -> None:
        """Tell what a transaction did to schedules, and to the jobs that they made, cancelled or released."""
        accepted = [item for one in changed for item in one.accepted]
        if accepted:
            self._observers.submitted(accepted)
        cancelled = [job for one in changed for job in one.cancelled]
        if cancelled:
            self._observers.cancelled(cancelled, min(job.cancel_requested_at or 0 for job in cancelled))
        released = [id for one in changed for id in one.released]
        if released:
            self._wake()
            self._observers.changed(released)
        if changed:
            self._observers.ticked(changed)

    # ── what people do ─────────────────────────────────────────────────────────────────────────────────────────────

    async def put(self, name: str, definition: Definition) -> tuple[Schedule, bool]:
        """Make or change a schedule; also whether it is new."""

        def decide(seen: Seen) -> ScheduleDecision | None:
            if seen.schedule is None:
                return ScheduleDecision(rules.created(name, definition, seen.now, seen.last_tick))
            return self._after_due(seen, lambda schedule: rules.changed(schedule, definition, seen.now))

        changed = await self._change(name, decide)
        if changed is None or changed.after is None:  # it was decided above
            raise _missing(name)
        if changed.before is None:
            log.info("schedule_created", schedule=name)
        else:
            log.info("schedule_changed", schedule=name)
        return changed.after, changed.before is None

    async def get(self, name: str) -> Schedule:
        schedule = await self._store.schedule(name)
        if schedule is None:
            raise _missing(name)
        return schedule

    async def page(self, query: SchedulesQuery) -> list[Schedule]:
        return await self._store.schedules(query)

    async def last_statuses(self, schedules: Sequence[Schedule]) -> dict[str, str]:
        """Return the statuses of the last jobs of these schedules, by id."""
        ids = [schedule.last_job_id for schedule in schedules if schedule.last_job_id is not None]
        return {state.id: state.status for state in await self._store.states(ids)} if ids else {}

    async def ticks(self, name: str, limit: int, before: int | None = None) -> list[Tick]:
        schedule = await self.get(name)
        found = await self._store.schedule_ticks(name, limit, before)
        return [tick for tick in found if tick.at >= schedule.created_at]

    async def delete(self, name: str, *, orphaned: bool = False) -> Schedule:
        """Delete a schedule; with `orphaned`, only one that its app no longer declares. Its jobs stay."""

        def decide(seen: Seen) -> ScheduleDecision | None:
            if seen.schedule is None or (orphaned and seen.schedule.orphaned_at is None):
                return None
            held = seen.schedule.held_job
            return ScheduleDecision(None, release=() if held is None else (held,))

        changed = await self._change(name, decide)
        if changed is None or changed.before is None:
            await self.get(name)
            raise StateConflict(
                f"schedule {name} is declared by its app; take it out of the code, or leave orphaned=true out"
            )
        log.info("schedule_deleted", schedule=name)
        return changed.before

    async def pause(self, name: str) -> Schedule:
        def decide(seen: Seen) -> ScheduleDecision | None:
            return self._after_due(seen, lambda schedule: Step(rules.paused(schedule, seen.now)))

        after = await self._changed(name, decide)
        log.info("schedule_paused", schedule=name)
        return after

    async def resume(self, name: str) -> Schedule:
        def decide(seen: Seen) -> ScheduleDecision | None:
            return (
                None
                if seen.schedule is None
                else self._decided(rules.resumed(seen.schedule, seen.now), seen.now)
            )

        after = await self._changed(name, decide)
        log.info("schedule_resumed", schedule=name)
        return after

    async def trigger(self, name: str) -> Accepted:
        """Insert a job now, whatever the schedule and its `overlap` say; later ticks count it as an earlier job."""
        schedule = await self.get(name)
        tick = self._store.now_us()
        # Made once: a commit in doubt is tried again, and finds this id.
        firing = self._firing("trigger", schedule, tick, tick)

        def decide(seen: Seen) -> ScheduleDecision | None:
            return None if seen.schedule is None else ScheduleDecision(seen.schedule, firings=[firing])

        changed = await self._change(name, decide)
        if changed is None:
            raise _missing(name)
        if not changed.accepted:
            raise StateConflict(changed.ticks[-1].reason or "the job was refused")
        log.info("schedule_triggered", schedule=name, job_id=changed.accepted[0].batch.template.id)
        return changed.accepted[0]

    async def backfill(self, name: str, first: int, last: int) -> Backfilled:
        """Insert jobs for the ticks of a span that have none. Raises `BadSchedule` for a span with too many."""
        schedule = await self.get(name)
        if last > self._store.now_us():
            raise BadSchedule("to", "must not be in the future; those ticks come by themselves")
        if last < first:
            raise BadSchedule("to", "must not be before from")
        ticks: list[int] = []
        for tick in schedule.recurrence.between(first, last):
            ticks.append(tick)
            if len(ticks) > rules.MAX_BACKFILL:
                raise BadSchedule(
                    "to", f"leaves more than {rules.MAX_BACKFILL:,} ticks; take a shorter span, several times"
                )
        now = self._store.now_us()
        firings = {tick: self._firing("backfill", schedule, tick, now) for tick in ticks}

        def decide(seen: Seen) -> ScheduleDecision | None:
            if seen.schedule is None:
                return None
            # What is not recorded yet may still fire by itself.
            until = seen.schedule.next_at
            wanted = [tick for tick in ticks if tick not in seen.fired and (until is None or tick < until)]
            return ScheduleDecision(seen.schedule, firings=[firings[tick] for tick in wanted])

        changed = await self._change(name, decide, ticks)
        if changed is None:
            raise _missing(name)
        made = [item.batch.template for item in changed.accepted if not item.repeated and item.unique is None]
        log.info("schedule_backfilled", schedule=name, jobs=len(made))
        return Backfilled(made, len(ticks) - len(made))

    async def next(self, name: str, count: int) -> list[int]:
        return rules.next_ticks(await self.get(name), self._store.now_us(), count)

    # ── what apps declare ──────────────────────────────────────────────────────────────────────────────────────────

    async def declare(
        self, app: str | None, version: int | None, declared: Sequence[DeclaredSchedule]
    ) -> None:
        """Apply the schedules that a worker declares in its hello, if they changed."""
        if app is None or self._why_not() is not None:
            return
        digest = hashlib.sha256(msgspec.json.encode(sorted(declared, key=lambda item: item.name))).digest()
        if self._apps.get(app) == (digest, version):
            return
        if not declared and await self._store.schedule_app(app) is None:
            self._apps[app] = (digest, version)
            return
        wanted = _readable(app, declared, self._jobs.webhook_hosts)
        change = AppChange(
            lambda seen: self._declared(app, wanted, seen),
            Declaration(app, digest, version, self._store.now_us()),
            tuple(wanted),
        )
        self._wake()
        changed = await self._store.declare_schedules(change)
        if changed is not None:
            self._tell(changed)
            self._nudge.set()
            self._log_declared(app, version, changed)
        self._apps[app] = (digest, version)

    def _declared(self, app: str, wanted: dict[str, Definition], seen: Seen) -> ScheduleDecision | None:
        definition = wanted.get(seen.name)
        if definition is None:
            return (
                None if seen.schedule is None else ScheduleDecision(rules.orphaned(seen.schedule, seen.now))
            )
        if seen.schedule is None:
            return ScheduleDecision(
                rules.declared(None, seen.name, definition, app, seen.now, seen.last_tick).schedule
            )
        return self._after_due(
            seen, lambda schedule: rules.declared(schedule, seen.name, definition, app, seen.now, None)
        )

    def _log_declared(self, app: str, version: int | None, changed: Sequence[ScheduleChanged]) -> None:
        log.info("schedules_declared", app=app, version=version, schedules=len(changed))
        for item in changed:
            after, before = item.after, item.before
            if after is None:
                continue
            if after.app != app:
                log.warning("schedule_of_another_app", schedule=after.name, app=app, owner=after.app)
            elif after.orphaned_at is not None and (before is None or before.orphaned_at is None):
                log.warning("schedule_orphaned", schedule=after.name, app=app)


def _readable(
    app: str, declared: Sequence[DeclaredSchedule], webhook_hosts: Sequence[str]
) -> dict[str, Definition]:
    """Return the valid schedules of an app; the others are logged for the operator."""
    found: dict[str, Definition] = {}
    for item in declared:
        try:
            rules.check_name(item.name)
            job = msgspec.json.decode(item.job, type=JobSpec)
            found[item.name] = definition_of(item, job, webhook_hosts=webhook_hosts)
        except (BadSchedule, msgspec.DecodeError) as error:
            log.warning("schedule_refused", schedule=item.name, app=app, detail=str(error))
    return found


def _missing(name: str) -> MissingError:
    return MissingError(f"there is no schedule {name}; GET /schedules lists them")
