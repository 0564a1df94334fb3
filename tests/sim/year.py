"""A year of schedules in virtual time: three coordinators over one store, with crashes, outages and clocks that jump.

    python -m tests.sim.year --seeds 20 --schedules 50     many years
    python -m tests.sim.year --mutants                     the planted bugs, and the seeds that it took to find each

The whole network of `tests.sim.world` would take days for this, so only what decides runs here: the real store, the real
`Schedules` of each coordinator and a clock that jumps from event to event. A coordinator that crashes does so inside its
transaction, which must leave no trace, or after it, before it could tell anybody.

What should have happened is worked out from the log of looks alone, by `expected`, which shares no code with the
product: its cron walks through local dates, and its rules are written down as a reader of the documentation would.
"""

import argparse
import asyncio
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import structlog
from msgspec.structs import replace

from stoker.domain import extras, recurrence
from stoker.domain import schedule as rules
from stoker.domain.job import Job, JobSpec
from stoker.domain.retry import Kind
from stoker.domain.schedule import Schedule, ScheduleDecision, Tick
from stoker.store.base import Store
from stoker.store.reads import JobQuery
from stoker.store.schedules import ScheduleChange, SchedulesQuery
from stoker.store.sqlite import schedules as sqlite_schedules
from stoker.store.sqlite.store import SqliteStore
from tests.conformance.steps import a_worker, claim, ends, report
from tests.conformance.stores import fast_folder
from tests.support.schedules import ScheduleDriver, a_definition

SECOND: Final = 1_000_000
DAY: Final = 86_400 * SECOND
CHANGES: Final = (
    datetime(2026, 3, 29, 0, tzinfo=UTC),
    datetime(2026, 4, 4, 15, tzinfo=UTC),
    datetime(2026, 10, 3, 15, tzinfo=UTC),
    datetime(2026, 10, 24, 23, tzinfo=UTC),
)
"""About when clocks change in Europe and in Australia."""
ZONES: Final = (
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Sydney", "Australia/Lord_Howe", "Pacific/Chatham",
    "America/Santiago", "Asia/Kolkata",
)  # fmt: skip
RARE: Final = (
    "30 2 * * *",
    "0 3 * * 0",
    "15 1,2,3 * * 0,6",
    "0 9 * * 1-5",
    "0 0 1 * *",
    "45 23 * * SUN",
    "@daily",
    "*/30 2 * * 0",
    "*/15 2,3 * * 0",
)
OFTEN: Final = ("0 */4 * * *", "30 */6 * * *")


class Span(NamedTuple):
    """The time that the schedules live through."""

    begin: int
    end: int

    @classmethod
    def of(cls, begin: datetime, end: datetime) -> "Span":
        return cls(_us(begin), _us(end))

    @property
    def faults(self) -> int:
        """How many faults fit in: forty a year, and some also in a short span."""
        return max(12, 40 * (self.end - self.begin) // (365 * DAY))


class Plan(NamedTuple):
    """A schedule of the year, and the same in the words of the oracle."""

    name: str
    cron: str | None
    every_sec: int | None
    zone: str
    overlap: str
    catch_up_sec: int
    catch_up_max: int
    jitter_sec: int


class Look(NamedTuple):
    """A coordinator advanced everything that was due, at this time of the store's clock."""

    at: int


class Crash(Exception):
    """A coordinator dies in the middle of its transaction."""


class Endless(Exception):
    """Something is due at the same moment however often the coordinators look."""


class YearClock:
    def __init__(self, now: int) -> None:
        self.now = now

    def now_us(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / SECOND


def _us(moment: datetime) -> int:
    return round(moment.timestamp()) * SECOND


YEAR: Final = Span.of(datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
SPRING: Final = Span.of(datetime(2026, 3, 22, tzinfo=UTC), datetime(2026, 4, 12, tzinfo=UTC))
"""Three weeks in which clocks are set forward in the north and back in the south."""


# ── the oracle ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _values(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for term in field.replace("SUN", "0").split(","):
        span, _, step = term.partition("/")
        first, _, last = span.partition("-")
        ends = (low, high) if span == "*" else (int(first), int(last or first))
        found |= set(range(ends[0], ends[1] + 1, int(step or 1)))
    return found


def cron_ticks(cron: str, zone: str, span: Span) -> list[int]:
    """Every tick of a span: by walking through local days, for jobs at fixed times; through passing minutes, for others."""
    minute, hour, day, month, weekday = {"@daily": "0 0 * * *"}.get(cron, cron).split()
    minutes, hours = sorted(_values(minute, 0, 59)), sorted(_values(hour, 0, 23))
    days, months, weekdays = _values(day, 1, 31), _values(month, 1, 12), _values(weekday, 0, 7)
    passing = minute.startswith("*") or hour.startswith("*")
    info = ZoneInfo(zone)
    found: set[int] = set()
    today = _date(span.begin - 2 * DAY)
    while today <= _date(span.end + 2 * DAY):
        of_week = {today.isoweekday(), today.isoweekday() % 7}
        if today.day in days and today.month in months and of_week & weekdays:
            for h in hours:
                for m in minutes:
                    wall = datetime(today.year, today.month, today.day, h, m, tzinfo=info)
                    found |= {_us(one) for one in _instants(wall, passing)}
        today += timedelta(days=1)
    return sorted(tick for tick in found if span.begin < tick <= span.end)


def _date(us: int) -> date:
    return datetime.fromtimestamp(us / SECOND, UTC).date()


def _instants(wall: datetime, passing: bool) -> Iterator[datetime]:
    """When a wall clock shows this: once, twice or never; a job at a fixed time runs once then, as soon as it can."""
    exists = wall.astimezone(UTC).astimezone(wall.tzinfo).replace(fold=0) == wall.replace(fold=0)
    if exists:
        yield wall.astimezone(UTC)
        if passing and wall.replace(fold=1).utcoffset() != wall.utcoffset():
            yield wall.replace(fold=1).astimezone(UTC)
    elif not passing:
        later = wall
        while later.astimezone(UTC).astimezone(wall.tzinfo).replace(fold=0) != later.replace(fold=0):
            later += timedelta(minutes=1)
        yield later.astimezone(UTC)


def all_ticks(plan: Plan, span: Span) -> list[int]:
    if plan.every_sec is not None:
        every = plan.every_sec * SECOND
        return list(range(span.begin + every, span.end + 1, every))
    return cron_ticks(plan.cron or "", plan.zone, span)


def judge(
    plan: Plan,
    begin: int,
    records: Sequence[Tick],
    looks: Sequence[int],
    jobs: dict[int, list[str]],
    due: Callable[[int], int],
) -> Iterator[str]:
    """Everything that is wrong with what is recorded of a schedule. It was made at `begin`; `jobs` are the
    ids of its jobs by tick, `looks` the times of the looks in their order, `due` the jitter of a tick added to it."""
    highest = max(looks)
    rows = sorted((row for row in records if row.kind == "tick"), key=lambda row: row.tick)
    expected = all_ticks(plan, Span(begin, highest))
    # Ticks that wait for their jitter, or for an earlier one that does, are not due yet.
    horizon = next((place for place, tick in enumerate(expected) if due(tick) > highest), len(expected))
    expected = expected[:horizon]
    found: dict[int, Tick] = {}
    place = 0
    for row in rows:
        covered = []
        while place < len(expected) and expected[place] <= row.last:
            if expected[place] < row.tick:
                yield f"{plan.name}: nothing is recorded of {_text(expected[place])}"
            else:
                covered.append(expected[place])
            place += 1
        if not covered or covered[0] != row.tick or covered[-1] != row.last:
            yield f"{plan.name}: {_text(row.tick)} to {_text(row.last)} is recorded, and these are no ticks, or twice"
        for tick in covered:
            found[tick] = row
    for tick in expected[place:]:
        yield f"{plan.name}: nothing is recorded of {_text(tick)}"
    yield from _judge_times(plan, expected, found, looks, due)
    for tick, row in found.items():
        made = jobs.get(tick, [])
        if made != ([row.job_id] if row.outcome == "fired" else []):
            yield f"{plan.name}: {_text(tick)} is {row.outcome} with job {row.job_id}, and there are {made}"
    for tick in jobs.keys() - found.keys():
        yield f"{plan.name}: there is a job for {_text(tick)}, which is no tick"


def _judge_times(
    plan: Plan, expected: list[int], found: dict[int, Tick], looks: Sequence[int], due: Callable[[int], int]
) -> Iterator[str]:
    """Each tick is recorded by the first look at which it is due, and so are all due before it; what that look does with
    them follows from the documentation."""
    window = (max(plan.catch_up_sec, 60) + plan.jitter_sec) * SECOND
    dues = [due(tick) for tick in expected]
    place = 0
    for at in looks:
        first = place
        while place < len(expected) and dues[place] <= at:
            place += 1
        if first == place:
            continue
        batch = expected[first:place]
        may_fire = [tick for tick in batch if tick + window >= at][-plan.catch_up_max :]
        for tick in batch:
            row = found.get(tick)
            if row is None:
                continue
            if row.at != at:
                yield f"{plan.name}: {_text(tick)} was recorded at {_text(row.at)}, and the first look was at {_text(at)}"
            elif (tick in may_fire) != (row.outcome != "missed"):
                yield f"{plan.name}: {_text(tick)} is {row.outcome} at {_text(at)}, against the rules"
        if plan.overlap == "allow":
            wrong = [tick for tick in may_fire if tick in found and found[tick].outcome != "fired"]
            if wrong:
                yield f"{plan.name}: {_text(wrong[0])} did not fire, and overlaps are allowed"


def _text(us: int) -> str:
    return datetime.fromtimestamp(us / SECOND, UTC).strftime("%m-%d %H:%M:%S")


# ── the year ───────────────────────────────────────────────────────────────────────────────────────────────────────


def plans(chance: Random, count: int, often: int) -> list[Plan]:
    made = []
    for number in range(count):
        frequent = number < often
        every = chance.choice((6 * 3600, 86_400, 7 * 86_400 + 61)) if chance.random() < 0.2 else None
        made.append(
            Plan(
                f"s{number:02}",
                None if every else chance.choice(OFTEN if frequent else RARE),
                every,
                chance.choice(ZONES),
                chance.choice(("allow", "allow", "skip", "queue_one", "cancel_previous")),
                chance.choice((0, 60, 3600, 2 * 86_400)),
                chance.choice((1, 1, 2, 5)),
                chance.choice((0, 0, 0, 90)),
            )
        )
    return made


class Year:
    def __init__(
        self, seed: int, store: Store, clock: YearClock, schedules: Sequence[Plan], span: Span
    ) -> None:
        self.span = span
        self.chance = Random(f"{seed}/year")
        self.store = store
        self.clock = clock
        self.plans = schedules
        self.numbers = iter(range(1, 10_000_000))
        self.drivers = [ScheduleDriver(store, new_id=self._id) for _ in range(3)]
        self.alive = [True, True, True]
        self.looks: list[int] = []
        self.events: list[tuple[int, str]] = []
        self.running: list[Job] = []

    def _id(self) -> str:
        return f"00000000-0000-7000-8000-{next(self.numbers):012x}"

    async def run(self) -> list[str]:
        for plan in self.plans:
            fields: dict[str, Any] = {
                "timezone": plan.zone,
                "overlap": plan.overlap,
                "catch_up_sec": plan.catch_up_sec,
                "catch_up_max": plan.catch_up_max,
                "jitter_sec": plan.jitter_sec,
                "job": JobSpec(type="echo"),
            }
            fields |= {"every_sec": plan.every_sec} if plan.every_sec else {"cron": plan.cron}
            await self.drivers[0].put(plan.name, a_definition(**fields))
        self._plan_faults()
        while self.clock.now < self.span.end:
            await self._step()
        await self._look()
        return [problem async for problem in self._problems()]

    def _plan_faults(self) -> None:
        """Outages of all, deaths of some, jumps of the clock; more of them around the changes of the clocks."""
        chance = self.chance
        begin, end = self.span
        changes = [_us(change) for change in CHANGES if begin < _us(change) < end]
        for _ in range(self.span.faults):
            at = begin + chance.randrange(end - begin - 10 * DAY)
            if chance.random() < 0.3:
                at = chance.choice(changes) + chance.randrange(-3 * 3600, 3 * 3600) * SECOND
            self.events.append((at, chance.choice(("outage", "outage", "death", "ahead", "back"))))
        self.events.sort()

    async def _step(self) -> None:
        due = await self.store.next_schedule_at()
        target = self.span.end if due is None else max(due, self.clock.now)
        if self.events and self.events[0][0] <= target:
            at, what = self.events.pop(0)
            self.clock.now = max(self.clock.now, at)
            await self._fault(what)
            return
        # A poll of a second, and some are slower.
        self.clock.now = min(self.span.end, target) + self.chance.randrange(SECOND)
        if self.clock.now < self.span.end:
            await self._look()
            if self.chance.random() < 0.5:
                await self._work()

    async def _fault(self, what: str) -> None:
        chance = self.chance
        if (
            what == "outage"
        ):  # nobody looks for a while, and the first to do so may crash over all that is due
            self.clock.now += chance.choice((30, 90, 4000, 9 * 3600, 5 * 86_400)) * SECOND
            if chance.random() < 0.5:
                await self._crash(self.drivers[self.alive.index(True)])
        elif what == "death":
            self.alive = [chance.random() < 0.5 for _ in self.drivers]
            self.alive[chance.randrange(3)] = True
        elif what == "ahead":
            self.clock.now += chance.choice((5, 100, 3 * 3600)) * SECOND
        else:
            self.clock.now -= chance.choice((5, 100, 3 * 3600)) * SECOND
        await self._look()

    async def _look(self) -> None:
        """Whoever is alive looks, at the same time; one may crash in the middle of it."""
        drivers = [driver for driver, alive in zip(self.drivers, self.alive, strict=True) if alive]
        if self.chance.random() < 0.05:
            await self._crash(self.chance.choice(drivers))
        if self.chance.random() < 0.05:  # its transaction is stored, and nobody hears of it
            await self.store.change_schedules(ScheduleChange(drivers[0]._decide_due, limit=3))
        # Each turn advances one schedule at least, and none twice.
        for _ in range(len(self.plans) + 1):
            if not any(await asyncio.gather(*(driver.fire() for driver in drivers))):
                break
            due = await self.store.next_schedule_at()
            if due is None or due > self.clock.now:
                break
        else:
            raise Endless(f"what is due at {_text(self.clock.now)} stays due")
        self.looks.append(self.clock.now)

    async def _crash(self, driver: ScheduleDriver) -> None:
        countdown = self.chance.randrange(3)

        def crashing(seen: Any) -> ScheduleDecision | None:
            nonlocal countdown
            decision = driver._decide_due(seen)
            countdown -= 1
            if countdown < 0:
                raise Crash
            return decision

        try:
            await self.store.change_schedules(ScheduleChange(crashing, limit=50))
        except Crash:
            return
        self.looks.append(self.clock.now)

    async def _work(self) -> None:
        """Workers end some of the jobs."""
        self.running += await claim(self.store, a_worker(threads=20))
        ending = [job for job in self.running if self.chance.random() < 0.8]
        self.running = [job for job in self.running if job not in ending]
        kinds: list[Kind] = ["completed", "completed", "invalid"]
        await ends(self.store, [report(job, self.chance.choice(kinds)) for job in ending])

    async def _problems(self) -> Any:
        jobs: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        before: int | None = None
        while True:
            page = await self.store.page(JobQuery(limit=1000, before_seq=before, summary=True))
            for job in page.jobs:
                used = extras.decode(job.extras)
                jobs[used.schedule or "?"][used.scheduled_for or 0].append(job.id)
            before = page.next_before_seq
            if before is None:
                break
        rows = {row.name: row for row in await self.store.schedules(SchedulesQuery(limit=1000))}
        for plan in self.plans:
            records = await self.store.schedule_ticks(plan.name, 1_000_000)
            due = partial(_due_at, rows[plan.name])
            for problem in judge(plan, self.span.begin, records, self.looks, jobs[plan.name], due):
                yield problem


def _due_at(row: Schedule, tick: int) -> int:
    """When a tick is due. The jitter is the one thing that the oracle takes from the product: which number it is does not
    matter, only that it is within its bound."""
    delay = rules.jitter_us(row, tick)
    assert 0 <= delay <= row.jitter_us
    return tick + delay


def run_year(seed: int, count: int = 50, often: int = 5, span: Span = YEAR) -> list[str]:
    """Live through a year, or a part of it; return what went wrong."""

    async def live() -> list[str]:
        with tempfile.TemporaryDirectory(prefix="stoker-year-", dir=fast_folder()) as folder:
            clock = YearClock(span.begin)
            store = await SqliteStore.open(Path(folder) / "stoker.db", clock, threads=False)
            try:
                schedules = plans(Random(f"{seed}/plans"), count, often)
                return await Year(seed, store, clock, schedules, span).run()
            except Crash:
                raise
            except Exception as error:  # noqa: BLE001 - a planted bug may end in an error, which is found too
                return [f"it ended with {type(error).__name__}: {error}"]
            finally:
                await store.close()

    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        return asyncio.run(live())
    finally:
        structlog.configure(**before)


# ── planted bugs ───────────────────────────────────────────────────────────────────────────────────────────────────


Undo = Callable[[], None]


def _patched(owner: Any, name: str, make: Callable[[Any], Any]) -> Undo:
    old = getattr(owner, name)
    setattr(owner, name, make(old))
    return lambda: setattr(owner, name, old)


def fires_however_late() -> Undo:
    return _patched(rules, "window_us", lambda old: lambda schedule: 400 * DAY)


def fires_the_oldest_first() -> Undo:
    def make(old: Any) -> Any:
        def judged(schedule: Schedule, due: list[int], now: int) -> tuple[list[int], list[Tick]]:
            fire, ticks = old(schedule, due, now)
            return (due[: len(fire)], ticks) if len(due) > len(fire) else (fire, ticks)

        return judged

    return _patched(rules, "_judged", make)


def missed_ticks_are_forgotten() -> Undo:
    """The schedule moves on past missed ticks without a record of them."""

    def make(old: Any) -> Any:
        def fired(*arguments: Any) -> Any:
            step = old(*arguments)
            return replace(step, ticks=[tick for tick in step.ticks if tick.outcome != "missed"])

        return fired

    return _patched(rules, "_fired", make)


def missed_ticks_stay_due() -> Undo:
    """Missed ticks are neither recorded nor passed, so the coordinators look at them for ever."""

    def make(old: Any) -> Any:
        def judged(schedule: Schedule, due: list[int], now: int) -> tuple[list[int], list[Tick]]:
            return old(schedule, due, now)[0], []

        return judged

    return _patched(rules, "_judged", make)


def steps_over_the_next_hour() -> Undo:
    """The next tick is looked for from an hour after the last record."""

    def make(old: Any) -> Any:
        def fired(
            schedule: Schedule, fire: list[int], ticks: list[Tick], now: int, release: str | None
        ) -> Any:
            step = old(schedule, fire, ticks, now, release)
            last = (step.schedule.last_tick or now) + 3600 * SECOND
            return replace(
                step,
                schedule=rules._due(replace(step.schedule, next_at=schedule.recurrence.after(last)), now),
            )

        return fired

    return _patched(rules, "_fired", make)


def advances_without_its_job() -> Undo:
    """The row and the records are written in one transaction, and every fiftieth job in another, which is lost."""
    calls = iter(range(10_000_000))

    def make(old: Any) -> Any:
        def inserting(self: Any, submissions: Any) -> Any:
            answers = old(self, submissions)
            if next(calls) % 50 == 49:
                self._fresh.clear()
            return answers

        return inserting

    from stoker.store.sqlite.transaction import SqliteTransaction

    return _patched(SqliteTransaction, "insert", make)


def commits_when_it_crashes() -> Undo:
    """A crash in the middle of a transaction leaves what was written before it."""

    def make(old: Any) -> Any:
        def changing(self: Any, call: Any) -> Any:
            decided: list[Any] = []
            try:
                for name, schedule in self._wanted(call):
                    decision = call.decide(self._seen(name, schedule, call.ticks))
                    if decision is not None:
                        decided.append((schedule, decision))
            except Crash:
                return self._apply([(before, replace(made, firings=())) for before, made in decided])
            return self._apply(decided)

        return changing

    return _patched(sqlite_schedules.SqliteSchedules, "_change_schedules", make)


def the_hour_that_comes_twice_ticks_twice() -> Undo:
    """Jobs at fixed times run again in the second of the two hours."""

    def make(old: Any) -> Any:
        def first_after(cron: str, moment: datetime, start: datetime) -> datetime:
            tick: datetime = old(cron, moment, start)
            local = moment.astimezone(start.tzinfo)
            again = local.replace(fold=1)
            if local.fold or again.utcoffset() == local.utcoffset():
                return tick
            before = local - timedelta(seconds=1)
            was_tick = old(cron, before.astimezone(UTC), before).astimezone(UTC) == moment
            return min(tick, again, key=lambda one: one.astimezone(UTC)) if was_tick else tick

        return first_after

    recurrence._cron_after.cache_clear()
    undo = _patched(recurrence, "_first_after", make)

    def undone() -> None:
        undo()
        recurrence._cron_after.cache_clear()

    return undone


def only_the_last_day_is_looked_at() -> Undo:
    """What is due follows from the clock, and not from what is recorded."""

    def make(old: Any) -> Any:
        def step(schedule: Schedule, now: int, statuses: Any) -> Any:
            first = schedule.recurrence.after(now - DAY)
            if schedule.next_at is not None and first is not None and schedule.next_at < first <= now:
                schedule = replace(schedule, next_at=first)
            return old(schedule, now, statuses)

        return step

    return _patched(rules, "step", make)


BUGS: Final[dict[str, Callable[[], Undo]]] = {
    bug.__name__: bug
    for bug in (
        fires_however_late,
        fires_the_oldest_first,
        missed_ticks_are_forgotten,
        missed_ticks_stay_due,
        steps_over_the_next_hour,
        advances_without_its_job,
        commits_when_it_crashes,
        the_hour_that_comes_twice_ticks_twice,
        only_the_last_day_is_looked_at,
    )
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    undo = BUGS[name]()
    try:
        yield
    finally:
        undo()


def seeds_to_find(name: str, limit: int = 20, count: int = 15, span: Span = YEAR) -> int | None:
    """How many years it takes to find a bug; None if it is not found."""
    with planted(name):
        return next((seed + 1 for seed in range(limit) if run_year(seed, count, often=2, span=span)), None)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--schedules", type=int, default=50)
    options.add_argument("--often", type=int, default=10)
    options.add_argument("--mutants", action="store_true")
    given = options.parse_args()
    if given.mutants:
        found = {name: seeds_to_find(name) for name in BUGS}
        for name, seeds in found.items():
            sys.stdout.write(f"{name:50} {'SURVIVED' if seeds is None else f'{seeds} seeds'}\n")
        return int(None in found.values())
    for seed in range(given.first, given.first + given.seeds):
        problems = run_year(seed, given.schedules, given.often)
        told = "ok" if not problems else f"{len(problems)} problems"
        sys.stdout.write("\n  ".join([f"seed {seed}: {told}", *problems[:10]]) + "\n")
        if problems:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
