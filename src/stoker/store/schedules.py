"""What stores promise about schedules: the verbs, and what they take and return. See `stoker.domain.schedule` for the rules.

There is one way to change schedules: read the rows, locked; let a pure function decide; insert the jobs, record the
ticks and write the rows, all in one transaction. A coordinator that finds schedules due, one that is told to pause one
and one that hears what an app declares differ in the function alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec.structs import astuple

from stoker.domain.job import Job
from stoker.domain.lifecycle import Status
from stoker.domain.schedule import COLUMNS, Declaration, Inserted, Schedule, ScheduleDecision, Tick

if TYPE_CHECKING:
    from stoker.store.submissions import Accepted

COLUMN_LIST: Final = ", ".join(COLUMNS)
_OPEN: Final = COLUMNS.index("open_jobs")
_JOB: Final = COLUMNS.index("job")


class Seen(msgspec.Struct, frozen=True):
    """A schedule as it is in the transaction, and what there is to know besides. `schedule` is None where there is none."""

    name: str
    schedule: Schedule | None
    now: int
    statuses: Mapping[str, Status] = {}
    """Of those of its `open_jobs` that exist."""
    last_tick: int | None = None
    """Where there is no such schedule: the latest tick recorded of one that had its name."""
    fired: frozenset[int] = frozenset()
    """Of the ticks in `ScheduleChange.ticks`, those that have a job."""


Decide = Callable[[Seen], ScheduleDecision | None]
"""None changes nothing. It may be called again when a transaction is repeated."""


class ScheduleChange(msgspec.Struct, frozen=True):
    """A change of the schedules with these names; or, without names, of at most `limit` that are due."""

    decide: Decide
    names: tuple[str, ...] | None = None
    limit: int = 0
    ticks: tuple[int, ...] = ()


class AppChange(msgspec.Struct, frozen=True):
    """What an app declares. The function is asked about these names and about all other schedules of the app, if the
    declaration is news (`stoker.domain.schedule.is_news`)."""

    decide: Decide
    declaration: Declaration
    names: tuple[str, ...]


class ScheduleChanged(msgspec.Struct, frozen=True):
    """What was written of one schedule. `after` is None when it was deleted; jobs come back in the order of the firings."""

    before: Schedule | None
    after: Schedule | None
    ticks: Sequence[Tick] = ()
    accepted: Sequence[Accepted] = ()
    cancelled: Sequence[Job] = ()
    released: Sequence[str] = ()


class SchedulesQuery(msgspec.Struct, frozen=True):
    """A page of schedules, by name."""

    after: str = ""
    limit: int = 50
    orphaned: bool = False
    app: str | None = None


class ScheduleStore(Protocol):
    async def change_schedules(self, change: ScheduleChange) -> list[ScheduleChanged]:
        """Decide about schedules and write all that was decided, in one transaction. A schedule that is due is given to one
        caller, however many ask at once; jobs take the path of every other insert. Of a job that is refused (its unique key
        is taken) the tick is recorded as skipped, and the others are inserted."""
        ...

    async def declare_schedules(self, change: AppChange) -> list[ScheduleChanged] | None:
        """The same for what an app declares, and remember the declaration; None, and nothing is done, if it is no news."""
        ...

    async def next_schedule_at(self) -> int | None:
        """Return when the next schedule is due; None when none ever is."""
        ...

    async def schedule(self, name: str) -> Schedule | None: ...

    async def schedules(self, query: SchedulesQuery) -> list[Schedule]: ...

    async def schedule_ticks(self, name: str, limit: int, before: int | None = None) -> list[Tick]:
        """Return the latest records of a schedule, or those before a tick; the latest first."""
        ...

    async def schedule_app(self, app: str) -> Declaration | None:
        """Return what an app last declared."""
        ...

    async def purge_ticks(self, before: int, limit: int) -> int:
        """Delete up to `limit` records that were made before a time; how many there were."""
        ...


def row_of(schedule: Schedule) -> tuple[Any, ...]:
    fields = list(astuple(schedule))
    fields[_OPEN] = msgspec.json.encode(schedule.open_jobs).decode()
    return tuple(fields)


def schedule_of(row: Iterable[Any]) -> Schedule:
    fields = list(row)
    fields[_OPEN] = msgspec.json.decode(fields[_OPEN], type=tuple[str, ...])
    fields[_JOB] = bytes(fields[_JOB])
    return Schedule(*fields)


def inserted(answer: Sequence[Accepted] | Exception) -> Inserted:
    """Return what became of one job that was inserted by itself."""
    if isinstance(answer, Exception):
        return Inserted(None, refused=str(answer)[:500])
    return Inserted(answer[0].batch.template.id, answer[0].repeated or answer[0].unique is not None)
