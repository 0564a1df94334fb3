"""A TCP proxy that breaks connections: all at once, or between a COMMIT and its answer.

A statement that writes jobs outside of a transaction is a COMMIT as well. It may be cut off before the server hears of it,
or after the server has carried it out; the client cannot tell the two apart, which is what it is for.
"""

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable
from typing import Final, Literal, Protocol, Self

from tests.support.servers import free_port

COMMIT: Final = b"Q\x00\x00\x00\x0bCOMMIT\x00"
WRITES_JOBS: Final = (b"INSERT INTO stoker.jobs", b"DELETE FROM stoker.jobs")
SYNC: Final = b"S\x00\x00\x00\x04"
IDLE: Final = b"Z\x00\x00\x00\x05I"
"""The server is ready, and no transaction has begun."""
CHUNK: Final = 256 * 1024
Fate = Literal["pass", "before", "after"]


class Listener(Protocol):
    """Hears what passes on one connection, before it is handed on."""

    def up(self, data: bytes) -> None: ...
    def down(self, data: bytes) -> None: ...


class Deaf:
    def up(self, data: bytes) -> None:
        pass

    def down(self, data: bytes) -> None:
        pass


class Proxy:
    """Listens on `port` and forwards to `target`. Every `cut_every`-th COMMIT ends its connection (0: none). Each connection
    gets a listener of its own."""

    def __init__(self, target: int, *, cut_every: int = 0, listen: Callable[[], Listener] = Deaf) -> None:
        self.target = target
        self.cut_every = cut_every
        self.listen = listen
        self.cuts = {"before": 0, "after": 0}
        self.port = free_port()
        self.refusing = False
        """Connections are closed as soon as they are made."""
        self._closed = False
        self._commits = itertools.count(1)
        self._lock = threading.Lock()
        self._pairs: set[Pair] = set()
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=200)
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> int:
        """End every connection there is, with a reset; how many they were."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            pair.end()
        return len(pairs)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                continue
            try:
                self._join(client)
            except OSError:  # nobody is there, or the client left already
                client.close()

    def _join(self, client: socket.socket) -> None:
        if self.refusing:
            raise OSError("refused, as told")
        server = socket.create_connection(("127.0.0.1", self.target), timeout=10)
        server.settimeout(None)
        try:
            pair = Pair(self, client, server)
        except OSError:
            server.close()
            raise
        with self._lock:
            self._pairs.add(pair)
        pair.start()

    def forget(self, pair: "Pair") -> None:
        with self._lock:
            self._pairs.discard(pair)

    def fate(self) -> Fate:
        """What becomes of the COMMIT that a client has just sent."""
        if not self.cut_every:
            return "pass"
        number = next(self._commits)
        if number % self.cut_every:
            return "pass"
        # One in four is lost on the way to the server.
        fate: Literal["before", "after"] = "before" if number // self.cut_every % 4 == 0 else "after"
        with self._lock:
            self.cuts[fate] += 1
        return fate


class Commits:
    """Recognises what commits on one connection, from what passes on it. A PostgreSQL client first prepares a statement
    (`P`, with a name and the text), then runs it by its name (`B`, with a portal and the name)."""

    def __init__(self) -> None:
        self.idle = False
        self._writing: set[bytes] = set()
        """Names of prepared statements that write jobs."""

    def is_commit(self, data: bytes) -> bool:
        kind, words = data[:1], data[5:]
        if kind == b"P":
            name, _, text = words.partition(b"\x00")
            if any(begin in text for begin in WRITES_JOBS):
                self._writing.add(name)
        elif kind == b"B" and self.idle and data.endswith(SYNC):
            return words.split(b"\x00", 2)[1] in self._writing
        return data.endswith(COMMIT)


class Pair:
    """A connection of a client and the one to the server that belongs to it."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._answer_lost = False
        self._listener = proxy.listen()
        self._commits = Commits()
        for line in (client, server):
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        for work in (self._upstream, self._downstream):
            threading.Thread(target=work, daemon=True).start()

    def end(self) -> None:
        self._proxy.forget(self)
        for line in (self._client, self._server):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()

    def _upstream(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._client.recv(CHUNK):
                fate = self._proxy.fate() if self._commits.is_commit(data) else "pass"
                if fate == "before":
                    break
                self._answer_lost = fate == "after"
                self._listener.up(data)
                self._server.sendall(data)
        if not self._answer_lost:  # else the answer, once it is there, ends the connection
            self.end()

    def _downstream(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(CHUNK):
                if self._answer_lost:
                    break
                self._commits.idle = data.endswith(IDLE)
                self._listener.down(data)
                self._client.sendall(data)
        self.end()
