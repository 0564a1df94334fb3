"""The ASGI application: one straight line that every request walks.

    request id → Host → Origin → route → token → query → body → handler → answer

Whatever fails on the way is raised and becomes a problem document at one place, `_answer`; a defect, there or in making that
document, becomes one in `_defect`. There are no middlewares and no framework objects on this line: at tens of thousands of
submissions a second, each layer would cost more than the whole of it does.
"""

import contextlib
from collections.abc import Mapping
from functools import cache, partial
from typing import Final

import structlog
from starlette.types import Receive, Scope, Send

from stoker import ids, tracing
from stoker.api.context import Context
from stoker.api.endpoints import ENDPOINTS
from stoker.api.handlers.jobs import job_of_claim
from stoker.api.openapi import document
from stoker.api.problems import Kind, RequestProblem, from_domain, retry_after
from stoker.api.schemas.query import parse_query
from stoker.api.server import sockets, streaming
from stoker.api.server.admission import RETRY_SECONDS, BodyBudget
from stoker.api.server.body import Body
from stoker.api.server.exchange import (
    ClientGone,
    Header,
    Request,
    Response,
    RevocableResponse,
    Stream,
    problem_response,
)
from stoker.api.server.http_protocol import ANSWER
from stoker.api.server.limits import SubmissionLimiter, window
from stoker.api.server.routing import Action, Params, Route, Router
from stoker.api.server.security import Guard
from stoker.coordinator.services import Services
from stoker.domain.errors import StokerDomainError
from stoker.ids import NewId
from stoker.logs.log import request_id as log_request_id

_log = structlog.get_logger(__name__)

_MAX_REQUEST_ID_CHARS: Final = 128
_ONLY_ONCE: Final = frozenset(
    {
        b"host",
        b"origin",
        b"authorization",
        b"content-length",
        b"content-type",
        b"idempotency-key",
        b"x-idempotency-key",
        b"x-stoker-secret",
    }
)


def create_app(services: Services, *, new_id: NewId = ids.new_id) -> "App":
    """Return the API of one coordinator; to be closed after its last request."""
    settings, jobs = services.settings, services.jobs
    limit = settings.rate_limit_jobs_per_min
    limiter = SubmissionLimiter(limit, window(settings), jobs.known_key, jobs.known_ids) if limit else None
    context = Context(services, guard=Guard(settings), limiter=limiter, new_id=new_id)
    context.openapi = _openapi()
    return App(context, Router(ENDPOINTS))


@cache
def _openapi() -> bytes:
    return document(ENDPOINTS)


class App:
    """The ASGI application: checks each request, finds its handler and turns every exception into an answer."""

    def __init__(self, context: Context, router: Router) -> None:
        self._context = context
        self._router = router
        self._guard = context.guard
        self._max_body_bytes = context.settings.max_body_bytes
        self._bodies = BodyBudget(context.settings.max_bodies_bytes)
        self._new_id = context.new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            await self._http(scope, receive, send)
        elif kind == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await _lifespan(receive, send)

    async def close(self) -> None:
        if self._context.limiter is not None:
            await self._context.limiter.close()

    # --- HTTP ------------------------------------------------------------------------------------------

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        request_id = self._request_id(headers)
        tracing.begin_request(headers.get(b"traceparent"))
        try:
            response = await self._answer(scope, headers, receive, request_id)
        except ClientGone:
            return
        except Exception:  # noqa: BLE001 - a client learns that it happened and its number, the log learns the rest
            response = _defect(scope, request_id)
        answer_headers = self._answer_headers(response, request_id, headers.get(b"origin"))
        if isinstance(response, Stream):
            answer_headers = [header for header in answer_headers if header[0] != b"content-length"]
            if scope["method"] != "HEAD":
                await streaming.send_stream(response, answer_headers, scope, receive, send)
                return
        body = b"" if scope["method"] == "HEAD" else response.body
        answer = scope.get(ANSWER)
        if answer is None or not answer(response.status, answer_headers, body):
            await send({"type": "http.response.start", "status": response.status, "headers": answer_headers})
            await send({"type": "http.response.body", "body": body})
        if isinstance(response, RevocableResponse) and streaming.GONE in scope:
            response.lost()

    async def _answer(
        self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, request_id: str
    ) -> Response:
        """Return the response, also to what is refused."""
        try:
            return await self._handle(scope, headers, receive)
        except RequestProblem as problem:
            return problem_response(problem, request_id)
        except StokerDomainError as error:
            return problem_response(from_domain(error), request_id)
        except MemoryError:
            pass  # what filled the memory is let go with the exception, before the answer is made
        _log.error("out_of_memory", method=scope["method"], path=scope["path"])
        return problem_response(_no_memory(), request_id)

    async def _handle(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive) -> Response:
        self._check_caller(scope, headers)
        route, params = self._router.find(scope["path"])
        method = scope["method"]
        action = None if route is None else route.action(method)
        if method == "OPTIONS" and route is not None:
            preflight = self._guard.preflight(headers)
            if preflight:
                return Response(200, b"", preflight, b"text/plain; charset=utf-8")
        self._guard.authorise("admin" if action is None else action.scope, headers)
        if action is None:
            raise _no_action(route, method)
        return await self._run(action, params, scope, headers, receive)

    async def _run(
        self, action: Action, params: Params, scope: Scope, headers: dict[bytes, bytes], receive: Receive
    ) -> Response:
        handler = action.handler
        assert handler is not None  # noqa: S101 - only the WebSocket has none, and it has no HTTP method
        text = scope["query_string"]
        query = parse_query(action.endpoint.query, text) if text else action.default_query
        client = scope.get("client")
        address = client[0] if client else ""
        leaving = partial(streaming.until_gone, scope, receive)
        if "." in params.get("id", "") and "/jobs/{id}" in action.endpoint.path:
            params = {**params, "id": await job_of_claim(self._context.jobs, params["id"])}
        if action.decoder is None:
            return await handler(Request(self._context, headers, params, query, None, address, leaving))
        body = Body(self._bodies, self._max_body_bytes)
        try:
            decoded = action.decode(action.decoder, await body.read(receive, headers))
            if action.endpoint.held and body.counted:
                body.give_back()
            return await handler(Request(self._context, headers, params, query, decoded, address, leaving))
        finally:
            if body.counted:
                body.give_back()

    # --- WebSocket -------------------------------------------------------------------------------------

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        request_id = self._request_id(headers)
        refusal = self._refusal(scope, headers, request_id)
        if refusal is not None:
            await sockets.deny(scope, receive, send, refusal, self._answer_headers(refusal, request_id, None))
            return
        await sockets.serve(
            self._context.workers, scope, receive, send, [(b"x-request-id", request_id.encode())]
        )

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes], request_id: str) -> Response | None:
        """Why the handshake is refused; None for a worker that may come in."""
        try:
            self._check_caller(scope, headers)
            route, _ = self._router.find(scope["path"])
            action = None if route is None else route.websocket
            self._guard.authorise("admin" if action is None else action.scope, headers)
            if action is None:
                raise RequestProblem(Kind.NOT_FOUND, "there is no WebSocket at this path")
        except RequestProblem as problem:
            return problem_response(problem, request_id)
        except Exception:  # noqa: BLE001 - as for HTTP
            return _defect(scope, request_id)
        return None

    # --- both ------------------------------------------------------------------------------------------

    def _check_caller(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        raw = scope["headers"]
        if len(raw) != len(headers):
            _check_repeated(raw)
        guard = self._guard
        guard.check_host(headers.get(b"host"))
        if b"origin" in headers:
            secure = scope.get("scheme") in ("https", "wss")
            guard.check_origin(headers, "https" if secure else "http")

    def _request_id(self, headers: Mapping[bytes, bytes]) -> str:
        """Return the caller's id if it is fit for a log, else a new one; every log line of this request carries it."""
        given = headers.get(b"x-request-id")
        request_id = None if given is None else _usable(given)
        if request_id is None:
            request_id = self._new_id()
        log_request_id.set(request_id)
        return request_id

    def _answer_headers(self, response: Response, request_id: str, origin: bytes | None) -> list[Header]:
        headers = [
            (b"content-type", response.content_type),
            (b"content-length", b"%d" % len(response.body)),
            (b"x-request-id", request_id.encode()),
            *response.headers,
        ]
        if origin is not None:
            headers += self._guard.cors(origin)
        return headers


def _defect(scope: Scope, request_id: str) -> Response:
    """Return the answer when everything else failed. The log may be what did."""
    with contextlib.suppress(Exception):
        _log.exception("request_failed", method=scope.get("method", "WEBSOCKET"), path=scope["path"])
    detail = "this is a defect of the server; its log has the details under this request_id"
    return problem_response(RequestProblem(Kind.INTERNAL, detail), request_id)


def _no_memory() -> RequestProblem:
    detail = "the server has no memory left for this request; try again in a moment, or send less at once"
    return RequestProblem(Kind.UNAVAILABLE, detail, headers=[retry_after(RETRY_SECONDS)])


def _usable(given: bytes) -> str | None:
    text = given.decode("latin-1")
    usable = 0 < len(text) <= _MAX_REQUEST_ID_CHARS and text.isascii() and text.isprintable()
    return text if usable else None


def _check_repeated(raw: list[Header]) -> None:
    """A header that decides something may come only once: which of two would the next machine believe?"""
    seen: set[bytes] = set()
    for name, _ in raw:
        if name in seen and name in _ONLY_ONCE:
            raise RequestProblem(
                Kind.UNREADABLE, f"the header {name.decode('latin-1')} is given more than once"
            )
        seen.add(name)


def _no_action(route: Route | None, method: str) -> RequestProblem:
    if route is None:
        return RequestProblem(
            Kind.NOT_FOUND, "there is nothing at this path; GET /openapi.json lists what there is"
        )
    if not route.allow:
        headers = [(b"upgrade", b"websocket"), (b"connection", b"upgrade")]
        return RequestProblem(Kind.UPGRADE_REQUIRED, "connect with a WebSocket", headers=headers)
    return RequestProblem(
        Kind.METHOD_NOT_ALLOWED,
        f"this path knows {route.allow.decode()}, not {method[:20]}",
        headers=[(b"allow", route.allow)],
    )


async def _lifespan(receive: Receive, send: Send) -> None:
    """Acknowledge the server's lifespan events. The code that made the coordinator starts and stops it, so there is
    nothing else to do here."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return
