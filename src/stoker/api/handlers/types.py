"""Job types: what can be submitted, and what each of them takes."""

from collections.abc import Mapping
from typing import Any

import msgspec

from stoker.api.schemas.views import encode
from stoker.api.server.exchange import Request, Response
from stoker.clock import SECOND
from stoker.coordinator.job_types import TypeState
from stoker.domain.job import JobDefaults


class TypeView(msgspec.Struct, frozen=True):
    """A job type. `schema` is the JSON schema of its payload and `description` says what it does; each is null if no worker
    announced it and the type is not built in. `workers` is the number of live workers that serve it. `run_p50_sec` is the
    median of the runs that this coordinator saw lately. `defaults` are the values that its worker announced for fields that
    a submission leaves out."""

    type: str
    description: str | None
    workers: int
    built_in: bool
    schema: Mapping[str, Any] | None
    example: Any
    run_p50_sec: float | None
    defaults: JobDefaults


class TypesView(msgspec.Struct, frozen=True):
    types: list[TypeView]


async def list_types(request: Request) -> Response:
    return Response(200, encode(TypesView([_view(state) for state in await request.context.types.states()])))


def _view(state: TypeState) -> TypeView:
    p50 = state.run_p50_us
    return TypeView(
        type=state.type,
        description=state.description,
        workers=state.workers,
        built_in=state.built_in,
        schema=state.schema,
        example=state.example,
        run_p50_sec=None if p50 is None else p50 / SECOND,
        defaults=state.defaults,
    )
