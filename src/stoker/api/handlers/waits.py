"""`POST /jobs/wait`: wait for many jobs with one request."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from stoker.api.handlers.jobs import BATCH_SIZE, JobId
from stoker.api.handlers.short_ids import is_job_id
from stoker.api.schemas.query import MAX_WAIT_SEC
from stoker.api.schemas.views import JobView, encode, render_job_with_attempts
from stoker.api.server.exchange import Request, Response
from stoker.api.server.streaming import while_there
from stoker.coordinator.waits import Waited
from stoker.domain.job import MAX_BATCH
from stoker.domain.lifecycle import Status

_JOBS_A_TURN: Final = 100


class JobsWait(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs to wait for, and how long."""

    ids: Annotated[list[JobId], BATCH_SIZE]
    timeout_sec: Annotated[
        float,
        msgspec.Meta(
            ge=0,
            le=86_400,
            description="Answer after this many seconds even if no job has ended; 60 s are waited at most.",
        ),
    ] = 30.0
    limit: Annotated[
        int,
        msgspec.Meta(ge=0, le=MAX_BATCH, description="At most this many jobs in the answer; 0 only counts."),
    ] = MAX_BATCH


class WaitView(msgspec.Struct, frozen=True):
    """Those of the jobs that have ended, in the order of the request, as many as fit about 1 MiB. `pending` counts the jobs
    that are neither in `jobs` nor in `missing`: ask again for them. `missing` are ids of no job. `counts` are all jobs by
    status."""

    jobs: list[JobView]
    pending: int
    missing: list[str]
    counts: dict[Status, int]


class _Rendered(msgspec.Struct, frozen=True):
    """A `WaitView` whose jobs are rendered already."""

    jobs: list[msgspec.Raw]
    pending: int
    missing: list[str]
    counts: dict[Status, int]


async def wait_for_jobs(request: Request) -> Response:
    body: JobsWait = request.body
    asked = dict.fromkeys(id.lower() for id in body.ids)
    unknown = [id for id in asked if not is_job_id(id)]
    for id in unknown:
        del asked[id]
    # What can be no job has ended already, in a way: there is nothing to wait for.
    seconds = 0.0 if unknown else min(body.timeout_sec, MAX_WAIT_SEC)
    waits = request.context.waits
    waited = await while_there(waits.for_any(asked, seconds, body.limit), request.leaving())
    return Response(200, await _render(waited, unknown))


async def _render(waited: Waited, unknown: Sequence[str]) -> bytes:
    """A part at a time: others want their turn."""
    jobs: list[msgspec.Raw] = []
    for first in range(0, len(waited.ended), _JOBS_A_TURN):
        if first:
            await asyncio.sleep(0)
        part = waited.ended[first : first + _JOBS_A_TURN]
        jobs += [msgspec.Raw(render_job_with_attempts(ended.job, ended.attempts, None)) for ended in part]
    return encode(_Rendered(jobs, waited.pending, [*waited.missing, *unknown], dict(waited.counts)))
