"""Queues: what stands in them, and pausing and resuming them."""

import msgspec

from stoker.api.problems import invalid_field
from stoker.api.schemas.system_views import QueuesView, queue_view
from stoker.api.schemas.views import encode
from stoker.api.server.decode import friendly
from stoker.api.server.exchange import Request, Response
from stoker.domain.job import Ident


async def list_queues(request: Request) -> Response:
    context = request.context
    now = context.clock.now_us()
    return Response(200, encode(QueuesView([queue_view(state, now) for state in await context.queues.all()])))


async def pause(request: Request) -> Response:
    return await _set_paused(request, True)


async def resume(request: Request) -> Response:
    return await _set_paused(request, False)


async def _set_paused(request: Request, paused: bool) -> Response:
    context = request.context
    state = await context.queues.set_paused(_queue(request), paused)
    return Response(200, encode(queue_view(state, context.clock.now_us())))


def _queue(request: Request) -> str:
    """Return the queue in the path. It need not have jobs, but it must be a name that jobs could give."""
    try:
        return msgspec.convert(request.params["queue"], Ident)
    except msgspec.ValidationError as error:
        raise invalid_field("queue", friendly(error, Ident)) from None
