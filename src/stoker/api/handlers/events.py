"""Live events, as server-sent events: everything that changes, and one job.

The body of an update is made once for all watchers; see `stoker.coordinator.events`.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Final

import msgspec

from stoker import __version__
from stoker.api.context import Context
from stoker.api.handlers.bulk import BulkView, bulk_view
from stoker.api.handlers.jobs import job_id
from stoker.api.schemas.system_views import QueueView, SessionView, queue_view, session_view
from stoker.api.schemas.times import rfc3339, rfc3339_or_none
from stoker.api.schemas.views import ProgressView, Time, encode, progress_view, render_job_with_attempts
from stoker.api.server.exchange import Header, Interrupted, Request, Response, stream_of
from stoker.clock import SECOND
from stoker.coordinator.event_updates import (
    WINDOW_SECONDS,
    LiveGauges,
    Message,
    Numbered,
    Reset,
    StreamHello,
    Update,
)
from stoker.coordinator.job_output.output import JobProgress
from stoker.domain.job import Job
from stoker.domain.lifecycle import FINAL, Status
from stoker.domain.scaling import ScalingState
from stoker.store.reads import JobSummary

KEEP_ALIVE_SECONDS: Final = 15.0
EVENT_STREAM: Final = b"text/event-stream"
_HEADERS: Final[tuple[Header, ...]] = (
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy that waits for more would make live into late
    (b"x-content-type-options", b"nosniff"),
)
_KEEP_ALIVE: Final = b": keep-alive\n\n"
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /events`."""

    after: (
        Annotated[
            str,
            msgspec.Meta(
                max_length=100,
                description="Go on after the event with this `id`; the header `Last-Event-ID` says the same and wins.",
            ),
        ]
        | None
    ) = None


class HelloView(msgspec.Struct, frozen=True):
    """The first event. `epoch` is another after each start of the coordinator; events are counted from `seq` on."""

    epoch: str
    seq: int
    version: str


class ResetView(msgspec.Struct, frozen=True):
    """Something was missed: fetch again what is shown."""

    reason: str


class UpdateStats(msgspec.Struct, frozen=True):
    """The numbers of `/stats` as they are now; waits and runs of what ended within the last minute."""

    queue_depth: int
    jobs_by_status: Mapping[Status, int]
    workers: int
    threads: int
    threads_used: int
    success_rate: float | None
    dead_letters: int
    oldest_queued_age_sec: float | None
    wait_p50_sec: float | None
    wait_p95_sec: float | None
    run_p50_sec: float | None
    run_p95_sec: float | None
    autoscaler: ScalingState | None


class JobSummaryView(msgspec.Struct, frozen=True):
    """A job as a list shows it."""

    id: str
    type: str
    name: str | None
    queue: str
    priority: int
    status: Status
    attempt: int
    worker_id: str | None
    created_at: Time
    started_at: Time | None
    completed_at: Time | None
    progress: ProgressView | None


class UpdateView(msgspec.Struct, frozen=True):
    """What changed since the update before; `submitted` to `retried` count what happened in between. `more` jobs changed
    that are not in `jobs`. `workers`, `queues` and `bulk` are there when something in them changed, and then whole."""

    at: Time
    period_sec: float
    submitted: int
    completed: int
    failed: int
    cancelled: int
    retried: int
    stats: UpdateStats
    jobs: list[JobSummaryView]
    more: int
    workers: list[SessionView] | msgspec.UnsetType = msgspec.UNSET
    queues: list[QueueView] | msgspec.UnsetType = msgspec.UNSET
    bulk: list[BulkView] | msgspec.UnsetType = msgspec.UNSET


class EndView(msgspec.Struct, frozen=True):
    """The job is final, and so is this stream."""

    status: Status


def event(name: str, data: bytes, id: str | None = None) -> bytes:
    """Return one event in its form on the line. A line end within JSON is only white space, and the reader puts it back."""
    head = f"event: {name}\n" if id is None else f"event: {name}\nid: {id}\n"
    return head.encode() + b"".join(b"data: %b\n" % line for line in _LINE_END.split(data)) + b"\n"


# --- everything ----------------------------------------------------------------------------------------


async def get_events(request: Request) -> Response:
    query: EventsQuery = request.query
    header = request.headers.get(b"last-event-id")
    position = query.after if header is None else header.decode("latin-1")
    return stream_of(_events(request.context, position), _HEADERS, EVENT_STREAM)


async def _events(context: Context, position: str | None) -> AsyncGenerator[bytes, None]:
    with context.stats.stream("events"):
        async with contextlib.aclosing(context.events.follow(position)) as messages:
            async for message in messages:
                yield rendered(message)


def rendered(message: Message) -> bytes:
    match message:
        case StreamHello(epoch, seq):
            return event("hello", encode(HelloView(epoch, seq, __version__)), f"{epoch}:{seq}")
        case Reset(epoch, seq, reason):
            return event("reset", encode(ResetView(reason)), f"{epoch}:{seq}")
        case Numbered():
            if message.rendered is None:
                data = encode(update_view(message.update))
                message.rendered = event("update", data, f"{message.epoch}:{message.seq}")
            return message.rendered
        case _:
            return _KEEP_ALIVE


def update_view(update: Update) -> UpdateView:
    tally = update.tally
    return UpdateView(
        at=rfc3339(update.at),
        period_sec=update.period_sec,
        submitted=tally.get("submitted", 0),
        completed=tally.get("completed", 0),
        failed=tally.get("failed", 0),
        cancelled=tally.get("cancelled", 0),
        retried=tally.get("retried", 0),
        stats=_stats(update.gauges, update.at),
        jobs=[summary_view(job, progress) for job, progress in update.jobs],
        more=update.more,
        workers=msgspec.UNSET if update.workers is None else [session_view(row) for row in update.workers],
        queues=msgspec.UNSET
        if update.queues is None
        else [queue_view(queue, update.at) for queue in update.queues],
        bulk=msgspec.UNSET if update.bulks is None else [bulk_view(bulk) for bulk in update.bulks],
    )


def _stats(gauges: LiveGauges, at: int) -> UpdateStats:
    oldest = gauges.oldest_due_at
    return UpdateStats(
        queue_depth=gauges.by_status["queued"],
        jobs_by_status=gauges.by_status,
        workers=gauges.workers,
        threads=gauges.threads,
        threads_used=gauges.threads_used,
        success_rate=gauges.success_rate,
        dead_letters=gauges.dead_letters,
        oldest_queued_age_sec=None if oldest is None else max(0, at - oldest) / SECOND,
        wait_p50_sec=gauges.wait_p50_sec,
        wait_p95_sec=gauges.wait_p95_sec,
        run_p50_sec=gauges.run_p50_sec,
        run_p95_sec=gauges.run_p95_sec,
        autoscaler=gauges.scaling,
    )


def summary_view(job: JobSummary, progress: JobProgress | None) -> JobSummaryView:
    return JobSummaryView(
        id=job.id,
        type=job.type,
        name=job.name,
        queue=job.queue,
        priority=job.priority,
        status=job.status,
        attempt=job.attempt,
        worker_id=job.worker_id,
        created_at=rfc3339(job.created_at),
        started_at=rfc3339_or_none(job.started_at),
        completed_at=rfc3339_or_none(job.completed_at),
        progress=None if progress is None else progress_view(progress),
    )


# --- one job -------------------------------------------------------------------------------------------


async def get_job_events(request: Request) -> Response:
    context = request.context
    job = await context.jobs.get(
        await job_id(request)
    )  # before the answer begins: 404 is a problem, not an event
    return stream_of(_job_events(context, job.id), _HEADERS, EVENT_STREAM)


async def _job_events(context: Context, id: str) -> AsyncGenerator[bytes, None]:
    loop = asyncio.get_running_loop()
    shown, sent_at = b"", loop.time()
    with context.stats.stream("events"), context.waits.watching(id) as news:
        while True:
            looked_at = loop.time()
            job = await context.jobs.get(id)
            body = await _with_attempts(context, job)
            if body != shown:
                shown, sent_at = body, looked_at
                yield event("job", body)
            elif looked_at >= sent_at + KEEP_ALIVE_SECONDS:
                sent_at = looked_at
                yield _KEEP_ALIVE
            if job.status in FINAL:
                yield event("end", encode(EndView(job.status)))
                return
            if not await news(KEEP_ALIVE_SECONDS):
                raise Interrupted("the coordinator is shutting down")
            await asyncio.sleep(max(0.0, looked_at + WINDOW_SECONDS - loop.time()))


async def _with_attempts(context: Context, job: Job) -> bytes:
    attempts = await context.jobs.attempts(job.id) if job.claim_id > 0 else []
    return render_job_with_attempts(job, attempts, context.output.progress(job))
