"""The SDK's own HTTP client: sends requests over kept-alive connections, blocking or on event loops."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING

from stoker.client.http1 import RawAnswer, RequestHead
from stoker.client.sync_http import SyncHttp
from stoker.client.target import ServerTarget

if TYPE_CHECKING:
    from stoker.client.async_http import AsyncHttp
    from stoker.client.requests import ApiRequest


class OwnHttp:
    """Connections to one server, for blocking calls and for event loops."""

    def __init__(self, target: ServerTarget, headers: Mapping[str, str]) -> None:
        self._target = target
        self._head = RequestHead(target.host_header, target.prefix, headers)
        self._sync = SyncHttp(target)
        self._async: AsyncHttp | None = None
        weakref.finalize(self, self._sync.close)

    def exchange(self, request: ApiRequest, timeout: float) -> RawAnswer:
        """Send a request and return its answer. Raises `ExchangeError`."""
        return self._sync.exchange(self._bytes(request), timeout, repeatable=request.repeatable)

    async def exchange_async(self, request: ApiRequest, timeout: float) -> RawAnswer:
        """Exchange without blocking the loop."""
        if self._async is None:
            from stoker.client.async_http import (
                AsyncHttp,  # programs without an event loop never load asyncio
            )

            self._async = AsyncHttp(self._target)
        return await self._async.exchange(self._bytes(request), timeout, repeatable=request.repeatable)

    def close(self) -> None:
        """Close the connections of blocking calls."""
        self._sync.close()

    async def aclose_loop(self) -> None:
        """Close the connections of the running loop."""
        if self._async is not None:
            await self._async.aclose_loop()

    def forget(self) -> None:
        """In a forked child: forget the parent's connections, and send nothing on them."""
        self._sync.forget()
        if self._async is not None:
            self._async.forget()

    def _bytes(self, request: ApiRequest) -> bytes:
        return self._head.request(request.method, request.path, request.params, request.headers, request.body)
