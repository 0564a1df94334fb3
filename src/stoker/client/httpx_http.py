"""HTTP by httpx, for servers that the SDK's own client cannot reach: those behind a proxy, and other rare cases.

It has the methods of `OwnHttp`.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Final

import httpx

from stoker.client.http1 import ExchangeError, RawAnswer
from stoker.client.sync_http import CONNECT_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from stoker.client.requests import ApiRequest

_of_parents: Final[list[object]] = []
_NO_PROXY: Final = (ImportError, ValueError, httpx.InvalidURL)
"""What httpx raises for a proxy that it cannot use: SOCKS without the package `socksio`, or an address that is none."""


class HttpxHttp:
    """Connections to one server, for blocking calls and for event loops."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = headers
        self._begin()

    def _begin(self) -> None:
        self._client: httpx.Client | None = None
        self._async_clients: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, tuple[httpx.AsyncClient, AsyncGenerator[None]]
        ] = weakref.WeakKeyDictionary()
        """Of each loop its client, and what closes it at the end of `asyncio.run`, which ends all async generators."""

    def exchange(self, request: ApiRequest, timeout: float) -> RawAnswer:
        """Send a request and return its answer."""
        if self._client is None:
            try:
                self._client = httpx.Client(base_url=self._url, headers=self._headers)
            except _NO_PROXY as error:
                raise _unusable(error) from error
        try:
            return _answer(self._client.request(**_arguments(request, timeout)))
        except httpx.RequestError as error:
            raise _failure(error) from error

    async def exchange_async(self, request: ApiRequest, timeout: float) -> RawAnswer:
        """Exchange without blocking the loop."""
        client, _ = self._async_clients.get(asyncio.get_running_loop()) or await self._join()
        try:
            return _answer(await client.request(**_arguments(request, timeout)))
        except httpx.RequestError as error:
            raise _failure(error) from error

    async def _join(self) -> tuple[httpx.AsyncClient, AsyncGenerator[None]]:
        try:
            client = httpx.AsyncClient(base_url=self._url, headers=self._headers)
        except _NO_PROXY as error:
            raise _unusable(error) from error
        ending = _until_the_loop_ends(client)
        self._async_clients[asyncio.get_running_loop()] = client, ending
        await anext(ending)
        return client, ending

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    async def aclose_loop(self) -> None:
        _, ending = self._async_clients.pop(asyncio.get_running_loop(), (None, None))
        if ending is not None:
            await ending.aclose()

    def forget(self) -> None:
        """In a forked child: forget the parent's connections, and send nothing on them."""
        _of_parents.append((self._client, list(self._async_clients.values())))
        self._begin()


async def _until_the_loop_ends(client: httpx.AsyncClient) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await client.aclose()


def _unusable(error: Exception) -> ExchangeError:
    reason = f"the proxy that HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names cannot be used: {error}"
    return ExchangeError(reason, sent=False, hopeless=True)


def _arguments(request: ApiRequest, timeout: float) -> dict[str, Any]:
    headers = dict(request.headers)
    if request.body is not None:
        headers["Content-Type"] = "application/json"
    return {
        "method": request.method,
        "url": request.path,
        "params": dict(request.params) or None,
        "content": request.body,
        "headers": headers,
        "timeout": httpx.Timeout(timeout, connect=CONNECT_TIMEOUT_SECONDS),
    }


def _answer(response: httpx.Response) -> RawAnswer:
    reason = response.reason_phrase.encode()
    return RawAnswer(response.status_code, reason, response.headers.raw, response.content)


def _failure(error: httpx.RequestError) -> ExchangeError:
    sent = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
    wrong_address = isinstance(error, (httpx.UnsupportedProtocol, httpx.ProxyError))
    silent = isinstance(error, (httpx.ReadTimeout, httpx.WriteTimeout))
    return ExchangeError(str(error) or type(error).__name__, sent=sent, silent=silent, hopeless=wrong_address)
