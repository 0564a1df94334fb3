"""What operators and their machines ask: is it alive, is it ready, how much is waiting."""

from stoker.api.openapi30 import document_30
from stoker.api.schemas.query import OpenApiQuery
from stoker.api.schemas.system_views import HealthView, ReadyView
from stoker.api.schemas.views import encode
from stoker.api.server.exchange import TEXT_METRICS, Request, Response
from stoker.domain.scaling import ScalingState

_HEALTHY = encode(HealthView("ok"))


async def health(request: Request) -> Response:
    """Answer 200 as long as the event loop runs. The store is not asked, so that a slow store does not get the process
    restarted."""
    return Response(200, _HEALTHY)


async def ready(request: Request) -> Response:
    reasons = await request.context.readiness.reasons()
    return Response(503 if reasons else 200, encode(ReadyView(not reasons, reasons)))


async def metrics(request: Request) -> Response:
    return Response(200, await request.context.stats.metrics(), content_type=TEXT_METRICS)


async def stats(request: Request) -> Response:
    return Response(200, encode(await request.context.stats.stats()))


async def autoscaler(request: Request) -> Response:
    """Return what an autoscaler decided last."""
    state: ScalingState = request.body
    request.context.stats.scaling_decided(state)
    return Response(200, encode(state))


async def openapi(request: Request) -> Response:
    query: OpenApiQuery = request.query
    document = request.context.openapi
    return Response(200, document if query.version == "3.1" else document_30(document))
