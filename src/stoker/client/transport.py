"""Carries requests to the API: the one place in the SDK that does I/O.

`send` and `send_async` differ in nothing but the waiting: what to send, whether to repeat it and how to read the
answer is decided by functions that both call.

A request is repeated only when its connection failed, and only when that cannot do harm: always if it was never
sent, otherwise if it is marked repeatable. An answer, even an error, is never asked for twice.

httpx is imported on first use, because most importers of the SDK are worker children, which never send.
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from stoker import access
from stoker.client.errors import ConnectionFailed, Problem, ProblemError, StokerError, problem_error
from stoker.client.requests import Conversation, Request
from stoker.client.waits import Waits
from stoker.system import SYSTEM

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

CONNECT_TIMEOUT_SECONDS = 5.0
ANSWER_TIMEOUT_SECONDS = 30.0
# Pauses between tries: together a little longer than a coordinator takes to restart.
REPEAT_PAUSES_SECONDS = (0.1, 0.3, 1.0, 2.0)


class Transport:
    """A connection to one API, for any number of threads and event loops."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        pauses: tuple[float, ...] = REPEAT_PAUSES_SECONDS,
    ) -> None:
        from stoker.settings import client_target

        self.url, self._token = client_target(os.environ, url, token, access.given())
        self._pauses = pauses
        self.waits = Waits(self)
        self._begin()
        _transports.add(self)

    def _begin(self) -> None:
        self._client: httpx.Client | None = None
        # A connection belongs to the loop that opened it, so each loop has its own client.
        self._async_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            weakref.WeakKeyDictionary()
        )

    def run(self, conversation: Conversation[T]) -> T:
        """Hold a conversation to its end; its return value."""
        answer: Any = None
        while True:
            try:
                request = conversation.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            try:
                answer = self.send(request)
            except StokerError:
                if not request.optional:
                    raise
                answer = None

    async def run_async(self, conversation: Conversation[T]) -> T:
        """The same, without blocking the loop."""
        answer: Any = None
        while True:
            try:
                request = conversation.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            try:
                answer = await self.send_async(request)
            except StokerError:
                if not request.optional:
                    raise
                answer = None

    def send(self, request: Request) -> Any:
        """One exchange: the decoded answer, or an error of `stoker.errors`."""
        import httpx

        tries = iter(self._pauses)
        while True:
            try:
                response = self._sync_client().request(**_arguments(request))
            except httpx.TransportError as error:
                time.sleep(self._pause_or_raise(request, error, next(tries, None)))
            else:
                return _read(request, response)

    async def send_async(self, request: Request) -> Any:
        """The same, without blocking the loop."""
        import httpx

        tries = iter(self._pauses)
        while True:
            try:
                response = await self._async_client().request(**_arguments(request))
            except httpx.TransportError as error:
                await asyncio.sleep(self._pause_or_raise(request, error, next(tries, None)))
            else:
                return _read(request, response)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that blocking calls and waits opened."""
        self.waits.close()
        if self._client is not None:
            self._client.close()
            self._client = None

    async def aclose(self) -> None:
        """Close all connections, those of the running loop included."""
        await self.aclose_loop()
        self.close()

    async def aclose_loop(self) -> None:
        """Close the connections of the running loop alone."""
        client = self._async_clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def forget(self) -> None:
        """In a child process: let go of the connections, which are the parent's, without a word to the server."""
        _of_parents.append((self._client, list(self._async_clients.values())))
        self._begin()

    def _sync_client(self) -> httpx.Client:
        import httpx

        if self._client is None:
            self._client = httpx.Client(base_url=self.url, headers=self._headers())
        return self._client

    def _async_client(self) -> httpx.AsyncClient:
        import httpx

        loop = asyncio.get_running_loop()
        client = self._async_clients.get(loop)
        if client is None:
            client = httpx.AsyncClient(base_url=self.url, headers=self._headers())
            self._async_clients[loop] = client
        return client

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json, application/problem+json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def _pause_or_raise(self, request: Request, error: httpx.TransportError, pause: float | None) -> float:
        if pause is None or not _may_repeat(request, error):
            raise ConnectionFailed(self.url, str(error) or type(error).__name__) from error
        return pause


_transports: weakref.WeakSet[Transport] = weakref.WeakSet()
_of_parents: list[object] = []


def _forget_all() -> None:
    for transport in list(_transports):
        transport.forget()


SYSTEM.after_fork_in_child(_forget_all)


def _may_repeat(request: Request, error: httpx.TransportError) -> bool:
    import httpx

    never_sent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
    wrong_address = isinstance(error, (httpx.UnsupportedProtocol, httpx.ProxyError))
    return not wrong_address and (never_sent or request.repeatable)


def _arguments(request: Request) -> dict[str, Any]:
    """The exchange in httpx's terms."""
    import httpx

    headers = dict(request.headers)
    if request.body is not None:
        headers["Content-Type"] = "application/json"
    return {
        "method": request.method,
        "url": request.path,
        "params": request.params or None,
        "content": request.body,
        "headers": headers,
        "timeout": httpx.Timeout(
            ANSWER_TIMEOUT_SECONDS + request.wait_seconds, connect=CONNECT_TIMEOUT_SECONDS
        ),
    }


def _read(request: Request, response: httpx.Response) -> Any:
    """The decoded answer; raises a `ProblemError` for anything but success."""
    if not response.is_success:
        raise _problem(response)
    if not response.content:
        return None
    try:
        return msgspec.json.decode(response.content, type=request.answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProblemError(response.status_code, _not_stoker(request, f"{error}")) from None


def _problem(response: httpx.Response) -> ProblemError:
    try:
        problem = msgspec.json.decode(response.content, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = Problem(title=response.reason_phrase, request_id=response.headers.get("X-Request-ID"))
    return problem_error(response.status_code, problem, _retry_after(response))


def _not_stoker(request: Request, reason: str) -> Problem:
    return Problem(
        title="Unexpected answer",
        detail=f"the answer to {request.method} {request.path} is not what Stoker sends ({reason}); "
        "does STOKER_API_URL point at a Stoker of the same release?",
    )


def _retry_after(response: httpx.Response) -> float | None:
    try:
        return float(response.headers.get("Retry-After", ""))
    except ValueError:
        return None
