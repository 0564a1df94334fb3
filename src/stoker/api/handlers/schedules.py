"""Schedules: jobs that are submitted again and again, by a cron expression or at an interval."""

from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any

import msgspec

from stoker.api.handlers.payload import check_payload
from stoker.api.problems import invalid_field
from stoker.api.schemas.times import parse_rfc3339, rfc3339, rfc3339_or_none
from stoker.api.schemas.views import Time, encode, render_job
from stoker.api.server.decode import friendly
from stoker.api.server.exchange import Request, Response
from stoker.coordinator.schedule_fields import definition_of
from stoker.domain.extras import InvalidOption
from stoker.domain.job import JobSpec
from stoker.domain.recurrence import SECOND, BadSchedule
from stoker.domain.schedule import (
    Definition,
    Outcome,
    Overlap,
    PauseReason,
    Schedule,
    ScheduleName,
    Tick,
    TickKind,
    check_name,
    created,
)
from stoker.store.schedules import SchedulesQuery
from stoker.wire.schedules import ScheduleFields

Count = Annotated[int, msgspec.Meta(ge=1, le=1000, description="How many.")]
PageSize = Annotated[int, msgspec.Meta(ge=1, le=1000, description="How many at most.")]


class ScheduleBody(ScheduleFields, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`PUT /schedules/{name}`. `job` is the body of `POST /jobs`, without `run_at`, `expires_at` and `idempotency_key`.
    Without
    `paused`, a schedule that is there stays paused or not."""

    job: JobSpec
    paused: bool | None = None


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule. `next_run_at` is null while it is paused, and when no tick comes any more."""

    name: str
    cron: str | None
    every_sec: float | None
    timezone: str
    job: dict[str, Any] | msgspec.Raw
    overlap: Overlap
    catch_up_sec: float
    catch_up_max: int
    jitter_sec: float
    start_at: Time | None
    end_at: Time | None
    pause_after_failures: int | None
    paused: bool
    paused_at: Time | None
    pause_reason: PauseReason | None
    failures: Annotated[
        int, msgspec.Meta(description="Jobs that failed one after the other, as of the last tick.")
    ]
    created_at: Time
    updated_at: Time
    next_run_at: Time | None
    last_run_at: Time | None
    last_job_id: str | None
    last_status: Annotated[
        str | None, msgspec.Meta(description="The status of the last job; null when it is not kept any more.")
    ]
    app: Annotated[str | None, msgspec.Meta(description="The app whose code declares it.")]
    orphaned: Annotated[bool, msgspec.Meta(description="Its app no longer declares it.")]


class SchedulesView(msgspec.Struct, frozen=True):
    """Schedules by name; `next_cursor` continues the list, null at its end."""

    schedules: list[ScheduleView]
    next_cursor: str | None


class TimesView(msgspec.Struct, frozen=True):
    times: list[Time]


class TickView(msgspec.Struct, frozen=True):
    """What became of a tick, or of all ticks from `tick` to `last`."""

    kind: TickKind
    tick: Time
    last: Time
    outcome: Outcome
    reason: str | None
    job_id: str | None
    recorded_at: Time


class TicksView(msgspec.Struct, frozen=True):
    """The latest first."""

    ticks: list[TickView]


class BackfillBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Ticks from `from` to `to`, both included."""

    from_: str = msgspec.field(name="from")
    to: str


class BackfillView(msgspec.Struct, frozen=True):
    """`jobs` are the ids of the jobs that were made, `already` counts the ticks that had one."""

    jobs: list[str]
    already: int


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /schedules`."""

    limit: PageSize = 50
    cursor: Annotated[str, msgspec.Meta(max_length=128, description="`next_cursor` of the page before.")] = ""
    orphaned: Annotated[bool, msgspec.Meta(description="Only those that their app no longer declares.")] = (
        False
    )
    app: Annotated[str, msgspec.Meta(max_length=128)] | None = None


class DeleteQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`DELETE /schedules/{name}`."""

    orphaned: Annotated[
        bool, msgspec.Meta(description="Only if its app no longer declares it; else 409.")
    ] = False


class NextQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /schedules/{name}/next`."""

    count: Count = 10


class TicksQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /schedules/{name}/ticks`."""

    limit: PageSize = 50
    before: Annotated[str, msgspec.Meta(description="Only ticks before this time.")] | None = None


class PreviewQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /schedules/preview`: the fields of a schedule that say when it ticks."""

    cron: Annotated[str, msgspec.Meta(max_length=1_000)] | None = None
    every_sec: float | None = None
    timezone: str = "UTC"
    start_at: str | None = None
    end_at: str | None = None
    count: Count = 10


# --- handlers ------------------------------------------------------------------------------------------


async def put(request: Request) -> Response:
    name = _name(request)
    body: ScheduleBody = request.body
    check_payload(bytes(body.job.payload), "job.payload", request.context.settings.max_payload_bytes)
    schedule, new = await request.context.schedules.put(
        name, _definition(body, request.context.settings.webhook_hosts)
    )
    return Response(201 if new else 200, encode(await _view(request, schedule)))


async def get(request: Request) -> Response:
    schedule = await request.context.schedules.get(_name(request))
    return Response(200, encode(await _view(request, schedule)))


async def list_schedules(request: Request) -> Response:
    query: ListQuery = request.query
    schedules = request.context.schedules
    wanted = SchedulesQuery(query.cursor, query.limit + 1, query.orphaned, query.app)
    found = await schedules.page(wanted)
    page = found[: query.limit]
    statuses = await schedules.last_statuses(page)
    more = page[-1].name if len(found) > query.limit else None
    return Response(200, encode(SchedulesView([schedule_view(one, statuses) for one in page], more)))


async def delete(request: Request) -> Response:
    query: DeleteQuery = request.query
    schedule = await request.context.schedules.delete(_name(request), orphaned=query.orphaned)
    return Response(200, encode(await _view(request, schedule)))


async def pause(request: Request) -> Response:
    schedule = await request.context.schedules.pause(_name(request))
    return Response(200, encode(await _view(request, schedule)))


async def resume(request: Request) -> Response:
    schedule = await request.context.schedules.resume(_name(request))
    return Response(200, encode(await _view(request, schedule)))


async def trigger(request: Request) -> Response:
    try:
        accepted = await request.context.schedules.trigger(_name(request))
    except InvalidOption as error:
        raise invalid_field(f"job.{error.field}", error.message) from None
    job = accepted.batch.template
    return Response(202, render_job(job), ((b"location", f"/jobs/{job.id}".encode()),))


async def backfill(request: Request) -> Response:
    body: BackfillBody = request.body
    first, last = _moment("from", body.from_), _moment("to", body.to)
    try:
        done = await request.context.schedules.backfill(_name(request), first, last)
    except BadSchedule as error:
        raise invalid_field(error.field, error.message) from None
    except InvalidOption as error:
        raise invalid_field(f"job.{error.field}", error.message) from None
    return Response(202, encode(BackfillView([job.id for job in done.jobs], done.already)))


async def next_times(request: Request) -> Response:
    query: NextQuery = request.query
    times = await request.context.schedules.next(_name(request), query.count)
    return Response(200, encode(TimesView([rfc3339(time) for time in times])))


async def ticks(request: Request) -> Response:
    query: TicksQuery = request.query
    before = None if query.before is None else _moment("before", query.before)
    found = await request.context.schedules.ticks(_name(request), query.limit, before)
    return Response(200, encode(TicksView([_tick_view(tick) for tick in found])))


async def preview(request: Request) -> Response:
    """Return the next times of a schedule that need not exist."""
    query: PreviewQuery = request.query
    fields = ScheduleFields(
        cron=query.cron,
        every_sec=query.every_sec,
        timezone=query.timezone,
        start_at=query.start_at,
        end_at=query.end_at,
    )
    now = request.context.clock.now_us()
    schedule = created("preview", _checked(fields, JobSpec()), now)
    times = islice(schedule.recurrence.ticks(now), query.count)
    return Response(200, encode(TimesView([rfc3339(time) for time in times])))


# --- helpers -------------------------------------------------------------------------------------------


def _name(request: Request) -> str:
    try:
        name = msgspec.convert(request.params["name"], ScheduleName)
        check_name(name)
    except msgspec.ValidationError as error:
        text = friendly(error, ScheduleName)
        if text == "has the wrong form":
            text = (
                "may contain only letters, digits and _ . : @ + -, and must begin with a letter, a digit or _"
            )
        raise invalid_field("name", text) from None
    except BadSchedule as error:
        raise invalid_field(error.field, error.message) from None
    return name


def _definition(body: ScheduleBody, webhook_hosts: Sequence[str]) -> Definition:
    return _checked(body, body.job, body.paused, webhook_hosts)


def _checked(
    fields: ScheduleFields, job: JobSpec, paused: bool | None = None, webhook_hosts: Sequence[str] = ()
) -> Definition:
    try:
        return definition_of(fields, job, paused, webhook_hosts=webhook_hosts)
    except BadSchedule as error:
        raise invalid_field(error.field, error.message) from None


def _moment(field: str, text: str) -> int:
    try:
        return parse_rfc3339(text)
    except ValueError as error:
        raise invalid_field(field, str(error)) from None


async def _view(request: Request, schedule: Schedule) -> ScheduleView:
    return schedule_view(schedule, await request.context.schedules.last_statuses([schedule]))


def schedule_view(schedule: Schedule, statuses: dict[str, str]) -> ScheduleView:
    running = schedule.next_at is not None and not schedule.paused
    return ScheduleView(
        name=schedule.name,
        cron=schedule.cron,
        every_sec=None if schedule.every_us is None else schedule.every_us / SECOND,
        timezone=schedule.timezone,
        job=msgspec.Raw(schedule.job),
        overlap=schedule.overlap,
        catch_up_sec=schedule.catch_up_sec,
        catch_up_max=schedule.catch_up_max,
        jitter_sec=schedule.jitter_us / SECOND,
        start_at=rfc3339_or_none(schedule.start_at),
        end_at=rfc3339_or_none(schedule.end_at),
        pause_after_failures=schedule.pause_after_failures,
        paused=schedule.paused,
        paused_at=rfc3339_or_none(schedule.paused_at),
        pause_reason=schedule.pause_reason,
        failures=schedule.failures,
        created_at=rfc3339(schedule.created_at),
        updated_at=rfc3339(schedule.updated_at),
        next_run_at=rfc3339_or_none(schedule.next_at if running else None),
        last_run_at=rfc3339_or_none(schedule.last_run_at),
        last_job_id=schedule.last_job_id,
        last_status=statuses.get(schedule.last_job_id or ""),
        app=schedule.app,
        orphaned=schedule.orphaned_at is not None,
    )


def _tick_view(tick: Tick) -> TickView:
    return TickView(
        tick.kind,
        rfc3339(tick.tick),
        rfc3339(tick.last),
        tick.outcome,
        tick.reason,
        tick.job_id,
        rfc3339(tick.at),
    )
