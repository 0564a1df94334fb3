"""Schedules: declared above a task (`@app.cron`, `@app.every`), and made at run time (`app.schedules`).

Declared schedules are kept by the app, and a worker of the app sends them to the coordinator when it connects. Those made at
run time are ordinary requests. Worker children import this module, so it must stay light.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeVar

import msgspec

from stoker.client.arguments import encode_arguments
from stoker.client.errors import ArgumentError, TaskError
from stoker.client.job import JobHandle
from stoker.client.requests import ApiRequest, Conversation, JobInfo, get, post
from stoker.client.task import Task
from stoker.domain import json_text
from stoker.domain.job import Ident
from stoker.domain.json_values import to_json

if TYPE_CHECKING:
    from stoker.client.app import Stoker

T = TypeVar("T", bound=Callable[..., Any])
_PENDING: Final = "__stoker_schedules__"
_LEFT_OUT: Final = ("run_at", "idempotency_key", "id")
"""Options that a job of a schedule cannot have."""
PAGE: Final = 200

Overlap = Literal["allow", "skip", "queue_one", "cancel_previous"]


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule besides its times; the names are those of `PUT /schedules/{name}`."""

    args: Sequence[Any]
    """The positional arguments of the call."""
    kwargs: Mapping[str, Any]
    """The named arguments of the call."""
    timezone: str
    """The time zone of a cron expression, such as `Europe/Berlin`; UTC by default."""
    overlap: Overlap
    """What happens at a tick while the job of an earlier one has not ended; `allow` by default."""
    catch_up_sec: float
    """How late a tick may still fire, after an outage; 60 by default."""
    catch_up_max: int
    """How many of several due ticks fire after an outage, the latest ones; 1 by default."""
    jitter_sec: float
    """Each tick is delayed by up to this, so that many schedules do not start at once; 0 by default."""
    start_at: datetime | str | None
    """No tick fires before this time."""
    end_at: datetime | str | None
    """No tick fires after this time."""
    pause_after_failures: int | None
    """Pause the schedule after this many failed jobs in a row."""


_OPTIONS: Final = tuple(ScheduleOptions.__annotations__)
_CALL: Final = ("args", "kwargs")


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as the API described it at one moment."""

    name: str
    cron: str | None = None
    every_sec: float | None = None
    timezone: str = "UTC"
    job: dict[str, Any] = {}
    overlap: str = "allow"
    catch_up_sec: float = 60
    catch_up_max: int = 1
    jitter_sec: float = 0
    start_at: datetime | None = None
    end_at: datetime | None = None
    pause_after_failures: int | None = None
    paused: bool = False
    paused_at: datetime | None = None
    pause_reason: str | None = None
    failures: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None
    next_run_at: datetime | None = None
    last_run_at: datetime | None = None
    last_job_id: str | None = None
    last_status: str | None = None
    app: str | None = None
    orphaned: bool = False


class BackfillInfo(msgspec.Struct, frozen=True):
    """The result of a backfill."""

    jobs: list[str]
    """The ids of the jobs that were made."""
    already: int = 0
    """The number of ticks in the span that had a job before."""


class _Page(msgspec.Struct, frozen=True):
    schedules: list[ScheduleInfo]
    next_cursor: str | None = None


class _Times(msgspec.Struct, frozen=True):
    times: list[datetime]


ScheduleInfos = list[ScheduleInfo]
Moments = list[datetime]


# --- declaring -------------------------------------------------------------------------------------------


def checked_app_name(name: str | None) -> str | None:
    """Return the name of an app. Raises `ArgumentError` if it is invalid."""
    if name is None:
        return None
    try:
        return msgspec.convert(name, Ident)
    except msgspec.ValidationError:
        raise ArgumentError(
            f"name={name!r} cannot be the name of an app: use up to 128 letters, digits and _ . : / @ + -",
            "name",
        ) from None


def decorator(
    app: Stoker, when: Mapping[str, Any], name: str | None, options: ScheduleOptions
) -> Callable[[T], T]:
    """Return the decorator of `@app.cron(...)` and `@app.every(...)`, for a task or for a function that becomes one by
    `@app.task` above it."""
    where = "@app.cron" if "cron" in when else "@app.every"
    fields = schedule_fields(where, {**when, **options}, TaskError)

    def decorate(target: T) -> T:
        if isinstance(target, Task):
            _declare(app, target, name, fields, options)
        elif callable(target):
            waiting = getattr(target, _PENDING, [])
            setattr(target, _PENDING, [*waiting, (app, name, fields, options)])
        else:
            raise TaskError(f"{where}(...) stands above a task or a function, not above {target!r}")
        return target

    return decorate


def declare_pending(app: Stoker, task: Task[..., Any]) -> None:
    """Declare the schedules of decorators below `@app.task`, the lowest first."""
    for owner, name, fields, options in getattr(task.function, _PENDING, []):
        if owner is app:
            _declare(app, task, name, fields, options)


def _declare(
    app: Stoker, task: Task[..., Any], name: str | None, fields: Mapping[str, Any], options: ScheduleOptions
) -> None:
    chosen = _checked_name(name or task.name, TaskError)
    job = job_of(task, options.get("args", ()), options.get("kwargs", {}))
    app.declare(chosen, {**fields, "name": chosen, "job": msgspec.json.encode(job)})


def schedule_fields(
    where: str, given: Mapping[str, Any], error: type[TaskError] | type[ArgumentError]
) -> dict[str, Any]:
    """Return the fields of a schedule as they are sent, checked as far as possible without the server. Raises `error`."""
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if name not in (*_OPTIONS, "cron", "every_sec", "paused"):
            raise _wrong(error, f"{where} has no option {name!r}; there are {', '.join(_OPTIONS)}", name)
        if name in _CALL or value is None:
            continue
        if isinstance(value, float) and not math.isfinite(value):
            raise _wrong(error, f"{where}: {name}={value} is no number", name)
        fields[name] = value.isoformat() if isinstance(value, datetime) else value
        if isinstance(value, datetime) and value.tzinfo is None:
            raise _wrong(error, f"{where}: {name}={value.isoformat()} has no time zone; say which", name)
    if ("cron" in fields) == ("every_sec" in fields):
        raise _wrong(error, f"{where} needs either cron or every_sec", "cron")
    _check_when(where, fields, error)
    return fields


def _check_when(where: str, fields: Mapping[str, Any], error: type[TaskError] | type[ArgumentError]) -> None:
    """Raise for a wrong time or overlap where it is written, and not when a worker connects."""
    from stoker.domain.recurrence import BadSchedule, check_cron, check_timezone, every_us

    try:
        check_timezone(str(fields.get("timezone", "UTC")))
        if "cron" in fields:
            check_cron(str(fields["cron"]), str(fields.get("timezone", "UTC")))
        else:
            every_us(float(fields["every_sec"]))
    except BadSchedule as bad:
        raise _wrong(error, f"{where}: {bad}", bad.field) from None
    except (TypeError, ValueError):
        raise _wrong(
            error, f"{where}: every_sec={fields['every_sec']!r} is no number of seconds", "every_sec"
        ) from None
    if fields.get("overlap", "allow") not in ("allow", "skip", "queue_one", "cancel_previous"):
        text = (
            f"{where}: overlap must be allow, skip, queue_one or cancel_previous, not {fields['overlap']!r}"
        )
        raise _wrong(error, text, "overlap")


def _checked_name(name: str, error: type[TaskError] | type[ArgumentError]) -> str:
    from stoker.domain.schedule import RESERVED_NAMES, ScheduleName

    try:
        if name not in RESERVED_NAMES:
            return msgspec.convert(name, ScheduleName)
    except msgspec.ValidationError:
        pass
    text = (
        f"{name!r} cannot be the name of a schedule: use up to 128 letters, digits and _ . : @ + -, beginning with a "
        "letter, a digit or _; name='...' gives another"
    )
    raise _wrong(error, text, "name")


def _wrong(error: type[TaskError] | type[ArgumentError], text: str, field: str) -> Exception:
    return ArgumentError(text, field) if error is ArgumentError else TaskError(text)


def job_of(task: Task[..., Any] | str, args: Sequence[Any], kwargs: Any) -> dict[str, Any]:
    """Return the job of a schedule, as it is submitted. For a type that is given by name, `kwargs` is the payload."""
    if isinstance(task, str):
        return {"type": task, "payload": msgspec.Raw(_payload(kwargs))}
    payload = encode_arguments(task.arguments, tuple(args), dict(kwargs))
    given: dict[str, Any] = msgspec.to_builtins(task.defaults)
    for name in _LEFT_OUT:
        if given.get(name) is not None:
            raise ArgumentError(f"a job of a schedule cannot have {name}; leave it out", name)
    return {"type": task.name, "payload": msgspec.Raw(payload), **given}


def _payload(value: Any) -> bytes:
    try:
        return json_text.encode(value, to_json)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ArgumentError(f"the payload cannot be sent as JSON: {error}", "payload") from None


# --- at run time -----------------------------------------------------------------------------------------


def schedule_path(name: str, action: str = "") -> str:
    """Return the path of a schedule, or of an action on it."""
    from urllib.parse import quote  # slow to import, and not needed to define tasks

    return f"/schedules/{quote(name, safe='')}{f'/{action}' if action else ''}"


def put_schedule(name: str, body: Mapping[str, Any], answer: Any = ScheduleInfo) -> ApiRequest:
    """Return the request that makes or changes a schedule."""
    return ApiRequest(
        method="PUT",
        path=schedule_path(name),
        body=msgspec.json.encode(body),
        answer=answer,
        repeatable=True,
    )


def delete_schedule(name: str, *, orphaned: bool = False, answer: Any = ScheduleInfo) -> ApiRequest:
    params = {"orphaned": "true"} if orphaned else {}
    return ApiRequest(method="DELETE", path=schedule_path(name), params=params, answer=answer)


class ScheduleClient:
    """The client for schedules: `app.schedules`."""

    def __init__(self, app: Stoker) -> None:
        self._app = app

    def set(
        self,
        name: str,
        task: Task[..., Any] | str,
        *,
        cron: str | None = None,
        every_sec: float | None = None,
        payload: Any = None,
        paused: bool | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        timezone: str = "UTC",
        overlap: Overlap = "allow",
        catch_up_sec: float = 60,
        catch_up_max: int = 1,
        jitter_sec: float = 0,
        start_at: datetime | str | None = None,
        end_at: datetime | str | None = None,
        pause_after_failures: int | None = None,
    ) -> ScheduleInfo:
        """Make or change a schedule and return it: `app.schedules.set("digest-42", digest, args=(42,), cron="@daily")`.

        `task` is a task, perhaps with other options (`digest.options(priority=0)`), or the name of a type with its
        `payload`.
        """
        call = dict(locals())
        del call["self"]
        info: ScheduleInfo = self._app.transport.send(_set(**call))
        return info

    async def set_async(self, name: str, task: Task[..., Any] | str, **options: Any) -> ScheduleInfo:
        """Make or change a schedule, like `set` and with its options, without blocking the event loop."""
        info: ScheduleInfo = await self._app.transport.send_async(_set(name, task, **options))
        return info

    def get(self, name: str) -> ScheduleInfo:
        """Return a schedule by its name. Raises `NotFound`."""
        info: ScheduleInfo = self._app.transport.send(get(schedule_path(name), ScheduleInfo))
        return info

    async def get_async(self, name: str) -> ScheduleInfo:
        """Return a schedule, like `get`, without blocking the event loop."""
        info: ScheduleInfo = await self._app.transport.send_async(get(schedule_path(name), ScheduleInfo))
        return info

    def list(self, *, orphaned: bool = False) -> ScheduleInfos:
        """Return all schedules, sorted by name; with `orphaned`, only those that their app no longer declares."""
        return self._app.transport.run(_list(orphaned))

    async def list_async(self, *, orphaned: bool = False) -> ScheduleInfos:
        """Return all schedules, like `list`, without blocking the event loop."""
        return await self._app.transport.run_async(_list(orphaned))

    def delete(self, name: str) -> ScheduleInfo:
        """Delete a schedule and return it as it was. Its jobs stay. Raises `NotFound`."""
        info: ScheduleInfo = self._app.transport.send(delete_schedule(name))
        return info

    async def delete_async(self, name: str) -> ScheduleInfo:
        """Delete a schedule, like `delete`, without blocking the event loop."""
        info: ScheduleInfo = await self._app.transport.send_async(delete_schedule(name))
        return info

    def pause(self, name: str) -> ScheduleInfo:
        """Pause a schedule and return it: no tick fires until it is resumed."""
        info: ScheduleInfo = self._app.transport.send(_act(name, "pause"))
        return info

    async def pause_async(self, name: str) -> ScheduleInfo:
        """Pause a schedule, like `pause`, without blocking the event loop."""
        info: ScheduleInfo = await self._app.transport.send_async(_act(name, "pause"))
        return info

    def resume(self, name: str) -> ScheduleInfo:
        """Resume a schedule and return it. Ticks that passed meanwhile do not fire."""
        info: ScheduleInfo = self._app.transport.send(_act(name, "resume"))
        return info

    async def resume_async(self, name: str) -> ScheduleInfo:
        """Resume a schedule, like `resume`, without blocking the event loop."""
        info: ScheduleInfo = await self._app.transport.send_async(_act(name, "resume"))
        return info

    def trigger(self, name: str) -> JobHandle[Any]:
        """Run the job of a schedule now, even while it is paused, and return its handle."""
        return self._handle(self._app.transport.send(_trigger(name)))

    async def trigger_async(self, name: str) -> JobHandle[Any]:
        """Run the job of a schedule now, like `trigger`, without blocking the event loop."""
        return self._handle(await self._app.transport.send_async(_trigger(name)))

    def _handle(self, info: JobInfo) -> JobHandle[Any]:
        app = self._app
        return JobHandle(app.transport, info.id, info, typed=app._typed, type_name=info.type)

    def next(self, name: str, count: int = 10) -> Moments:
        """Return the times of the next `count` ticks."""
        answer: _Times = self._app.transport.send(_next(name, count))
        return answer.times

    async def next_async(self, name: str, count: int = 10) -> Moments:
        """Return the times of the next ticks, like `next`, without blocking the event loop."""
        answer: _Times = await self._app.transport.send_async(_next(name, count))
        return answer.times

    def backfill(self, name: str, start: datetime | str, end: datetime | str) -> BackfillInfo:
        """Make a job for each tick from `start` to `end` that has none, and return their ids."""
        info: BackfillInfo = self._app.transport.send(_backfill(name, start, end))
        return info

    async def backfill_async(self, name: str, start: datetime | str, end: datetime | str) -> BackfillInfo:
        """Make jobs for ticks of the past, like `backfill`, without blocking the event loop."""
        info: BackfillInfo = await self._app.transport.send_async(_backfill(name, start, end))
        return info


def _set(
    name: str,
    task: Task[..., Any] | str,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    payload: Any = None,
    **fields: Any,
) -> ApiRequest:
    where = "app.schedules.set"
    if not isinstance(task, Task | str):
        raise ArgumentError(f"{where} takes a task, or the name of a type, not {task!r}", "task")
    if isinstance(task, str) and (args or kwargs):
        raise ArgumentError(f"{where}: args and kwargs are those of a task; a type has a payload", "args")
    body = schedule_fields(where, fields, ArgumentError)
    job = job_of(task, args, payload if isinstance(task, str) else kwargs or {})
    return put_schedule(_checked_name(name, ArgumentError), {**body, "job": job})


def _list(orphaned: bool) -> Conversation[list[ScheduleInfo]]:
    """Fetch all pages."""
    found: list[ScheduleInfo] = []
    cursor: str | None = None
    while True:
        page: _Page = yield get(
            "/schedules", _Page, limit=PAGE, cursor=cursor, orphaned="true" if orphaned else None
        )
        found += page.schedules
        cursor = page.next_cursor
        if cursor is None:
            return found


def _act(name: str, action: str) -> ApiRequest:
    return post(schedule_path(name, action), answer=ScheduleInfo, repeatable=True)


def _trigger(name: str) -> ApiRequest:
    return post(schedule_path(name, "trigger"), answer=JobInfo)


def _next(name: str, count: int) -> ApiRequest:
    return get(schedule_path(name, "next"), _Times, count=count)


def _backfill(name: str, start: datetime | str, end: datetime | str) -> ApiRequest:
    span = {"from": _text(start), "to": _text(end)}
    return post(schedule_path(name, "backfill"), span, answer=BackfillInfo, repeatable=True)


def _text(moment: datetime | str) -> str:
    return moment.isoformat() if isinstance(moment, datetime) else moment
