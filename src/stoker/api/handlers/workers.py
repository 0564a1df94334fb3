"""Workers: the list, draining, and the worker protocol over plain HTTP (`stoker.wire.http`)."""

from typing import Final

import msgspec

from stoker.api.handlers.payload import check_payload
from stoker.api.handlers.short_ids import is_job_id, whole_id
from stoker.api.problems import Kind, RequestProblem, invalid_field
from stoker.api.schemas.query import LeaseQuery
from stoker.api.schemas.system_views import SessionsView, session_view
from stoker.api.schemas.views import encode
from stoker.api.server.exchange import Request, Response, RevocableResponse
from stoker.api.server.streaming import while_there
from stoker.domain.job import NULL
from stoker.wire.http import HttpAssignment, HttpHeartbeat, HttpHello, HttpReport, HttpReports
from stoker.wire.run import RunHeartbeat, RunHello, RunOutcome, RunReceipt, read_job_ref

_MAX_ID_CHARS: Final = 256
_SECRET: Final = b"x-stoker-secret"


class LeasedView(msgspec.Struct, frozen=True):
    """Jobs to run now; empty when none came in time."""

    jobs: list[HttpAssignment]


async def list_workers(request: Request) -> Response:
    sessions = await request.context.workers.all()
    return Response(200, encode(SessionsView([session_view(session) for session in sessions])))


async def drain(request: Request) -> Response:
    workers = request.context.workers
    live = [row for row in await workers.all() if row.status in ("live", "draining")]
    named = [row.id for row in live if row.name == request.params["id"]]
    candidates = [] if named else [(row.id, row.name) for row in live]
    id = whole_id(_worker_id(request), candidates, "workers")
    return Response(200, encode(session_view(await workers.drain(id))))


async def register(request: Request) -> Response:
    hello: HttpHello | RunHello = request.body
    if isinstance(hello, RunHello):
        return Response(200, encode(await request.context.run_workers.register(hello)))
    return Response(201, encode(await request.context.http_workers.register(hello)))


async def lease(request: Request) -> Response:
    query: LeaseQuery = request.query
    workers, id = request.context.http_workers, await _admitted(request)
    jobs = await while_there(workers.lease(id, query.max, query.wait), request.leaving())
    return RevocableResponse(200, encode(LeasedView(list(jobs))), lost=lambda: workers.undelivered(id, jobs))


async def heartbeat(request: Request) -> Response:
    body: HttpHeartbeat = request.body
    worker_id = await _admitted(request)
    return Response(200, encode(await request.context.http_workers.heartbeat(worker_id, body.held)))


async def report(request: Request) -> Response:
    body: HttpReports = request.body
    worker_id = await _admitted(request)
    for index, item in enumerate(body.reports):
        _check_report(item, f"reports[{index}]", request.context.settings.max_body_bytes)
    return Response(200, encode(await request.context.http_workers.report(worker_id, body.reports)))


async def run_heartbeat(request: Request) -> Response:
    body: RunHeartbeat = request.body
    await request.context.run_workers.heartbeat(body.id)
    return Response(200, encode(body))


async def run_complete(request: Request) -> Response:
    """Return how a worker of the `/run` shapes ended a job."""
    body: RunOutcome = request.body
    job_id = request.params["job_id"].lower()
    ref = read_job_ref(job_id)
    if ref is None or not is_job_id(ref.id):
        raise RequestProblem(
            Kind.NOT_FOUND,
            "there is no such job; report under the job_id that came with it, which is ID.CLAIM",
        )
    if isinstance(body.result, msgspec.Raw):
        check_payload(bytes(body.result), "result", request.context.settings.max_body_bytes)
    await request.context.run_workers.complete(ref, body)
    return Response(200, encode(RunReceipt(job_id, accepted=True)))


def _check_report(report: HttpReport, path: str, max_bytes: int) -> None:
    """Results are judged as payloads are. Their size is not judged here: a result that is too large is the job's
    failure, and refusing to hear of it would only make the job run again."""
    if isinstance(report.result, msgspec.Raw) and bytes(report.result) != NULL:
        if report.outcome != "completed":
            raise invalid_field(f"{path}.result", f"does not belong to the outcome {report.outcome}")
        check_payload(bytes(report.result), f"{path}.result", max_bytes)
    if report.error is None and report.outcome == "failed":
        raise invalid_field(f"{path}.error", "is required for the outcome failed")
    if report.error is not None and report.outcome == "completed":
        raise invalid_field(f"{path}.error", "does not belong to the outcome completed")


async def _admitted(request: Request) -> str:
    """Return the worker in the path, once it is known that this request may speak for it."""
    id = _worker_id(request)
    secret = request.headers.get(_SECRET)
    await request.context.http_workers.admit(id, None if secret is None else secret.decode("latin-1"))
    return id


def _worker_id(request: Request) -> str:
    """Return the id, or for a drain the name, in the path. What could be neither is not looked for."""
    id = request.params["id"]
    if len(id) > _MAX_ID_CHARS or not id.isprintable():
        raise RequestProblem(Kind.NOT_FOUND, "there is no such worker; GET /workers lists them")
    return id
