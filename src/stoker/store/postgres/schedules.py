"""Schedules in the shared store: what a transaction does to them, and reading them. See `stoker.store.schedules`.

Rows that are due are locked with SKIP LOCKED, so that no coordinator waits for another; a change of a schedule by name takes
a lock on the name first, in the order of names, because the schedule may not exist yet. Jobs that a schedule cancels or
releases come late in the order of locks, so they are not waited for (`stoker.store.postgres.state.JobsNeeded`).
"""

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import astuple

from stoker.domain.job_batch import batch_of
from stoker.domain.lifecycle import FINAL, Status
from stoker.domain.schedule import (
    COLUMNS,
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
from stoker.store.postgres.bulk import PostgresBulk
from stoker.store.postgres.database import Database, Link
from stoker.store.postgres.state import JobsNeeded
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
from stoker.store.submissions import Submission

S: Final = {
    name: statement.format(
        columns=", ".join(TICK_COLUMNS) if "tick" in name else COLUMN_LIST,
        marks=", ".join(f"${number}" for number, _ in enumerate(COLUMNS, 1)),
        excluded=", ".join(f"excluded.{column}" for column in COLUMNS),
    )
    for name, statement in queries.load("stoker.store.postgres", "schedules.sql").items()
}


class PostgresSchedules(PostgresBulk):
    """Changes schedules, and inserts the jobs that they fire."""

    async def _lock_names(self, declared: Sequence[AppChange], changed: Sequence[ScheduleChange]) -> None:
        """Lock the apps and the schedules that these calls name."""
        names = {name for call in declared for name in call.names}
        names.update(name for call in changed for name in call.names or ())
        for app in sorted({call.declaration.app for call in declared}):
            await self._link.execute(S["lock_app"], app)
            names.update(row[0] for row in await self._link.fetch(S["of_app"], app))
        if names:
            await self._link.fetch(S["lock_names"], sorted(names))
            await self._link.fetch(S["by_names"], sorted(names))

    async def change_schedules(self, calls: list[ScheduleChange]) -> list[list[ScheduleChanged]]:
        return [await self._change_schedules(call) for call in calls]

    async def _change_schedules(self, call: ScheduleChange) -> list[ScheduleChanged]:
        self._late = True
        wanted = await self._wanted(call)
        statuses = await self._statuses([id for _, row in wanted if row is not None for id in row.open_jobs])
        decided: list[tuple[Schedule | None, ScheduleDecision]] = []
        for name, schedule in wanted:
            decision = call.decide(await self._seen(name, schedule, statuses, call.ticks))
            if decision is not None:
                decided.append((schedule, decision))
        return await self._apply(decided)

    async def declare_schedules(self, calls: list[AppChange]) -> list[list[ScheduleChanged] | None]:
        return [await self._declare(call) for call in calls]

    async def _declare(self, call: AppChange) -> list[ScheduleChanged] | None:
        declaration = call.declaration
        await self._link.execute(S["lock_app"], declaration.app)
        row = await self._link.fetchrow(S["get_app"], declaration.app)
        last = None if row is None else Declaration(*row)
        if not is_news(last, declaration.digest, declaration.version, empty=not call.names):
            return None
        known = [row[0] for row in await self._link.fetch(S["of_app"], declaration.app)]
        names = tuple(dict.fromkeys([*call.names, *known]))
        changed = await self._change_schedules(ScheduleChange(call.decide, names))
        await self._link.execute(S["put_app"], *astuple(declaration))
        return changed

    async def _wanted(self, call: ScheduleChange) -> list[tuple[str, Schedule | None]]:
        if call.names is None:
            rows = await self._link.fetch(S["due"], call.limit, self._judge)
            return [(row["name"], schedule_of(row)) for row in rows]
        await self._link.fetch(S["lock_names"], list(call.names))
        found = {
            row["name"]: schedule_of(row) for row in await self._link.fetch(S["by_names"], list(call.names))
        }
        return [(name, found.get(name)) for name in call.names]

    async def _seen(
        self, name: str, schedule: Schedule | None, statuses: dict[str, Status], ticks: Sequence[int]
    ) -> Seen:
        if schedule is None:
            last_tick = await self._link.fetchval(S["last_tick"], name)
            return Seen(name, None, self._now, last_tick=last_tick)
        rows = await self._link.fetch(S["fired"], name, list(ticks)) if ticks else []
        return Seen(name, schedule, self._now, statuses, fired=frozenset(row[0] for row in rows))

    async def _statuses(self, ids: list[str]) -> dict[str, Status]:
        if not ids:
            return {}
        found: dict[str, Status] = dict.fromkeys(self._made, "queued")
        for id, status in await self._link.fetch(S["job_statuses"], ids):
            if found.get(id) not in FINAL:
                found[id] = status
        return found

    async def _apply(self, decided: list[tuple[Schedule | None, ScheduleDecision]]) -> list[ScheduleChanged]:
        calls: list[Sequence[Submission]] = [
            (Submission(batch_of(firing.job), on_conflict=firing.on_conflict),)
            for _, decision in decided
            for firing in decision.firings
        ]
        self._unique.require(submission for call in calls for submission in call)
        answers = iter(await self.insert(calls) if calls else [])
        changed: list[ScheduleChanged] = []
        for before, decision in decided:
            own = [next(answers) for _ in decision.firings]
            outcomes = [inserted(answer) for answer in own]
            after, ticks = after_inserts(decision, outcomes, self._now)
            if after is None and before is not None:
                await self._link.execute(S["delete"], before.name)
            unwanted = to_cancel(decision, outcomes)
            cancelled = (await self.cancel([unwanted]))[0] if unwanted else []
            released = await self._release(decision.release) if decision.release else []
            accepted = [item for answer in own if not isinstance(answer, Exception) for item in answer]
            self._made |= {
                item.batch.template.id for item in accepted if not item.repeated and item.unique is None
            }
            jobs = [job for job in cancelled if job is not None]
            changed.append(ScheduleChanged(before, after, ticks, accepted, jobs, released))
        rows = [row_of(item.after) for item in changed if item.after is not None]
        if rows:
            await self._link.executemany(S["put"], rows)
        await self._put_ticks([tick for item in changed for tick in item.ticks])
        return changed

    async def _put_ticks(self, ticks: list[Tick]) -> None:
        for query, by_hand in (("put_ticks", False), ("put_ticks_again", True)):
            rows = [astuple(tick) for tick in ticks if (tick.kind != "tick") is by_hand]
            if rows:
                await self._link.execute(S[query], *zip(*rows, strict=True))

    async def _release(self, ids: Sequence[str]) -> list[str]:
        rows = await self._link.fetch(S["release"], list(ids), self._now)
        rest = list(set(ids).difference(row[0] for row in rows))
        if rest and await self._link.fetch(S["still_blocked"], rest):
            raise JobsNeeded(rest)
        lanes = await self._memory.lanes_named(self._link, {row[1] for row in rows})
        for _, lane_id, status in rows:
            self._count_released(lane_id, lanes[lane_id].queue, lanes[lane_id].type, status)
        return [row[0] for row in rows]

    async def purge_ticks(self, calls: list[tuple[int, int]]) -> list[int]:
        answers = [await self._link.execute(S["purge_ticks"], *call) for call in calls]
        return [int(answer.rsplit(" ", 1)[-1]) for answer in answers]


class PostgresScheduleReads:
    """Reads of schedules."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def next_at(self) -> int | None:
        due: int | None = await self._database.fetchval(S["next_at"])
        return due

    async def one(self, name: str) -> Schedule | None:
        rows = await self._database.fetch(S["by_name"], name)
        return schedule_of(rows[0]) if rows else None

    async def page(self, query: SchedulesQuery) -> list[Schedule]:
        rows = await self._database.fetch(S["page"], query.after, query.limit, query.orphaned, query.app)
        return [schedule_of(row) for row in rows]

    async def ticks(self, name: str, limit: int, before: int | None) -> list[Tick]:
        values: tuple[Any, ...] = (name, 2**62 if before is None else before, limit)
        return [Tick(*row) for row in await self._database.fetch(S["latest_ticks"], *values)]

    async def app(self, name: str) -> Declaration | None:
        rows = await self._database.fetch(S["get_app"], name)
        return Declaration(*rows[0]) if rows else None


async def all_schedules(link: Link) -> tuple[list[Schedule], list[Declaration]]:
    """Everything that an export takes."""
    rows = await link.fetch(S["page"], "", 2**31 - 1, False, None)
    apps = [Declaration(*row) for row in await link.fetch(S["all_apps"])]
    return [schedule_of(row) for row in rows], apps


async def put_absent(link: Link, schedules: Sequence[Schedule], apps: Sequence[Declaration]) -> int:
    """Store what is not there; return how many schedules these were. Call inside a transaction."""
    names = [one.name for one in schedules]
    await link.fetch(S["lock_names"], names)
    there = {row["name"] for row in await link.fetch(S["by_names"], names)}
    fresh = list({one.name: one for one in schedules if one.name not in there}.values())
    await link.executemany(S["put"], [row_of(one) for one in fresh])
    for app in apps:
        if not await link.fetch(S["get_app"], app.app):
            await link.execute(S["put_app"], *astuple(app))
    return len(fresh)
