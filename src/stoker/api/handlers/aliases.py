"""Second spellings, so that scripts written for the systems that came before run unchanged. Nothing else belongs
here: each alias turns into the request that it stands for."""

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from stoker.api.handlers import jobs
from stoker.api.server.exchange import Request, Response
from stoker.domain.builtin_types import BUILTIN_TYPES, is_built_in
from stoker.domain.job import NULL, Attempts, Ident, JobSpec, Priority, Threads

STAND_IN: Final = "mixed_workload"
"""What a name that is no job type runs as: in the source systems every name does some work."""


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
    if is_built_in(body.name) or await request.context.types.has(body.name):
        return await jobs.submit_spec(request, spec)
    warning = (
        f"no worker serves the type {body.name!r}, and none ever announced it; the job runs as {STAND_IN}"
    )
    return await jobs.submit_spec(request, spec, stand_in, (warning,))


def stand_in(spec: JobSpec) -> JobSpec:
    """Return the job that runs in place of one whose type no worker knows. A payload that `STAND_IN` would refuse is kept
    as text, which means its default size."""
    payload = bytes(spec.payload)
    if not _is_size(msgspec.json.decode(payload)):
        payload = msgspec.json.encode(payload.decode())
    return replace(spec, type=STAND_IN, name=spec.type, payload=msgspec.Raw(payload))


def _is_size(value: Any) -> bool:
    if isinstance(value, dict):
        return all(name in BUILTIN_TYPES[STAND_IN].schema["properties"] for name in value)
    return value is None or isinstance(value, str)
