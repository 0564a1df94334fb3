"""Sends all requests of the SDK to the API.

`send` and `send_async` differ only in how they wait: functions that both call decide what to send, whether to repeat it and
how to read the answer.

A request is repeated only when its connection failed, and only when that is safe: always if it was never sent, otherwise if
it is marked repeatable, also when a load balancer answers that it reached no coordinator. A request that
a coordinator answered, even with an error, is not repeated.

Requests are sent by the SDK's own HTTP client (`stoker.client.own_http`), or by httpx where that cannot be used, such as
through a proxy. httpx is imported only then.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import msgspec

from stoker import access
from stoker.client.errors import ConnectionFailed, Problem, ProblemError, StokerError, problem_error
from stoker.client.http1 import ExchangeError, RawAnswer
from stoker.client.requests import ApiRequest, Conversation
from stoker.client.waits import ClientWaits
from stoker.system import SYSTEM

if TYPE_CHECKING:
    from stoker.client.submits import Submits

T = TypeVar("T")

ANSWER_TIMEOUT_SECONDS = 30.0
# Pauses between tries: together a little longer than a coordinator takes to restart.
REPEAT_PAUSES_SECONDS = (0.1, 0.3, 1.0, 2.0, 3.0)

NO_COORDINATOR = (502, 503, 504)
"""What a load balancer answers when it reaches no coordinator, or gets no answer from one."""


class Http(Protocol):
    """An HTTP client: `OwnHttp` or `HttpxHttp`."""

    def exchange(self, request: ApiRequest, timeout: float) -> RawAnswer: ...

    async def exchange_async(self, request: ApiRequest, timeout: float) -> RawAnswer: ...

    def close(self) -> None: ...

    async def aclose_loop(self) -> None: ...

    def forget(self) -> None: ...


class Transport:
    """The connections to one API, for any number of threads and event loops."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        pauses: tuple[float, ...] = REPEAT_PAUSES_SECONDS,
    ) -> None:
        from stoker.settings import client_target

        self.url, self._token = client_target(os.environ, url, token, access.given())
        self._pauses = pauses
        self.waits = ClientWaits(self)
        self._made: Http | None = None
        self._making = threading.Lock()
        _transports.add(self)

    def _http(self) -> Http:
        """Return the HTTP client, made on first use. Making it opens no connection."""
        if self._made is None:
            with self._making:
                if self._made is None:
                    self._made = self._make()
        return self._made

    def _make(self) -> Http:
        from stoker.client.target import own_target

        target = own_target(self.url, os.environ)
        if target is None:
            from stoker.client.httpx_http import HttpxHttp

            return HttpxHttp(self.url, self._headers())
        from stoker.client.own_http import OwnHttp

        return OwnHttp(target, self._headers())

    @cached_property
    def submits(self) -> Submits:
        """Return the object that submits jobs to this API."""
        from stoker.client.submits import Submits

        return Submits(self)

    def run(self, conversation: Conversation[T]) -> T:
        """Send the requests of a conversation in turn and return what it returns."""
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
        """Do what `run` does, without blocking the loop."""
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

    def send(self, request: ApiRequest) -> Any:
        """Send a request and return the decoded answer. Raises an error of `stoker.errors`."""
        return _read(request, self.exchange(request))

    async def send_async(self, request: ApiRequest) -> Any:
        """Do what `send` does, without blocking the loop."""
        return _read(request, await self.exchange_async(request))

    def exchange(self, request: ApiRequest) -> RawAnswer:
        """Send a request and return the raw answer, whatever its status. Raises `ConnectionFailed`."""
        http = self._made or self._http()
        failures = 0
        while True:
            try:
                answer = http.exchange(request, ANSWER_TIMEOUT_SECONDS + request.wait_seconds)
            except ExchangeError as error:
                pause = self._pause_or_raise(request, error, failures)
            else:
                if answer.status < 500 or not self._may_ask_again(request, answer, failures):
                    return answer
                pause = self._pauses[failures]
            time.sleep(pause)
            failures += 1

    async def exchange_async(self, request: ApiRequest) -> RawAnswer:
        """Do what `exchange` does, without blocking the loop."""
        http = self._made or self._http()
        failures = 0
        while True:
            try:
                answer = await http.exchange_async(request, ANSWER_TIMEOUT_SECONDS + request.wait_seconds)
            except ExchangeError as error:
                pause = self._pause_or_raise(request, error, failures)
            else:
                if answer.status < 500 or not self._may_ask_again(request, answer, failures):
                    return answer
                pause = self._pauses[failures]
            await asyncio.sleep(pause)
            failures += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that blocking calls and waits opened."""
        self.waits.close()
        if self._made is not None:
            self._made.close()

    async def aclose(self) -> None:
        """Close all connections, those of the running loop included."""
        await self.aclose_loop()
        self.close()

    async def aclose_loop(self) -> None:
        """Close the connections of the running loop alone."""
        if self._made is not None:
            await self._made.aclose_loop()

    def forget(self) -> None:
        """In a forked child: forget the parent's connections, and send nothing on them."""
        self._making = threading.Lock()
        if "submits" in self.__dict__:
            self.submits.forget()
        if self._made is not None:
            self._made.forget()

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json, application/problem+json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def _pause_or_raise(self, request: ApiRequest, error: ExchangeError, failures: int) -> float:
        """Return how many seconds to wait before the next try. Raises `ConnectionFailed` if there is none."""
        # A server that keeps silent takes half a minute each time, so it is asked only once more.
        hopeless = error.hopeless or (error.silent and failures > 0)
        may_repeat = not hopeless and (request.repeatable or not error.sent)
        if not may_repeat or failures >= len(self._pauses):
            raise ConnectionFailed(self.url, str(error)) from error
        return self._pauses[failures]

    def _may_ask_again(self, request: ApiRequest, answer: RawAnswer, failures: int) -> bool:
        """Return whether a load balancer gave this answer, and the next may come from a coordinator."""
        if answer.status not in NO_COORDINATOR or not request.repeatable or _problem(answer) is not None:
            return False
        # A 504 takes a load balancer long, like a server that keeps silent.
        return failures < (min(1, len(self._pauses)) if answer.status == 504 else len(self._pauses))


_transports: weakref.WeakSet[Transport] = weakref.WeakSet()


def _forget_all() -> None:
    for transport in list(_transports):
        transport.forget()


SYSTEM.after_fork_in_child(_forget_all)


def _read(request: ApiRequest, answer: RawAnswer) -> Any:
    """Return the decoded answer. Raises `ProblemError` for anything but success."""
    if not 200 <= answer.status < 300:
        raise problem_of(answer)
    if not answer.body:
        return None
    try:
        return msgspec.json.decode(answer.body, type=request.answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise not_stoker(request, answer, f"{error}") from None


def problem_of(answer: RawAnswer) -> ProblemError:
    """Return the error for an answer that is not a success."""
    problem = _problem(answer)
    if problem is None:
        title = answer.reason.decode("latin-1")
        strange = answer.status not in NO_COORDINATOR
        detail = f"{title}; this is not an answer of Stoker: is STOKER_API_URL right?" if strange else ""
        problem = Problem(title=title, detail=detail, request_id=answer.header("x-request-id"))
    return problem_error(answer.status, problem, retry_after(answer))


def _problem(answer: RawAnswer) -> Problem | None:
    """Return the problem document of an answer; None if it has none, and so is not a coordinator's."""
    try:
        return msgspec.json.decode(answer.body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def not_stoker(request: ApiRequest, answer: RawAnswer, reason: str) -> ProblemError:
    """Return the error for an answer that no Stoker sends."""
    problem = Problem(
        title="Unexpected answer",
        detail=f"the answer to {request.method} {request.path} is not what Stoker sends ({reason}); "
        "does STOKER_API_URL point at a Stoker of the same release?",
    )
    return ProblemError(answer.status, problem)


def retry_after(answer: RawAnswer) -> float | None:
    """Return the seconds of the Retry-After header, or None."""
    try:
        return float(answer.header("retry-after") or "")
    except ValueError:
        return None
