"""HTTP over blocking sockets, for any number of threads.

Each exchange takes a connection for itself, an idle one or else a new one. Connections are kept open for later exchanges.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Final

from stoker.client.http1 import AnswerReader, ExchangeError, RawAnswer, never_connected, no_answer
from stoker.client.target import ServerTarget, tls_context
from stoker.system import SYSTEM

if TYPE_CHECKING:
    import ssl

CONNECT_TIMEOUT_SECONDS: Final = 5.0
MAX_IDLE: Final = 32
"""The most idle connections that are kept."""
TRUSTED_IDLE_SECONDS: Final = 0.2
"""A connection that was idle for longer is checked before it is used: the server may have closed it."""
_READ_BYTES: Final = 64 * 1024


class SyncHttp:
    """Connections to one server, for blocking calls."""

    def __init__(self, target: ServerTarget) -> None:
        self._target = target
        self._tls: ssl.SSLContext | None = None
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_SyncConnection] = []
        self._open: set[_SyncConnection] = set()
        """All connections, also those in use, so that a forked child can close its copies."""
        self._era = 0
        """Grows with every `close`: connections of an earlier era are not kept."""

    def exchange(self, data: bytes, timeout: float, *, repeatable: bool) -> RawAnswer:
        """Send a request and return its answer. `timeout` bounds each silence of the server.

        A kept connection that turns out to be closed is replaced by a new one if the request may be repeated.
        """
        while True:
            connection, used = self._take(trusting=repeatable)
            try:
                answer = connection.exchange(data, timeout)
            except ExchangeError as error:
                self._drop(connection)
                if not (used and repeatable and error.lost and not error.answered):
                    raise
                self._drop_idle()
            except BaseException:
                self._drop(connection)
                raise
            else:
                self._give_back(connection)
                return answer

    def close(self) -> None:
        """Close idle connections. Those in use are closed after their exchange."""
        self._era += 1
        self._drop_idle()

    def forget(self) -> None:
        """In a forked child: close the child's copies of the parent's sockets, which stay open in the parent."""
        connections = list(self._open)
        self._begin()
        for connection in connections:
            connection.detach()

    def _take(self, *, trusting: bool) -> tuple[_SyncConnection, bool]:
        """Return a connection, and whether it was used before."""
        now = time.monotonic()
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread took it
                break
            since = now - connection.idle_since
            if (trusting and since < TRUSTED_IDLE_SECONDS) or connection.is_quiet():
                return connection, True
            self._drop(connection)
        return self._connect(), False

    def _connect(self) -> _SyncConnection:
        era = self._era
        target = self._target
        try:
            raw = socket.create_connection((target.host, target.port), timeout=CONNECT_TIMEOUT_SECONDS)
        except (OSError, UnicodeError) as error:
            raise never_connected(error, CONNECT_TIMEOUT_SECONDS) from error
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _SyncConnection(self._secured(raw), era)
        except OSError as error:
            raw.close()
            raise never_connected(error, CONNECT_TIMEOUT_SECONDS) from error
        except BaseException:
            raw.close()
            raise
        with self._lock:
            self._open.add(connection)
        return connection

    def _secured(self, raw: socket.socket) -> socket.socket:
        if not self._target.is_tls:
            return raw
        if self._tls is None:
            self._tls = tls_context()
        return self._tls.wrap_socket(raw, server_hostname=self._target.host)

    def _give_back(self, connection: _SyncConnection) -> None:
        if connection.reusable and connection.era == self._era and len(self._idle) < MAX_IDLE:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
            if connection.era != self._era:  # `close` was called between the two checks
                self._drop_idle()
        else:
            self._drop(connection)

    def _drop(self, connection: _SyncConnection) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.close()

    def _drop_idle(self) -> None:
        while self._idle:
            try:
                self._drop(self._idle.pop())
            except IndexError:  # another thread took it
                return


class _SyncConnection:
    """One socket."""

    __slots__ = ("_reader", "_socket", "_timeout", "era", "idle_since")

    def __init__(self, connected: socket.socket, era: int) -> None:
        self._socket = connected
        self._reader = AnswerReader()
        self._timeout = 0.0
        self.era = era
        self.idle_since = 0.0

    @property
    def reusable(self) -> bool:
        return self._reader.reusable

    def exchange(self, data: bytes, timeout: float) -> RawAnswer:
        connected, reader = self._socket, self._reader
        if timeout != self._timeout:
            SYSTEM.set_timeout(connected, timeout)
            self._timeout = timeout
        refused: OSError | None = None
        try:
            connected.sendall(data)
        except (TimeoutError, BlockingIOError):
            raise no_answer(timeout) from None
        except OSError as error:  # the server may have answered before it had read everything
            refused = error
        try:
            while received := connected.recv(_READ_BYTES):
                answer = reader.feed(received)
                if answer is not None:
                    if refused is not None:
                        reader.reusable = False
                    return answer
        except (TimeoutError, BlockingIOError):
            raise no_answer(timeout) from None
        except OSError as error:
            raise ExchangeError(str(error), sent=True, answered=reader.began, lost=True) from error
        return reader.feed_eof()

    def is_quiet(self) -> bool:
        """Return whether there is nothing to read, as on a connection that the server has not closed."""
        from stoker.system.readable import (
            has_input,
        )  # short programs do not need it, and start faster without it

        try:
            return not has_input(self._socket)
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        self._socket.close()

    def detach(self) -> None:
        """Close this process's copy of the socket, and send nothing."""
        self._socket.close()
