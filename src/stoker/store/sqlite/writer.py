"""Where transactions run: the statements on the caller's thread, the commit on a thread of its own.

The statements of a transaction are short and hold the interpreter anyway, so a second thread would only make two threads
fight over it (docs/decisions/0002). The commit waits for the disk, so it goes to the writer's thread and the event
loop goes on serving while the disk works; only when few callers wait and the disk has been quick is it made on
the caller's thread too, which saves two hops between threads. The connection is never used by both at once: a transaction
awaits its commit before the next begins.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Protocol, TypeVar

import apsw

from stoker.domain.errors import StoreUnavailable

T = TypeVar("T")
BUSY_MS: Final = 5_000
QUICK_SECONDS: Final = 0.002
"""Statements that took longer than this have much to commit."""
QUICK_COMMIT_SECONDS: Final = 0.005
"""While commits take less than this, the event loop can wait for one."""


class SqliteWriter(Protocol):
    async def transact(self, work: Callable[[], T], *, alone: bool) -> T:
        """Run `work` inside one transaction; return its value once it is durable. If anything fails nothing was done.
        `alone` says that few callers wait."""
        ...

    def close(self) -> None: ...


class StatementThread:
    """A thread that runs one statement after the other for an event loop. An executor would do, at the price of several
    locks for each of them, and a busy store commits hundreds of times a second."""

    def __init__(self, db: apsw.Connection, name: str) -> None:
        self._db = db
        self._orders: SimpleQueue[tuple[asyncio.Future[float], str] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def execute(self, statement: str) -> asyncio.Future[float]:
        """Run it there. The future is done when it is, with the seconds that it took there, or its error."""
        future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._orders.put((future, statement))
        return future

    def close(self) -> None:
        """Run what was ordered, and end."""
        self._orders.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            future, statement = order
            error: Exception | None = None
            began = time.monotonic()
            try:
                self._db.execute(statement)
            except Exception as raised:  # noqa: BLE001 - the awaiting caller decides
                error = raised
            seconds = time.monotonic() - began
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no caller awaits it
                future.get_loop().call_soon_threadsafe(_settle, future, seconds, error)


def _settle(future: asyncio.Future[float], seconds: float, error: Exception | None) -> None:
    if future.done():  # cancelled meanwhile
        return
    if error is None:
        future.set_result(seconds)
    else:
        future.set_exception(error)


class ThreadWriter:
    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self._db.set_busy_timeout(0)
        self._thread = StatementThread(db, "stoker-commit")
        self._usual_seconds = 0.0

    async def transact(self, work: Callable[[], T], *, alone: bool) -> T:
        loop = asyncio.get_running_loop()
        try:
            await self._begin()
            try:
                began = loop.time()
                result = work()
                # A transaction that was long in the making has much to write: large payloads, say.
                await self._commit(alone=alone and loop.time() - began < QUICK_SECONDS)
            except BaseException:
                self._roll_back()
                raise
        except apsw.Error as error:
            raise StoreUnavailable(
                f"the database refused the transaction ({error}); nothing was changed"
            ) from error
        return result

    async def _commit(self, *, alone: bool) -> None:
        # Two hops between threads cost more than a fast disk does. When no other command waits and the disk has been
        # fast, it is quicker for all to wait for it here; one slow commit is enough to go back to the thread. Only the
        # commit itself is measured: the way to the thread and back says how busy the loop is, not how slow the disk.
        if alone and self._usual_seconds < QUICK_COMMIT_SECONDS:
            began = time.monotonic()
            self._db.execute("COMMIT")
            seconds = time.monotonic() - began
        else:
            seconds = await self._thread.execute("COMMIT")
        self._usual_seconds = max(seconds, self._usual_seconds + (seconds - self._usual_seconds) * 0.1)

    async def _begin(self) -> None:
        # No other process writes to this file in normal operation, so the lock is free; when one does (a shell, a backup),
        # the wait for it must not stop the event loop.
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            self._db.set_busy_timeout(BUSY_MS)
            try:
                await self._thread.execute("BEGIN IMMEDIATE")
            finally:
                self._db.set_busy_timeout(0)

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def close(self) -> None:
        self._thread.close()


class InlineWriter:
    """Everything on the caller's thread: for tests and simulation, where threads would make time unreal."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    async def transact(self, work: Callable[[], T], *, alone: bool) -> T:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                result = work()
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        except apsw.Error as error:
            raise StoreUnavailable(
                f"the database refused the transaction ({error}); nothing was changed"
            ) from error
        return result

    def close(self) -> None:
        pass
