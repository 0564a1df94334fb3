"""Delivers webhooks: a session of the coordinator's own that serves the queue `stoker-webhooks`.

Deliveries are jobs like any others: claimed under the fence, held under the lease of a session, retried by their policy. The
session lives in the coordinator, because only coordinators know the secret and the list of hosts; workers, and so the
tasks of users, see neither. It exists only where `STOKER_WEBHOOK_HOSTS` and `STOKER_WEBHOOK_SECRET` are set, and is no
worker that users see. Every coordinator delivers; which of them gets a delivery, the claim decides.

Each request goes to an address that was checked after its name was resolved, and to no other. No redirect is followed,
no proxy or cookie is used, and an answer is read no further than `MAX_ANSWER_BYTES`.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import httpx
import msgspec
import structlog
from msgspec.structs import replace
from standardwebhooks import Webhook

from stoker.clock import SECOND
from stoker.coordinator.connection import LEASE_INTERVALS
from stoker.coordinator.reports import ReportSink
from stoker.coordinator.sessions import Sessions, WorkerSession, forgotten, still_forgotten
from stoker.domain.errors import StoreUnavailable
from stoker.domain.placement import WorkerView
from stoker.domain.retry import problem
from stoker.domain.retry_rules import ErrorNote
from stoker.domain.webhooks import TIMEOUT_SEC, WEBHOOK_QUEUE, WEBHOOK_TYPE, Delivery
from stoker.ids import NewId
from stoker.store.base import Store
from stoker.store.sessions import Renewal, Session
from stoker.webhook_hosts import NotListed, WebhookTarget, check_url, may_dial
from stoker.wire import frames
from stoker.wire.frames import PROTOCOL, Assignment, ClaimRef, Frame, Report

CONCURRENCY: Final = 16
CONNECT_SECONDS: Final = 5.0
MAX_ANSWER_BYTES: Final = 16 * 1024
EXCERPT_CHARS: Final = 200
GONE: Final = 410
_NAME: Final = "webhooks"
_PAUSE_SECONDS: Final = 1.0

log = structlog.get_logger()

Resolve = Callable[[str, int], Awaitable[list[str]]]
Post = Callable[[WebhookTarget, str, bytes, dict[str, str]], Awaitable["ReceiverAnswer"]]


class ReceiverAnswer(msgspec.Struct, frozen=True):
    """What the receiver said: the status, the beginning of the body, and how long it asks to wait."""

    status: int
    body: bytes = b""
    retry_after: str | None = None


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class HttpPost:
    """Sends requests to addresses that were checked."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None

    async def __call__(
        self, target: WebhookTarget, address: str, body: bytes, headers: dict[str, str]
    ) -> ReceiverAnswer:
        if self._client is None:
            self._client = httpx.AsyncClient(
                verify=ssl.create_default_context(),
                trust_env=False,
                follow_redirects=False,
                timeout=httpx.Timeout(TIMEOUT_SEC, connect=CONNECT_SECONDS),
                limits=httpx.Limits(max_connections=2 * CONCURRENCY, max_keepalive_connections=0),
            )
        host = f"[{target.host}]" if ":" in target.host else target.host
        dialled = f"[{address}]" if ":" in address else address
        port = "" if target.port == (443 if target.scheme == "https" else 80) else f":{target.port}"
        request = self._client.build_request(
            "POST",
            f"{target.scheme}://{dialled}:{target.port}{target.path}",
            content=body,
            headers={**headers, "Host": f"{host}{port}", "Accept-Encoding": "identity"},
            extensions={"sni_hostname": target.host} if target.scheme == "https" else {},
        )
        response = await self._client.send(request, stream=True)
        try:
            read = bytearray()
            async for chunk in response.aiter_raw():
                read += chunk
                if len(read) >= MAX_ANSWER_BYTES:
                    break
            return ReceiverAnswer(
                response.status_code, bytes(read[:MAX_ANSWER_BYTES]), response.headers.get("retry-after")
            )
        finally:
            await response.aclose()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


class _Session(WorkerSession):
    """A session without prefetch: each delivery needs its place at once."""

    def view(self) -> WorkerView:
        view = self._new_view()
        view.prefetch_us = 0
        return view


class Webhooks:
    """The session that delivers webhooks."""

    def __init__(
        self,
        store: Store,
        sessions: Sessions,
        sink: ReportSink,
        *,
        secret: str,
        hosts: Sequence[str],
        heartbeat_timeout_sec: float,
        new_id: NewId,
        resolve: Resolve = resolve,
        post: Post | None = None,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._sink = sink
        self._signer = Webhook(secret)
        self._hosts = hosts
        self._timeout_sec = heartbeat_timeout_sec
        self._new_id = new_id
        self._resolve = resolve
        self._http = HttpPost()
        self._post: Post = self._http if post is None else post
        self._session: _Session | None = None
        self._flights: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Keep the session alive; begin another when it was given up."""
        while True:
            try:
                await self._beat()
            except StoreUnavailable as error:
                log.warning("webhooks_waiting", detail=str(error))
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            await asyncio.sleep(self._timeout_sec / LEASE_INTERVALS)

    async def _beat(self) -> None:
        session = self._session
        if session is not None:
            (status,) = await self._store.renew([Renewal(session.id, session.threads_used)])
            if status is not None:
                await self._hand_back_forgotten(session)
                return
            self._give_up(session)
        hello = frames.Hello(PROTOCOL, self._new_id(), _NAME, CONCURRENCY, [WEBHOOK_TYPE], [WEBHOOK_QUEUE])
        now = self._store.now_us()
        row = Session(
            hello.session, _NAME, CONCURRENCY, (WEBHOOK_TYPE,), (WEBHOOK_QUEUE,), {}, "live", now, now
        )
        await self._store.open_session(row)
        self._session = _Session(hello, self._put)
        self._sessions.add(self._session)
        self._sink.wake()

    async def _hand_back_forgotten(self, session: _Session) -> None:
        """Hand back deliveries that were claimed by a commit whose answer was lost: the lease would keep them for ever."""
        stored = await self._store.held(session.id)
        flying = [ClaimRef(id, claim_id) for id, claim_id in self._flights]
        suspects = forgotten(session, stored, flying, self._store.now_us())
        missing = still_forgotten(session, suspects, asyncio.get_running_loop().time())
        if missing:
            await self._sink.hand_back(session, missing, "the answer to its claim was lost")

    def _give_up(self, session: _Session) -> None:
        """The lease ended: what is under way belongs to others now."""
        self._session = None
        self._sessions.remove(session, self._store.now_us())
        for task in self._flights.values():
            task.cancel()
        self._flights.clear()

    async def close(self) -> None:
        """Hand back what is under way, and end the session."""
        session, self._session = self._session, None
        for task in self._flights.values():
            task.cancel()
        await asyncio.gather(*self._flights.values(), return_exceptions=True)
        self._flights.clear()
        if session is not None:
            self._sessions.remove(session, self._store.now_us())
            with contextlib.suppress(StoreUnavailable):
                await self._sink.hand_back(session, session.claims, "the coordinator stops")
                await self._store.set_session_status(session.id, "gone")
        await self._http.close()

    def _put(self, frame: Frame) -> None:
        match frame:
            case frames.Assign(jobs):
                for job in jobs:
                    self._launch(job)
            case frames.Cancel(claims):
                for ref in claims:
                    self._end(ref, Report(ref.id, ref.claim_id, "cancelled"))
            case frames.Drop(claims):
                for ref in claims:
                    self._end(ref, None)

    def _launch(self, job: Assignment) -> None:
        session = self._session
        key = (job.id, job.claim_id)
        if session is None or key in self._flights:
            return
        task = asyncio.create_task(self._one(session, job))
        self._flights[key] = task
        task.add_done_callback(lambda _: self._flights.pop(key, None))

    def _end(self, ref: ClaimRef, report: Report | None) -> None:
        task = self._flights.pop((ref.id, ref.claim_id), None)
        if task is None or self._session is None:
            return
        task.cancel()
        if report is not None:
            key = (ref.id, ref.claim_id)
            self._flights[key] = asyncio.create_task(self._store_report(self._session, report))
            self._flights[key].add_done_callback(lambda _: self._flights.pop(key, None))

    async def _one(self, session: _Session, job: Assignment) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        report = await self.deliver(job)
        await self._store_report(session, replace(report, started_us=int((loop.time() - began) * SECOND)))

    async def _store_report(self, session: _Session, report: Report) -> None:
        released = self._sink.release(session, [report])
        while True:
            try:
                await self._sink.take(session, [report], released)
            except StoreUnavailable:
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                return

    async def deliver(self, job: Assignment) -> Report:
        """Send one delivery; how that ended."""
        try:
            delivery = msgspec.json.decode(job.payload, type=Delivery)
            target = check_url(delivery.url, self._hosts)
        except (msgspec.DecodeError, NotListed) as error:
            return _failed(job, "webhook_not_allowed", f"the address of this webhook {error}", mendable=False)
        try:
            async with asyncio.timeout(TIMEOUT_SEC):
                address = await self._checked_address(target)
                body = bytes(delivery.body)
                answer = await self._post(target, address, body, self._headers(job.id, body))
        except NotListed as error:
            return _failed(job, "webhook_not_allowed", str(error), mendable=False)
        except TimeoutError:
            return _failed(job, "webhook_timeout", f"no answer within {TIMEOUT_SEC:g} s")
        except (OSError, httpx.HTTPError, UnicodeError) as error:
            return _failed(job, "webhook_unreachable", str(error) or type(error).__name__)
        return report_of(job, answer)

    async def _checked_address(self, target: WebhookTarget) -> str:
        """Return the address to dial. Raises `NotListed` where the name leads to none that may be dialled."""
        found = await self._resolve(target.host, target.port)
        allowed = [address for address in found if may_dial(address, self._hosts)]
        if not allowed:
            raise NotListed(
                f"{target.host} leads to {', '.join(found[:3]) or 'no address'}, which is not public; "
                "list such an address in STOKER_WEBHOOK_HOSTS to allow it"
            )
        return allowed[0]

    def _headers(self, id: str, body: bytes) -> dict[str, str]:
        """Return the headers of Standard Webhooks. The id is that of the delivery, so a receiver knows a repeat."""
        at = datetime.fromtimestamp(self._store.now_us() // SECOND, UTC)
        return {
            "Content-Type": "application/json",
            "User-Agent": "stoker",
            "webhook-id": id,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": self._signer.sign(id, at, body.decode()),
        }


def report_of(job: Assignment, answer: ReceiverAnswer) -> Report:
    """Return what an answer means: any 2xx is a success, 410 says never again, everything else is tried again."""
    if 200 <= answer.status < 300:
        result = msgspec.json.encode({"status": answer.status})
        return Report(job.id, job.claim_id, "completed", result)
    text = answer.body[: 4 * EXCERPT_CHARS].decode("utf-8", "replace")[:EXCERPT_CHARS]
    said = f"the receiver answered {answer.status}"
    if 300 <= answer.status < 400:
        said += "; redirects are not followed"
    report = _failed(job, "webhook_refused", said, mendable=answer.status != GONE, body=text)
    wait = answer.retry_after
    if wait is not None and wait.isascii() and wait.isdecimal() and len(wait) < 6:
        return replace(report, note=ErrorNote(retry_after_sec=float(wait)))
    return report


def _failed(job: Assignment, type: str, message: str, *, mendable: bool = True, **more: Any) -> Report:
    error = problem(type, message, **more)
    return Report(job.id, job.claim_id, "error" if mendable else "invalid", error=error)
