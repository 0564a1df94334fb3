"""`PATCH /jobs/{id}`: change a job while it waits."""

import msgspec
from msgspec import UNSET

from stoker.api.context import Context
from stoker.api.handlers.jobs import job_id
from stoker.api.handlers.payload import check_payload
from stoker.api.problems import InvalidField, Kind, RequestProblem, invalid_field
from stoker.api.schemas.times import parse_rfc3339
from stoker.api.schemas.views import render_job
from stoker.api.server.exchange import Request, Response
from stoker.clock import SECOND
from stoker.domain import extras
from stoker.domain.edit import Changes, JobEdit
from stoker.domain.errors import StateConflict
from stoker.domain.extras import InvalidOption
from stoker.domain.job import MAX_DELAY_SEC, JobDefaults, encode_map, rank_of
from stoker.domain.retry_rules import RetryRules, attempts_of
from stoker.domain.webhooks import WEBHOOK_QUEUE


async def edit(request: Request) -> Response:
    context, asked = request.context, request.body
    if asked == JobEdit():
        raise invalid_field("body", f"changes nothing; give one of {', '.join(JobEdit.__struct_fields__)}")
    id = await job_id(request)
    job = await context.jobs.get(id)
    changes = resolved(context, asked, context.types.defaults(job.type), extras.decode(job.extras).retry)
    try:
        return Response(200, render_job(await context.jobs.edit(id, changes)))
    except InvalidOption as error:
        raise invalid_field(error.field, error.message) from None
    except StateConflict as error:
        raise RequestProblem(Kind.CONFLICT, str(error), errors=[InvalidField("status", str(error))]) from None


def resolved(context: Context, asked: JobEdit, defaults: JobDefaults, retry: RetryRules | None) -> Changes:
    """Return the values that a job gets. What null clears is as the job's retry policy or its type has it, else as the
    settings have it."""
    settings = context.settings
    priority = defaults.priority if asked.priority is None else asked.priority
    attempts = asked.max_attempts
    if attempts is None:
        attempts = attempts_of(retry) or defaults.max_attempts or settings.max_attempts
    if not isinstance(asked.payload, msgspec.UnsetType):
        check_payload(bytes(asked.payload), "payload", settings.max_payload_bytes)
    if WEBHOOK_QUEUE in (asked.queue, defaults.queue if asked.queue is None else None):
        raise invalid_field("queue", f"cannot be {WEBHOOK_QUEUE}, which holds webhooks that are sent")
    return Changes(
        priority=priority,
        rank=UNSET if isinstance(priority, msgspec.UnsetType) else rank_of(priority, settings.priority_order),
        run_at=_run_at(asked, context.clock.now_us()),
        queue=defaults.queue if asked.queue is None else asked.queue,
        payload=UNSET if isinstance(asked.payload, msgspec.UnsetType) else bytes(asked.payload),
        max_attempts=attempts,
        timeout_sec=UNSET if asked.timeout_sec is UNSET else asked.timeout_sec or None,
        metadata=UNSET if isinstance(asked.metadata, msgspec.UnsetType) else encode_map(asked.metadata or {}),
    )


def _run_at(asked: JobEdit, now: int) -> int | msgspec.UnsetType:
    if isinstance(asked.run_at, msgspec.UnsetType):
        return UNSET
    if asked.run_at is None:
        return now
    try:
        run_at = parse_rfc3339(asked.run_at)
    except ValueError as error:
        raise invalid_field("run_at", str(error)) from None
    if run_at - now > MAX_DELAY_SEC * SECOND:
        raise invalid_field("run_at", "is more than ten years ahead")
    return run_at
