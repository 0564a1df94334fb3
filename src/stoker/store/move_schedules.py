"""The lines of schedules and apps in an export (`stoker.store.move_format`). The history of ticks does not move; `last_tick`
does, so no tick fires twice."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec.structs import asdict

from stoker.domain.job import Ident, JobSpec
from stoker.domain.recurrence import MAX_EVERY_SEC, SECOND, BadSchedule
from stoker.domain.schedule import (
    MAX_CATCH_UP,
    MAX_CATCH_UP_SEC,
    MAX_JITTER_SEC,
    MAX_OPEN,
    Declaration,
    Definition,
    Overlap,
    PauseReason,
    Schedule,
    ScheduleName,
    check,
)

Big = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Id = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")]


class Record(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="record"):
    """The base of the lines of an export; `record` names the kind of each."""


class ScheduleLine(Record, frozen=True, kw_only=True, tag="schedule"):
    name: ScheduleName
    cron: str | None = None
    every_us: Annotated[int, msgspec.Meta(ge=SECOND, le=MAX_EVERY_SEC * SECOND)] | None = None
    timezone: str
    job: msgspec.Raw
    overlap: Overlap
    catch_up_sec: Annotated[float, msgspec.Meta(ge=0, le=MAX_CATCH_UP_SEC)]
    catch_up_max: Annotated[int, msgspec.Meta(ge=1, le=MAX_CATCH_UP)]
    jitter_us: Annotated[int, msgspec.Meta(ge=0, le=MAX_JITTER_SEC * SECOND)]
    start_at: Big | None = None
    end_at: Big | None = None
    pause_after_failures: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    created_at: Big
    updated_at: Big
    paused_at: Big | None = None
    pause_reason: PauseReason | None = None
    next_at: Big | None = None
    due_at: Big | None = None
    last_tick: Big | None = None
    last_run_at: Big | None = None
    last_job_id: Id | None = None
    failures: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0
    open_jobs: Annotated[tuple[Id, ...], msgspec.Meta(max_length=MAX_OPEN)] = ()
    held_job: Id | None = None
    app: Ident | None = None
    orphaned_at: Big | None = None


class AppLine(Record, frozen=True, kw_only=True, tag="app"):
    """What an app last declared."""

    app: Ident
    digest: bytes
    version: Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)] | None
    at: Big


_DEFINED: Final = tuple(field for field in Definition.__struct_fields__ if field != "paused")


def schedule_line(schedule: Schedule) -> ScheduleLine:
    fields: dict[str, Any] = asdict(schedule)
    return ScheduleLine(**{**fields, "job": msgspec.Raw(schedule.job)})


def app_line(declaration: Declaration) -> AppLine:
    return AppLine(**asdict(declaration))


def moving_schedule(line: ScheduleLine) -> Schedule:
    """Return the schedule of a line. Raises ValueError if it is invalid."""
    job = bytes(line.job)
    try:
        msgspec.json.decode(job, type=JobSpec)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"its job cannot be submitted ({error})") from None
    schedule = Schedule(**{**asdict(line), "job": job})
    try:
        check(Definition(**{field: getattr(schedule, field) for field in _DEFINED}))
    except BadSchedule as error:
        raise ValueError(str(error)) from None
    return schedule


def moving_app(line: AppLine) -> Declaration:
    return Declaration(line.app, line.digest, line.version, line.at)


def in_queues(schedules: Sequence[Schedule], queues: frozenset[str] | None) -> list[Schedule]:
    """Return the schedules whose jobs name one of these queues (`default` if they name none); all for None."""
    if queues is None:
        return list(schedules)
    return [one for one in schedules if msgspec.json.decode(one.job).get("queue", "default") in queues]
