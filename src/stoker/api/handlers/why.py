"""Why a job is where it is."""

import msgspec

from stoker.api.handlers.jobs import job_id
from stoker.api.schemas.views import encode
from stoker.api.server.exchange import Request, Response
from stoker.domain.explain import Blocker, Code
from stoker.domain.lifecycle import Status


class WhyView(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is where it is. `code` is for programs, the rest for people. `position` counts jobs that can run in the same
    places, the first is 1; `position_capped` says that there may be more before it."""

    job_id: str
    status: Status
    code: Code
    summary: str
    details: list[str]
    blockers: list[Blocker]
    position: int | None
    position_capped: bool
    estimate_sec: float | None
    commands: list[str] = msgspec.field(name="try")


async def get_why(request: Request) -> Response:
    job, found = await request.context.jobs.why(await job_id(request))
    view = WhyView(
        job_id=job.id,
        status=job.status,
        code=found.code,
        summary=found.summary,
        details=list(found.details),
        blockers=list(found.blockers),
        position=found.position,
        position_capped=found.position_capped,
        estimate_sec=found.estimate_sec,
        commands=list(found.commands),
    )
    return Response(200, encode(view))
