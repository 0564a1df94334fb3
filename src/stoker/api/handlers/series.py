"""Series: what happened when, for charts."""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec

from stoker.api.problems import invalid_field
from stoker.api.schemas.query import Moment, moment_of
from stoker.api.schemas.times import rfc3339
from stoker.api.schemas.views import Time, encode
from stoker.api.server.exchange import Request, Response
from stoker.clock import SECOND
from stoker.domain.job import Ident
from stoker.domain.series import (
    Point,
    Range,
    SeriesRefused,
    Tally,
    percentile_sec,
    range_of,
    whole_range,
)

_FLOW: Final = ("submitted", "completed", "failed", "cancelled", "retried")
Step = Annotated[
    Literal[10, 60, 300, 3600],
    msgspec.Meta(description="Seconds between points; about 120 points when not given."),
]


class SpanQuery(msgspec.Struct, frozen=True, kw_only=True):
    """From when until when: times, or how long ago."""

    from_: Moment = msgspec.field(default="15m", name="from")
    to: Moment = "0s"


class SeriesQuery(SpanQuery, frozen=True, kw_only=True):
    """`GET /series`."""

    step: Step | None = None
    queue: Ident | None = None
    type: Ident | None = None


class BreakdownQuery(SpanQuery, frozen=True, kw_only=True):
    """`GET /series/breakdown`."""

    by: Annotated[Literal["type", "queue"], msgspec.Meta(description="What to tell apart.")] = "type"


class PointView(msgspec.Struct, frozen=True):
    """What happened from `at` for `step_sec`. Percentiles are null when no job ended; `autoscaler_wanted` is null without an
    autoscaler."""

    at: Time
    submitted: int
    completed: int
    failed: int
    cancelled: int
    retried: int
    wait_p50_sec: float | None
    wait_p95_sec: float | None
    run_p50_sec: float | None
    run_p95_sec: float | None
    queue_depth_max: int
    threads_used_max: int
    threads_max: int
    workers_max: int
    autoscaler_wanted: int | None


class SeriesView(msgspec.Struct, frozen=True):
    from_: Time = msgspec.field(name="from")
    to: Time
    step_sec: int
    points: list[PointView]


class BreakdownRow(msgspec.Struct, frozen=True):
    """`throughput_per_sec` counts completed jobs."""

    key: str
    submitted: int
    completed: int
    failed: int
    cancelled: int
    retried: int
    wait_p50_sec: float | None
    wait_p95_sec: float | None
    run_p50_sec: float | None
    run_p95_sec: float | None
    throughput_per_sec: float


class BreakdownView(msgspec.Struct, frozen=True):
    """Those with the most jobs first."""

    by: Literal["type", "queue"]
    rows: list[BreakdownRow]


async def series(request: Request) -> Response:
    query: SeriesQuery = request.query
    context = request.context
    wanted = _range(
        query, context.clock.now_us(), lambda *span: range_of(span[0], span[1], query.step, span[2])
    )
    found = await context.stats.series(wanted, query.queue, query.type)
    view = SeriesView(
        rfc3339(wanted.start), rfc3339(wanted.end), wanted.step_sec, [_point_view(point) for point in found]
    )
    return Response(200, encode(view))


async def breakdown(request: Request) -> Response:
    query: BreakdownQuery = request.query
    context = request.context
    wanted = _range(query, context.clock.now_us(), whole_range)
    found = await context.stats.breakdown(wanted, query.by)
    seconds = (wanted.end - wanted.start) / SECOND
    rows = [_row(key, tally, seconds) for key, tally in found.items()]
    rows.sort(key=lambda row: (-(row.submitted + row.completed + row.failed + row.cancelled), row.key))
    return Response(200, encode(BreakdownView(query.by, rows)))


def _range(query: SpanQuery, now: int, choose: Callable[[int, int, int], Range]) -> Range:
    start, end = moment_of(query.from_, "from", now), moment_of(query.to, "to", now)
    try:
        return choose(start or 0, end or 0, now)
    except SeriesRefused as refused:
        raise invalid_field(refused.field, refused.message) from None


def _percentiles(tally: Tally) -> dict[str, Any]:
    return {
        "wait_p50_sec": percentile_sec(tally.wait, 0.5),
        "wait_p95_sec": percentile_sec(tally.wait, 0.95),
        "run_p50_sec": percentile_sec(tally.run, 0.5),
        "run_p95_sec": percentile_sec(tally.run, 0.95),
    }


def _flow(tally: Tally) -> dict[str, int]:
    return {name: getattr(tally, name) for name in _FLOW}


def _point_view(point: Point) -> PointView:
    seen: dict[str, Any] = msgspec.structs.asdict(point.gauges)
    return PointView(at=rfc3339(point.at), **_flow(point.tally), **_percentiles(point.tally), **seen)


def _row(key: str, tally: Tally, seconds: float) -> BreakdownRow:
    throughput = round(tally.completed / seconds, 6)
    return BreakdownRow(key=key, **_flow(tally), **_percentiles(tally), throughput_per_sec=throughput)
