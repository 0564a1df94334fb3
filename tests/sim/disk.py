"""The store under a simulation: the real SQL inline, on a disk that is slow, full or broken when the world says so, and
optionally behind a network, as PostgreSQL is, where an answer can be lost after the commit.

A journal (temporary triggers, so it lives and dies with the transaction) notes every change of a job's status or claim at
the moment it is committed: the checkers read it, never the coordinator's word.
"""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, TypeVar, cast

import apsw

from stoker.clock import SECOND
from stoker.domain.errors import StoreUnavailable
from stoker.store.base import Store
from stoker.store.claims import ClaimSource
from stoker.store.sqlite.store import SqliteStore
from stoker.testing.loop import Process, SimLoop
from stoker.testing.net import Weather
from tests.checkers.history import Change

T = TypeVar("T")

START_US = 1_800_000_000 * SECOND

_JOURNAL = """
CREATE TEMP TABLE journal (id TEXT, old TEXT, new TEXT, claim INTEGER, attempt INTEGER, worker TEXT);
CREATE TEMP TRIGGER journal_insert AFTER INSERT ON main.jobs BEGIN
    INSERT INTO journal VALUES (NEW.id, NULL, NEW.status, NEW.claim_id, NEW.attempt, NEW.worker_id);
END;
CREATE TEMP TRIGGER journal_update AFTER UPDATE ON main.jobs
WHEN OLD.status IS NOT NEW.status OR OLD.claim_id IS NOT NEW.claim_id BEGIN
    INSERT INTO journal VALUES (NEW.id, OLD.status, NEW.status, NEW.claim_id, NEW.attempt,
                                coalesce(NEW.worker_id, OLD.worker_id));
END;
CREATE TEMP TRIGGER journal_delete AFTER DELETE ON main.jobs BEGIN
    INSERT INTO journal VALUES (OLD.id, OLD.status, NULL, OLD.claim_id, OLD.attempt, OLD.worker_id);
END;
"""


class SimClock:
    """The wall clock of one host, which can be set, over the one virtual time."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.offset = 0.0
        self.furthest = 0.0

    def now_us(self) -> int:
        return START_US + int((self._loop.time() + self.offset) * SECOND)

    def monotonic(self) -> float:
        return self._loop.time()

    def jump(self, seconds: float) -> None:
        self.offset += seconds
        self.furthest = max(self.furthest, self.offset)


class Disk:
    """How the disk is at the moment."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.full = 0
        """How many times it is full: each of them has to end."""
        self.failing = 0
        """So many commits fail, cleanly."""
        self.slow = 0.0
        """Commits take up to so many seconds longer."""

    def seconds(self) -> float:
        seconds = self.random.uniform(0.00005, 0.0015)
        if self.slow and self.random.random() < 0.5:
            seconds += self.random.uniform(0.0, self.slow)
        return seconds

    def check(self) -> None:
        if self.full:
            raise apsw.FullError("database or disk is full")
        if self.failing > 0:
            self.failing -= 1
            raise apsw.IOError("disk I/O error")


class SimWriter:
    """Statements and commit as the real writer makes them, the wait for the disk in virtual time."""

    def __init__(self, db: apsw.Connection, disk: Disk, committed: Callable[[list[Change]], None]) -> None:
        self._db = db
        self._disk = disk
        self._committed = committed
        for _ in db.execute(_JOURNAL):
            pass

    async def transact(self, work: Callable[[], T], *, alone: bool) -> T:
        db, disk = self._db, self._disk
        try:
            db.execute("BEGIN IMMEDIATE")
            try:
                result = work()
                rows = self._rows()
                if not (disk.full or disk.failing):
                    await asyncio.sleep(disk.seconds())
                disk.check()
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        except apsw.Error as error:
            raise StoreUnavailable(
                f"the database refused the transaction ({error}); nothing was changed"
            ) from error
        at = asyncio.get_running_loop().time()
        self._committed([Change(at, *row) for row in rows])
        await asyncio.sleep(0)  # durable, and nobody knows yet
        return result

    def _rows(self) -> list[tuple[Any, ...]]:
        rows = self._db.execute("SELECT * FROM temp.journal ORDER BY rowid").fetchall()
        if rows:
            self._db.execute("DELETE FROM temp.journal")
        return rows

    def close(self) -> None:
        pass


async def open_store(
    path: Path, clock: SimClock, disk: Disk, committed: Callable[[list[Change]], None]
) -> SqliteStore:
    store = await SqliteStore.open(path, clock, threads=False)
    store._db.execute("PRAGMA synchronous = OFF")  # only processes die here, never the machine under the file
    store._writer = SimWriter(store._db, disk, committed)
    return store


def drop_store(store: SqliteStore) -> None:
    """What the kernel does to the files of a killed process: nothing is committed, the lock is free."""
    store._reads.close(True)
    store._file.drop()


class RemoteStore:
    """The store's verbs over a network, as a coordinator on that host sees them."""

    def __init__(self, database: "Database", random: Random, process: Process, host: str) -> None:
        self._database = database
        self._host = host
        self._random = random
        self._process = process
        self._claims_for: ClaimSource | None = None
        self._claiming = False

    shared = True

    def now_us(self) -> int:
        return self._database.clock.now_us()

    def claim_for(self, source: ClaimSource | None) -> None:
        self._claims_for = source

    def claim_soon(self) -> None:
        """No transaction of this coordinator opens here, so each claim is a request of its own."""
        if self._claims_for is not None and not self._claiming:
            self._claiming = True
            self._process.spawn(self._claim())

    async def _claim(self) -> None:
        try:
            while (source := self._claims_for) is not None and (request := source.request()) is not None:
                try:
                    granted = await self.claim(request)
                except StoreUnavailable as error:
                    source.refused(error)
                else:
                    source.granted(granted)
        finally:
            self._claiming = False

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        if not inspect.iscoroutinefunction(getattr(SqliteStore, verb)):
            return lambda *_: None  # hints and hooks: whoever listens hears nothing, and must do without

        async def call(*arguments: Any, **named: Any) -> Any:
            question = functools.partial(_ask, verb, arguments, named)
            return await self._database.ask(self._process, self._random, self._host, question)

        return call


class Database:
    """A database server: a process of its own, shared by all coordinators."""

    def __init__(
        self,
        loop: SimLoop,
        weather: Weather,
        path: Path,
        disk: Disk,
        clock: SimClock,
        committed: Callable[[list[Change]], None],
    ) -> None:
        self._loop = loop
        self._weather = weather
        self._path = path
        self._committed = committed
        self.disk = disk
        self.clock = clock
        self.lose_before: dict[str, float] = {}
        self.lose_after: dict[str, float] = {}
        """By host, the chance that its connection breaks before a request arrives, or after it was done: then nobody knows
        whether it was."""
        self.unknown = 0
        self._lives = 0
        self.process: Process | None = None
        self.store: SqliteStore | None = None
        self._asking: dict[int, tuple[Process, asyncio.Future[Any]]] = {}
        self._questions = 0

    @property
    def up(self) -> bool:
        return self.process is not None

    async def ensure_up(self) -> None:
        if not self.up:
            await self.start()

    def connect(self, random: Random, process: Process, host: str) -> Store:
        return cast(Store, RemoteStore(self, random, process, host))

    async def start(self) -> None:
        self._lives += 1
        self.process = Process(self._loop, f"db#{self._lives}")
        await self.process.spawn(self._open())

    async def _open(self) -> None:
        self.store = await open_store(self._path, self.clock, self.disk, self._committed)

    def crash(self) -> None:
        assert self.process is not None
        assert self.store is not None
        self.process.kill()
        drop_store(self.store)
        self.process = self.store = None
        asking, self._asking = self._asking, {}
        for process, future in asking.values():
            process.call_later(0.001, _fail, future)

    async def ask(
        self,
        process: Process,
        random: Random,
        host: str,
        question: Callable[[SqliteStore | None], Awaitable[Any]],
    ) -> Any:
        before = random.random() < self.lose_before.get(host, 0.0)
        after = random.random() < self.lose_after.get(host, 0.0)
        await asyncio.sleep(random.uniform(0.0001, 0.001) + self._weather.latency(random) / 4)
        if before or self.process is None:
            raise StoreUnavailable("the database cannot be reached")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._questions += 1
        number = self._questions
        self._asking[number] = process, future
        self.process.spawn(self._answer(number, question, after, random.uniform(0.0001, 0.001)))
        return await future

    async def _answer(
        self, number: int, question: Callable[[SqliteStore | None], Awaitable[Any]], lose: bool, delay: float
    ) -> None:
        result: Any
        try:
            result = await question(self.store)
        except Exception as error:  # noqa: BLE001 - it travels to whoever asked
            result = error
        if number not in self._asking:
            return
        process, future = self._asking.pop(number)
        if lose:
            self.unknown += 1
            process.call_later(delay, _fail, future)
        else:
            process.call_later(delay, _settle, future, result)


async def _ask(
    verb: str, arguments: tuple[Any, ...], named: dict[str, Any], store: SqliteStore | None
) -> Any:
    return await getattr(store, verb)(*arguments, **named)


def _fail(future: asyncio.Future[Any]) -> None:
    _settle(future, StoreUnavailable("the connection to the database broke; the outcome is unknown"))


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
