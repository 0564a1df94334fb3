"""Bulk operations: cancel, retry or discard whatever matches."""

from typing import Annotated

import msgspec

from stoker.api.handlers.short_ids import is_job_id, whole_id
from stoker.api.problems import Kind, RequestProblem
from stoker.api.schemas.query import Fingerprint, Moment, Search, Statuses, Text, Worker
from stoker.api.schemas.search import wanted_jobs
from stoker.api.schemas.times import rfc3339, rfc3339_or_none
from stoker.api.schemas.views import Time, encode
from stoker.api.server.exchange import Request, Response
from stoker.domain.job import Ident, Label, Priority, StringMap
from stoker.domain.lifecycle import Status
from stoker.store.bulk import Bulk, BulkAction, BulkStatus
from stoker.store.reads import JobFilter


class JobsFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Jobs that match everything given here; the names are those of `GET /jobs`."""

    status: Statuses | Annotated[list[Status], msgspec.Meta(min_length=1)] | None = None
    type: Ident | None = None
    queue: Ident | None = None
    priority: Priority | None = None
    name: Label | None = None
    worker: Worker | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None
    text: Text | None = None
    fingerprint: Fingerprint | None = None
    q: Search | None = None
    metadata: StringMap = {}


class BulkBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to do, and to which jobs; an empty filter means all of them."""

    action: BulkAction
    filter: JobsFilter


class BulkView(msgspec.Struct, frozen=True):
    """A bulk operation. `done` jobs of about `total` were looked at, and `changed` of them changed."""

    id: str
    action: BulkAction
    filter: JobsFilter
    status: BulkStatus
    total: Annotated[int, msgspec.Meta(description="How many matched at first; more when `total_capped`.")]
    total_capped: bool
    done: int
    changed: int
    created_at: Time
    finished_at: Time | None


class BulksView(msgspec.Struct, frozen=True):
    """The latest operations, newest first."""

    bulk: list[BulkView]


async def start(request: Request) -> Response:
    body: BulkBody = request.body
    context = request.context
    wanted = wanted_jobs(body.filter, body.filter.status, context.clock.now_us(), path="filter")
    return Response(202, encode(bulk_view(await context.bulks.start(body.action, wanted))))


async def get(request: Request) -> Response:
    return Response(200, encode(bulk_view(await request.context.bulks.get(await _id(request)))))


async def latest(request: Request) -> Response:
    found = await request.context.bulks.latest()
    return Response(200, encode(BulksView([bulk_view(bulk) for bulk in found])))


async def stop(request: Request) -> Response:
    return Response(200, encode(bulk_view(await request.context.bulks.stop(await _id(request)))))


def bulk_view(bulk: Bulk) -> BulkView:
    return BulkView(
        id=bulk.id,
        action=bulk.action,
        filter=filter_view(bulk.filter),
        status=bulk.status,
        total=bulk.total,
        total_capped=bulk.total_capped,
        done=bulk.done,
        changed=bulk.changed,
        created_at=rfc3339(bulk.created_at),
        finished_at=rfc3339_or_none(bulk.finished_at),
    )


def filter_view(filter: JobFilter) -> JobsFilter:
    """A filter in the words of the API. What was said as `2h` ago is the time that this meant."""
    return JobsFilter(
        status=None if filter.statuses is None else ",".join(filter.statuses),
        type=filter.type,
        queue=filter.queue,
        priority=filter.priority,
        name=filter.name,
        worker=filter.worker,
        created_after=rfc3339_or_none(filter.created_after),
        created_before=rfc3339_or_none(filter.created_before),
        text=filter.text,
        fingerprint=filter.fingerprint,
        metadata=dict(filter.metadata),
    )


async def _id(request: Request) -> str:
    """Return the id in the path; one of the latest operations may be named by a part of it."""
    id = request.params["id"].lower()
    if not is_job_id(id):
        latest = await request.context.bulks.latest()
        id = whole_id(id, [(bulk.id, f"{bulk.action}, {bulk.status}") for bulk in latest], "bulk operations")
    if not is_job_id(id):
        raise RequestProblem(Kind.NOT_FOUND, "there is no such bulk operation; GET /bulk lists the latest")
    return id
