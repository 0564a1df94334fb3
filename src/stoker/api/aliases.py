"""Second spellings, so that scripts written for the systems that came before run unchanged. Nothing else belongs
here: each alias turns into the request that it stands for."""

import msgspec

from stoker.api import jobs
from stoker.api.exchange import Request, Response
from stoker.domain.job import NULL, Attempts, Ident, JobSpec, Priority, Threads


class SubmitJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /submit_job`: here `name` is the job's type."""

    name: Ident
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    priority: Priority | msgspec.UnsetType = msgspec.UNSET
    thread_demand: Threads | msgspec.UnsetType = msgspec.UNSET
    max_attempts: Attempts | msgspec.UnsetType | None = msgspec.UNSET


async def submit_job(request: Request) -> Response:
    body: SubmitJob = request.body
    payload = msgspec.Raw(NULL) if body.payload is msgspec.UNSET else body.payload
    spec = JobSpec(
        payload=payload,
        type=body.name,
        priority=body.priority,
        thread_demand=body.thread_demand,
        max_attempts=body.max_attempts,
    )
    return await jobs.submit_spec(request, spec)
