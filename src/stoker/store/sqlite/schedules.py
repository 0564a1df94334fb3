"""Schedules in the embedded store: what a transaction does to them, and reading them. See `stoker.store.schedules`."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import apsw
from msgspec.structs import astuple

from stoker.domain.job_batch import batch_of
from stoker.domain.lifecycle import Status
from stoker.domain.schedule import (
    TICK_COLUMNS,
    Declaration,
    Schedule,
    ScheduleDecision,
    Tick,
    after_inserts,
    is_news,
    to_cancel,
)
from stoker.store import queries
from stoker.store.schedules import (
    COLUMN_LIST,
    AppChange,
    ScheduleChange,
    ScheduleChanged,
    SchedulesQuery,
    Seen,
    inserted,
    row_of,
    schedule_of,
)
from stoker.store.sqlite.bulk import SqliteBulk
from stoker.store.sqlite.read_errors import tell_unreadable
from stoker.store.submissions import Submission

_TICKS: Final = ", ".join(TICK_COLUMNS)
_MARKS: Final = {
    "put": ", ".join("?" * len(COLUMN_LIST.split(","))),
    "put_tick": ", ".join("?" * len(TICK_COLUMNS)),
    "put_tick_again": ", ".join("?" * len(TICK_COLUMNS)),
}
S: Final = {
    name: statement.format(columns=_TICKS if "tick" in name else COLUMN_LIST, marks=_MARKS.get(name, ""))
    for name, statement in queries.load("stoker.store.sqlite", "schedules.sql").items()
}


class SqliteSchedules(SqliteBulk):
    """Changes schedules, and inserts the jobs that they fire."""

    def change_schedules(self, calls: list[ScheduleChange]) -> list[list[ScheduleChanged]]:
        return [self._change_schedules(call) for call in calls]

    def _change_schedules(self, call: ScheduleChange) -> list[ScheduleChanged]:
        decided: list[tuple[Schedule | None, ScheduleDecision]] = []
        for name, schedule in self._wanted(call):
            seen = self._seen(name, schedule, call.ticks)
            decision = call.decide(seen)
            if decision is not None:
                decided.append((schedule, decision))
        return self._apply(decided)

    def declare_schedules(self, calls: list[AppChange]) -> list[list[ScheduleChanged] | None]:
        return [self._declare(call) for call in calls]

    def _declare(self, call: AppChange) -> list[ScheduleChanged] | None:
        declaration = call.declaration
        row = self._db.execute(S["get_app"], (declaration.app,)).fetchone()
        last = None if row is None else Declaration(*row)
        if not is_news(last, declaration.digest, declaration.version, empty=not call.names):
            return None
        known = [str(row[0]) for row in self._db.execute(S["of_app"], (declaration.app,))]
        names = tuple(dict.fromkeys([*call.names, *known]))
        changed = self._change_schedules(ScheduleChange(call.decide, names))
        self._db.execute(S["put_app"], astuple(declaration))
        return changed

    def _wanted(self, call: ScheduleChange) -> Iterator[tuple[str, Schedule | None]]:
        if call.names is None:
            for row in self._db.execute(S["due"], (self._now, call.limit)).fetchall():
                schedule = schedule_of(row)
                yield schedule.name, schedule
            return
        for name in call.names:
            found = self._db.execute(S["by_name"], (name,)).fetchall()
            yield name, schedule_of(found[0]) if found else None

    def _seen(self, name: str, schedule: Schedule | None, ticks: Sequence[int]) -> Seen:
        if schedule is None:
            last_tick: Any = self._db.execute(S["last_tick"], (name,)).fetchall()[0][0]
            return Seen(name, None, self._now, last_tick=last_tick)
        statuses = {id: status for id in schedule.open_jobs for status in self._status(id)}
        fired = [tick for tick in ticks if self._db.execute(S["fired"], (name, tick)).fetchone()]
        return Seen(name, schedule, self._now, statuses, fired=frozenset(fired))

    def _status(self, id: str) -> list[Status]:
        if id in self._made:
            return ["queued"]
        return [row[0] for row in self._db.execute(S["job_status"], (id,))]

    def _apply(self, decided: list[tuple[Schedule | None, ScheduleDecision]]) -> list[ScheduleChanged]:
        calls = [
            (Submission(batch_of(firing.job), on_conflict=firing.on_conflict),)
            for _, decision in decided
            for firing in decision.firings
        ]
        answers = iter(self.insert(list(calls)) if calls else [])
        changed: list[ScheduleChanged] = []
        ticks: list[Tick] = []
        rows: list[Schedule] = []
        for before, decision in decided:
            own = [next(answers) for _ in decision.firings]
            outcomes = [inserted(answer) for answer in own]
            after, recorded = after_inserts(decision, outcomes, self._now)
            ticks += recorded
            if after is not None:
                rows.append(after)
            elif before is not None:
                self._db.execute(S["delete"], (before.name,))
            cancelled = [job for id in to_cancel(decision, outcomes) if (job := self._cancel(id)) is not None]
            released = [id for id in decision.release if self._release(id)]
            accepted = [item for answer in own if not isinstance(answer, Exception) for item in answer]
            self._made |= {
                item.batch.template.id for item in accepted if not item.repeated and item.unique is None
            }
            changed.append(ScheduleChanged(before, after, recorded, accepted, cancelled, released))
        self._db.executemany(S["put"], map(row_of, rows))
        self._db.executemany(S["put_tick"], [astuple(tick) for tick in ticks if tick.kind == "tick"])
        self._db.executemany(S["put_tick_again"], [astuple(tick) for tick in ticks if tick.kind != "tick"])
        return changed

    def _release(self, id: str) -> bool:
        rows: list[Any] = self._db.execute(S["release"], (id, self._now)).fetchall()
        for row in rows:
            self._count_released(*row)
        return bool(rows)

    def purge_ticks(self, calls: list[tuple[int, int]]) -> list[int]:
        counts: list[int] = []
        for call in calls:
            self._db.execute(S["purge_ticks"], call)
            counts.append(self._db.changes())
        return counts


@tell_unreadable
class SqliteScheduleReads:
    """Reads of schedules, on a connection that only reads."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def next_at(self) -> int | None:
        row = self._db.execute(S["next_at"]).fetchone()
        return None if row is None else row[0]

    def one(self, name: str) -> Schedule | None:
        row = self._db.execute(S["by_name"], (name,)).fetchone()
        return None if row is None else schedule_of(row)

    def page(self, query: SchedulesQuery) -> list[Schedule]:
        values = (query.after, query.limit, int(query.orphaned), query.app)
        return [schedule_of(row) for row in self._db.execute(S["page"], values)]

    def ticks(self, name: str, limit: int, before: int | None) -> list[Tick]:
        values: tuple[Any, ...] = (name, 2**62 if before is None else before, limit)
        return [Tick(*row) for row in self._db.execute(S["latest_ticks"], values)]

    def app(self, name: str) -> Declaration | None:
        row = self._db.execute(S["get_app"], (name,)).fetchone()
        return None if row is None else Declaration(*row)


def all_schedules(db: apsw.Connection) -> tuple[list[Schedule], list[Declaration]]:
    """Everything that an export takes."""
    everything = SchedulesQuery(limit=2**31 - 1)
    return SqliteScheduleReads(db).page(everything), [Declaration(*row) for row in db.execute(S["all_apps"])]


def put_absent(db: apsw.Connection, schedules: Sequence[Schedule], apps: Sequence[Declaration]) -> int:
    """Store what is not there; return how many schedules these were."""
    reads = SqliteScheduleReads(db)
    fresh = list({one.name: one for one in schedules if reads.one(one.name) is None}.values())
    db.executemany(S["put"], map(row_of, fresh))
    db.executemany(S["put_app"], [astuple(app) for app in apps if reads.app(app.app) is None])
    return len(fresh)
