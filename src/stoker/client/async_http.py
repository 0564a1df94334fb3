"""HTTP on event loops. A connection belongs to the loop that opened it, so each loop has its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import weakref
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

from stoker.client.http1 import AnswerReader, ExchangeError, RawAnswer, never_connected, no_answer
from stoker.client.sync_http import CONNECT_TIMEOUT_SECONDS, MAX_IDLE
from stoker.client.target import ServerTarget, tls_context

if TYPE_CHECKING:
    import ssl

_of_parents: list[object] = []
"""In a forked child: connections of the parent's loops. They are kept, since closing them would affect the parent's."""


class AsyncHttp:
    """Connections to one server, for event loops."""

    def __init__(self, target: ServerTarget) -> None:
        self._target = target
        self._tls: ssl.SSLContext | None = None
        self._begin()

    def _begin(self) -> None:
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _OfLoop] = (
            weakref.WeakKeyDictionary()
        )

    async def exchange(self, data: bytes, timeout: float, *, repeatable: bool) -> RawAnswer:
        """Send a request and return its answer, like `SyncHttp.exchange`."""
        loop = asyncio.get_running_loop()
        mine = self._loops.get(loop)
        if mine is None:
            mine = await self._join(loop)
        while True:
            connection = mine.take()
            used = connection is not None
            if connection is None:
                connection = await self._connect(loop, mine)
            try:
                answer = await connection.exchange(data, timeout)
            except ExchangeError as error:
                if not (used and repeatable and error.lost and not error.answered):
                    raise
                mine.drop_idle()
            else:
                mine.give_back(connection)
                return answer

    async def aclose_loop(self) -> None:
        """Close the connections of the running loop."""
        mine = self._loops.pop(asyncio.get_running_loop(), None)
        if mine is not None:
            await mine.aclose()

    def forget(self) -> None:
        """In a forked child: let go of the parent's connections."""
        _of_parents.append(list(self._loops.values()))
        self._begin()

    async def _join(self, loop: asyncio.AbstractEventLoop) -> _OfLoop:
        mine = self._loops[loop] = _OfLoop(self._loops, loop)
        await mine.begin()
        return mine

    async def _connect(self, loop: asyncio.AbstractEventLoop, mine: _OfLoop) -> _AsyncConnection:
        target = self._target
        if target.is_tls and self._tls is None:
            self._tls = tls_context()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                _, protocol = await loop.create_connection(
                    lambda: _AsyncConnection(loop), target.host, target.port, ssl=self._tls
                )
        except (OSError, UnicodeError) as error:
            raise never_connected(error, CONNECT_TIMEOUT_SECONDS) from error
        mine.opened(protocol)
        return protocol


class _OfLoop:
    """The connections of one loop."""

    def __init__(
        self,
        all_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _OfLoop],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._all = weakref.ref(all_loops)
        self._loop = weakref.ref(loop)
        self._idle: list[_AsyncConnection] = []
        self._open: set[_AsyncConnection] = set()
        self._ending: AsyncIterator[None] | None = None
        self._closed = False

    async def begin(self) -> None:
        """Arrange that `asyncio.run` closes the connections before it closes the loop: it ends all async generators."""
        ending = self._until_the_loop_ends()
        self._ending = ending
        await anext(ending)

    async def _until_the_loop_ends(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self._close()

    def take(self) -> _AsyncConnection | None:
        """Return an idle connection that is still open."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return None

    def opened(self, connection: _AsyncConnection) -> None:
        self._open = {other for other in self._open if not other.closed}
        self._open.add(connection)

    def give_back(self, connection: _AsyncConnection) -> None:
        if connection.reusable and not self._closed and len(self._idle) < MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def aclose(self) -> None:
        ends = [connection.ended for connection in self._open if not connection.ended.done()]
        if self._ending is not None:
            await self._ending.aclose()  # type: ignore[attr-defined]
        self._close()
        if ends:
            await asyncio.wait(ends)

    def _close(self) -> None:
        self._closed = True
        self._idle.clear()
        for connection in self._open:
            connection.close()
        self._open.clear()
        loop, all_loops = self._loop(), self._all()
        if loop is not None and all_loops is not None and all_loops.get(loop) is self:
            del all_loops[loop]


class _AsyncConnection(asyncio.Protocol):
    """One connection of a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._reader = AnswerReader()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[RawAnswer] | None = None
        self._timeout = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.closed = False
        self.ended: asyncio.Future[None] = loop.create_future()

    @property
    def reusable(self) -> bool:
        return self._reader.reusable and not self.closed

    async def exchange(self, data: bytes, timeout: float) -> RawAnswer:
        """Send a request and return its answer. On any error, the connection is closed."""
        if self.closed or self._transport is None:
            raise ExchangeError("the connection was closed", sent=False, lost=True)
        waiter: asyncio.Future[RawAnswer] = self._loop.create_future()
        self._waiter = waiter
        self._timeout = timeout
        self._timer = self._loop.call_later(timeout, self._give_up)
        self._transport.write(data)
        try:
            return await waiter
        except BaseException:
            self.close()
            raise
        finally:
            self._waiter = None
            self._timer.cancel()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self._transport is not None:
                self._transport.abort()

    def _give_up(self) -> None:
        self._fail(no_answer(self._timeout))

    def _fail(self, error: ExchangeError) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    # --- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:  # an answer without a request
            self.close()
            return
        try:
            answer = self._reader.feed(data)
        except ExchangeError as error:
            self._fail(error)
            return
        if answer is not None:
            if not self._waiter.done():
                self._waiter.set_result(answer)
        elif self._timer is not None:  # the timeout is for each silence, not for the whole answer
            self._timer.cancel()
            self._timer = self._loop.call_later(self._timeout, self._give_up)

    def eof_received(self) -> bool:
        if self._waiter is not None and not self._waiter.done():
            try:
                self._waiter.set_result(self._reader.feed_eof())
            except ExchangeError as error:
                self._fail(error)
        self.close()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        reason = str(exc) if exc is not None else "the connection was closed"
        self._fail(ExchangeError(reason, sent=True, answered=self._reader.began, lost=True))
        if not self.ended.done():
            self.ended.set_result(None)
