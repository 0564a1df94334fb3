"""From what a person or an app says of a schedule to what is stored, and from its job to the jobs of its ticks."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import msgspec
from msgspec.structs import replace

from stoker.domain import extras
from stoker.domain.job import NO_DEFAULTS, Job, JobDefaults, JobSpec, PriorityOrder, new_job
from stoker.domain.recurrence import SECOND, BadSchedule, every_us
from stoker.domain.schedule import MAX_PAYLOAD_BYTES, Definition, Schedule, check
from stoker.domain.webhooks import WEBHOOK_QUEUE, notify_url
from stoker.webhook_hosts import NotListed, check_url
from stoker.wire.schedules import ScheduleFields

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_FIXED: Final = {
    "run_at": "a schedule says when its jobs run; leave it out",
    "expires_at": "would be the same time for every job; give expires_in_sec",
    "idempotency_key": "would make every tick the same job; leave it out",
    "id": "would make every tick the same job; leave it out",
}


def definition_of(
    fields: ScheduleFields, job: JobSpec, paused: bool | None = None, *, webhook_hosts: Sequence[str] = ()
) -> Definition:
    """Return what is stored of a schedule. Raise `BadSchedule`, which names the field, for what cannot be."""
    check_job(job, webhook_hosts)
    definition = Definition(
        cron=fields.cron,
        every_us=None if fields.every_sec is None else every_us(fields.every_sec),
        timezone=fields.timezone,
        job=msgspec.json.encode(job),
        overlap=fields.overlap,
        catch_up_sec=fields.catch_up_sec,
        catch_up_max=fields.catch_up_max,
        jitter_us=round(fields.jitter_sec * SECOND),
        start_at=_moment("start_at", fields.start_at),
        end_at=_moment("end_at", fields.end_at),
        pause_after_failures=fields.pause_after_failures,
        paused=paused,
    )
    check(definition)
    return definition


def check_job(job: JobSpec, webhook_hosts: Sequence[str]) -> None:
    """Raise `BadSchedule` for a job that cannot be submitted again and again."""
    for field, why in _FIXED.items():
        if getattr(job, field, None) is not None:
            raise BadSchedule(f"job.{field}", why)
    if len(bytes(job.payload)) > MAX_PAYLOAD_BYTES:
        raise BadSchedule(
            "job.payload",
            f"is larger than {MAX_PAYLOAD_BYTES:,} bytes; every job gets a copy, so keep large data elsewhere",
        )
    try:
        text = extras.extras_of(job, NO_DEFAULTS, 0)
        _check_webhook(job, NO_DEFAULTS, text, webhook_hosts)
    except extras.InvalidOption as error:
        raise BadSchedule(f"job.{error.field}", error.message) from None


def _check_webhook(spec: JobSpec, defaults: JobDefaults, text: str | None, hosts: Sequence[str]) -> None:
    """Raise `InvalidOption` for a `notify_url` whose host is not listed, and for the queue of deliveries."""
    if (defaults.queue if spec.queue is msgspec.UNSET else spec.queue) == WEBHOOK_QUEUE:
        raise extras.InvalidOption("queue", f"cannot be {WEBHOOK_QUEUE}, which holds webhooks that are sent")
    url = notify_url(text)
    if url is not None:
        try:
            check_url(url, hosts)
        except NotListed as error:
            raise extras.InvalidOption("notify_url", str(error)) from None


def _moment(field: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        moment = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        raise BadSchedule(field, "must be a time as in RFC 3339, such as 2026-01-31T12:00:00Z") from None
    if moment.tzinfo is None:
        raise BadSchedule(field, f"needs an offset from UTC, such as {text}Z or {text}+02:00")
    if moment < _EPOCH:
        raise BadSchedule(field, "must not be before 1970")
    return (moment - _EPOCH) // _MICROSECOND


@lru_cache(maxsize=1_024)
def spec_of(job: bytes) -> JobSpec:
    """Return the stored job of a schedule, as it was submitted."""
    return msgspec.json.decode(job, type=JobSpec)


def job_of_tick(
    schedule: Schedule,
    tick: int,
    *,
    id: str,
    now: int,
    defaults: JobDefaults,
    max_attempts: int,
    order: PriorityOrder,
    webhook_hosts: Sequence[str] = (),
    blocked: bool = False,
) -> Job:
    """Return the job of a tick. Raises `stoker.domain.extras.InvalidOption` where the announced defaults forbid it."""
    spec = spec_of(schedule.job)
    text = extras.extras_of(spec, defaults, now)
    _check_webhook(spec, defaults, text, webhook_hosts)
    used = replace(extras.decode(text), schedule=schedule.name, scheduled_for=tick)
    job = new_job(
        spec,
        id=id,
        now=now,
        run_at=now + round((spec.delay_sec or 0) * SECOND),
        max_attempts=max_attempts,
        order=order,
        defaults=defaults,
        extras=extras.encode(used),
    )
    return replace(job, status="blocked") if blocked else job
