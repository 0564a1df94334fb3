"""Connecting to PostgreSQL: pools, transactions that need no session state, migrations under a lock.

Nothing here survives a transaction (no temporary tables, no `SET` without `LOCAL`, no session locks), so a pooler in
transaction mode may stand in between. Prepared statements are the one exception that makes a difference in speed: they
are used until a pooler shows that it does not carry them over, and not any more after that.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from importlib.resources import files
from typing import Any, Final, NamedTuple, TypeVar

import asyncpg
import structlog
from asyncpg.pool import PoolConnectionProxy

from stoker.domain.errors import StoreUnavailable, StoreUnreachable
from stoker.store.postgres.lazy_transaction import LazyTransaction

SCHEMA: Final = "stoker"
MIGRATION_LOCK: Final = 0x53746F6B6572  # "Stoker"
OLDEST_SERVER: Final = 140_000
CONNECT_SECONDS: Final = 10.0
READ_SECONDS: Final = 30.0
STATEMENT_MS: Final = 30_000
MAX_CONNECTIONS: Final = 8
MAX_WRITERS: Final = 4
READ_TRIES: Final = 3
WORD_SECONDS: Final = 5.0
"""How often, at most, replaced connections are worth a line in the log."""

_PREPARED_OFF = re.compile(r"prepared=(?:off|0|false)")
_MIGRATION = re.compile(r"^(\d{4})_(\w+)\.sql$")

Link = PoolConnectionProxy
T = TypeVar("T")
log = structlog.get_logger()
# A pool that cannot keep its minimum logs every try, with a traceback. The error of a call that needs a connection is
# better.
logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)

WRITING: Final = {
    # The tables are empty or full within minutes, and statistics lag behind. Writing statements look up rows by keys they
    # were given, so walking the index is right at any size; a plan made on an empty table would read all of a full one.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",  # no plan here is worth compiling, whatever its estimated cost
    # With nothing to weigh, planning a statement again for its values costs more than running it for a few jobs does.
    "plan_cache_mode": "force_generic_plan",
    "statement_timeout": str(STATEMENT_MS),
}
"""Settings of the connections that write. They are asked for when connecting; a pooler that refuses this gets them with
every transaction."""

PLAN_FOR_VALUES: Final = "SET LOCAL plan_cache_mode = force_custom_plan"
"""Says, for the rest of a transaction, that statements are planned for their values: filters of users come with any."""

NOT_THE_SERVER: Final = (
    asyncpg.ReadOnlySQLTransactionError,  # a standby, or a session that began while its role was read-only
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
)
"""The server at the other end of a connection cannot be written to, and the connection may stay open all the same. Another
connection may find a server that can, so all of them are replaced."""

UNREACHABLE: Final = (
    *NOT_THE_SERVER,
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a statement on a connection that was lost in the middle of another one
    asyncpg.TooManyConnectionsError,
)
"""The server is not there, or not there yet: another try may find it."""

TAKEN: Final = asyncpg.UniqueViolationError
"""Another transaction wrote a row with the same key."""

REFUSED_LOCK: Final = asyncpg.LockNotAvailableError
"""A lock was tried and not waited for."""

UNPREPARED: Final = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
"""What a pooler in transaction mode makes of a prepared statement."""


class Contended(StoreUnavailable):
    """Another transaction held a lock that this one wanted, and wanted one that it held: trying again will do."""


class Database:
    """A pool of connections to one database. Open with `await Database.open(url)`."""

    def __init__(self, url: str, pools: "Pools") -> None:
        self._url = url
        self._pools = pools
        self._next_word = 0.0
        self.generation = 0
        """Grows whenever all connections are to be replaced: one that was acquired before should be given back."""

    @classmethod
    async def open(cls, url: str, *, max_connections: int = MAX_CONNECTIONS) -> "Database":
        """Connect, and refuse a server that is too old or that would not keep what it confirmed."""
        with refusals(f"cannot connect to {shown(url)}"):
            try:
                return cls(url, await Pools.open(url, max_connections))
            except UNPREPARED:
                url = _without_preparing(url)
                return cls(url, await Pools.open(url, max_connections))

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return shown(self._url)

    async def acquire(self) -> Link:
        """A connection of one's own that writes, to be given back with `release`."""
        with refusals("the database cannot be reached"):
            return await self._pools.writing.acquire(timeout=CONNECT_SECONDS)

    async def release(self, link: Link) -> None:
        with contextlib.suppress(*UNREACHABLE):
            await self._pools.writing.release(link, timeout=1.0)

    async def replace_connections(self, reason: str) -> None:
        """Use none of the present connections again: those in use are closed when they are given back."""
        now = asyncio.get_running_loop().time()
        if now >= self._next_word:
            self._next_word = now + WORD_SECONDS
            log.warning("database_connections_replaced", detail=reason)
        self.generation += 1
        for pool in (self._pools.writing, self._pools.reading):
            await pool.expire_connections()

    async def _heed(self, error: StoreUnreachable, generation: int) -> None:
        """Replace all connections after an error which shows that this is not the server any more. Several callers may meet
        it at once; the first has done it for those whose connections are of the same `generation`."""
        if isinstance(error.__cause__, NOT_THE_SERVER) and generation == self.generation:
            await self.replace_connections(str(error))

    async def read(self, work: Callable[[Link], Awaitable[T]], *, begin: str | None = None) -> T:
        """Run reads that may be repeated: a connection that died in the pool is no reason to fail. `begin` asks for a
        transaction that begins with these words."""
        for left in range(READ_TRIES, 0, -1):
            try:
                return await self._read(work, begin)
            except UNPREPARED:
                await self.stop_preparing()
            except StoreUnreachable:
                if left == 1:
                    raise
                await asyncio.sleep(0.05)
        raise StoreUnavailable("the pooler loses prepared statements; try again")

    async def _read(self, work: Callable[[Link], Awaitable[T]], begin: str | None) -> T:
        # A pooler may give another connection to what follows the parsing of a statement, except in a transaction.
        begin = begin or (None if _prepares(self._url) else "BEGIN")
        generation = self.generation
        try:
            with refusals("the database refused to answer"):
                async with (
                    self._pools.reading.acquire(timeout=CONNECT_SECONDS) as link,
                    asyncio.timeout(READ_SECONDS),
                ):
                    if begin is None:
                        return await work(link)
                    async with _between(link, begin):
                        return await work(link)
        except StoreUnreachable as error:
            await self._heed(error, generation)
            raise

    async def fetch(self, sql: str, *values: Any) -> list[Any]:
        return await self.read(lambda link: link.fetch(sql, *values))

    async def fetchval(self, sql: str, *values: Any) -> Any:
        return await self.read(lambda link: link.fetchval(sql, *values))

    async def execute(self, sql: str, *values: Any) -> None:
        """One statement of its own; only for what may safely be done twice."""
        await self.read(lambda link: link.execute(sql, *values))

    @contextlib.asynccontextmanager
    async def transaction(self, link: Link, *, first: str | None = None) -> AsyncIterator[None]:
        """A transaction of statements that find their rows by index. Raises `StoreUnreachable` where the end is unknown.
        `first` is a statement without an answer that goes along with the BEGIN."""
        async with self.lazy_transaction(link, first=first) as lazy:
            await lazy.begin()
            yield

    @contextlib.asynccontextmanager
    async def lazy_transaction(
        self, link: Link, *, first: str | None = None
    ) -> AsyncIterator[LazyTransaction]:
        """The same, begun with the first statement that needs it."""
        begin = self._pools.begin
        lazy = LazyTransaction(link, begin if first is None else f"{begin}; {first}")
        generation = self.generation
        try:
            with refusals("the database refused the transaction; nothing was changed"):
                try:
                    if begin != "BEGIN" or not _prepares(self._url):
                        await lazy.begin()  # a pooler needs the transaction, and so do settings
                    yield lazy
                    await lazy.commit()
                except BaseException:
                    if lazy.begun:
                        await _roll_back(link)
                    raise
        except StoreUnreachable as error:
            await self._heed(error, generation)
            raise

    async def stop_preparing(self) -> None:
        """From now on without prepared statements, on new connections."""
        if not _prepares(self._url):
            return
        url = _without_preparing(self._url)
        with refusals("the database cannot be reached"):
            pools = await Pools.open(url, MAX_CONNECTIONS)
        if not _prepares(self._url):  # another task was quicker
            pools.terminate()
            return
        log.warning(
            "prepared_statements_off", detail="a pooler between here and PostgreSQL does not keep them"
        )
        old, self._url, self._pools = self._pools, url, pools
        old.terminate()

    async def close(self) -> None:
        try:
            async with asyncio.timeout(5):
                await self._pools.close()
        except TimeoutError:
            self._pools.terminate()


class Pools(NamedTuple):
    """Connections that read and such that write, and the words that begin a transaction on the latter."""

    reading: "asyncpg.Pool[Any]"
    writing: "asyncpg.Pool[Any]"
    begin: str

    @classmethod
    async def open(cls, url: str, max_connections: int) -> "Pools":
        reading = await _pool(url, max_connections)
        try:
            async with reading.acquire() as link, link.transaction():
                forced = WRITING | await _look_over(link)
            try:
                return cls(reading, await _pool(url, MAX_WRITERS, forced), "BEGIN")
            except (
                asyncpg.ProtocolViolationError,
                asyncpg.InvalidParameterValueError,
                asyncpg.FeatureNotSupportedError,
            ):
                begin = "; ".join(
                    ["BEGIN", *(f"SET LOCAL {name} = {value}" for name, value in forced.items())]
                )
                return cls(reading, await _pool(url, MAX_WRITERS), begin)
        except BaseException:
            reading.terminate()
            raise

    async def close(self) -> None:
        await self.writing.close()
        await self.reading.close()

    def terminate(self) -> None:
        self.writing.terminate()
        self.reading.terminate()


async def _nothing(_: object) -> None:
    """Nothing to reset: no statement of ours leaves anything behind in its session."""


async def _pool(
    url: str, max_connections: int, settings: Mapping[str, str] | None = None
) -> "asyncpg.Pool[Any]":
    clean, prepares = _split(url)
    return await asyncpg.create_pool(
        clean,
        min_size=1,
        max_size=max_connections,
        timeout=CONNECT_SECONDS,
        statement_cache_size=200 if prepares else 0,
        max_cacheable_statement_size=0,
        reset=_nothing,
        server_settings=dict(settings or {}),
    )


def _split(url: str) -> tuple[str, bool]:
    """Return the URL for the driver, and whether statements may be prepared: `?prepared=off` is ours."""
    address, _, query = url.partition("?")
    kept = [part for part in query.split("&") if part and not _PREPARED_OFF.fullmatch(part)]
    clean = "?".join([address, "&".join(kept)]) if kept else address
    return clean, not any(_PREPARED_OFF.fullmatch(part) for part in query.split("&"))


def driver_url(url: str) -> str:
    """Return the URL as other users of the driver may have it."""
    return _split(url)[0]


def _prepares(url: str) -> bool:
    return _split(url)[1]


def _without_preparing(url: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}prepared=off"


async def _look_over(link: Link) -> dict[str, str]:
    """Check the server; what it must be told beyond the usual settings."""
    version = int(await link.fetchval("SELECT current_setting('server_version_num')"))
    if version < OLDEST_SERVER:
        raise StoreUnavailable(f"PostgreSQL {version // 10_000} is too old; Stoker needs 14 or later")
    # A confirmed job must survive a power cut, even if the server's configuration turns synchronous_commit off, now or
    # later. Set explicitly, it holds for every connection that is still to come.
    usual = str(await link.fetchval("SELECT current_setting('synchronous_commit')"))
    return {"synchronous_commit": "on" if usual == "off" else usual}


def is_lost(link: Link) -> bool:
    """Return whether the connection is gone. The pool takes back one that dies while it is idle, and to ask that one
    raises."""
    try:
        return link.is_closed()
    except asyncpg.InterfaceError:
        return True


@contextlib.asynccontextmanager
async def _between(link: Link, begin: str) -> AsyncIterator[None]:
    await link.execute(begin)
    try:
        yield
        await link.execute("COMMIT")
    except BaseException:
        await _roll_back(link)
        raise


async def _roll_back(link: Link) -> None:
    """Leave a clean connection behind, or none."""
    try:
        async with asyncio.timeout(2):
            await link.execute("ROLLBACK")
    except (*UNREACHABLE, asyncpg.PostgresError):
        link.terminate()


@contextlib.contextmanager
def refusals(what: str) -> Iterator[None]:
    """Turns what the driver raises into what callers know."""
    try:
        yield
    except StoreUnavailable:
        raise
    except UNPREPARED:
        raise
    except UNREACHABLE as error:
        raise StoreUnreachable(f"{what} ({_words(error)})") from error
    except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError) as error:
        raise Contended(f"{what} ({_words(error)})") from error
    except (asyncpg.PostgresError, ValueError) as error:
        raise StoreUnavailable(f"{what} ({_words(error)})") from error


def _words(error: BaseException) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__


def shown(url: str) -> str:
    """A URL that may be printed."""
    return re.sub(r"(//[^:/@]*):[^@]*@", r"\1:***@", re.sub(r"(password=)[^&]*", r"\1***", url))


# ── migrations ─────────────────────────────────────────────────────────────────────────────────────────────────────


def migrations() -> Iterator[tuple[int, str, str]]:
    """All migrations as (version, name, SQL), in order."""
    folder = files("stoker.store.postgres").joinpath("migrations")
    for name in sorted(entry.name for entry in folder.iterdir()):
        if match := _MIGRATION.match(name):
            yield int(match[1]), match[2], folder.joinpath(name).read_text(encoding="utf-8")


async def applied(database: Database) -> list[tuple[int, str, int]]:
    """Return what was applied to this database so far: (version, name, when)."""
    if await database.fetchval("SELECT to_regclass($1)", f"{SCHEMA}.migrations") is None:
        return []
    rows = await database.fetch(f"SELECT version, name, applied_at FROM {SCHEMA}.migrations ORDER BY version")  # noqa: S608
    return [(row[0], row[1], row[2]) for row in rows]


async def migrate(database: Database) -> list[int]:
    """Bring the schema up to date; the versions that this call applied. Two at once wait for each other."""
    try:
        return await _migrate_in_one(database)
    except UNPREPARED:
        await database.stop_preparing()
        return await _migrate_in_one(database)


async def _migrate_in_one(database: Database) -> list[int]:
    """In one transaction: all of it or nothing."""
    link = await database.acquire()
    try:
        with refusals("the schema could not be brought up to date; nothing was changed"):
            await link.execute("BEGIN")
            try:
                done = await _migrate(link)
                await link.execute("COMMIT")
            except BaseException:
                await _roll_back(link)
                raise
        return done
    finally:
        await database.release(link)


async def _migrate(link: Link) -> list[int]:
    await link.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
    await link.execute(f"SET LOCAL search_path = {SCHEMA}")
    # Only what is missing is made: a coordinator without the right to create anything can start on a schema that is there.
    if await link.fetchval("SELECT to_regnamespace($1)", SCHEMA) is None:
        await link.execute(f"CREATE SCHEMA {SCHEMA}")
    if await link.fetchval("SELECT to_regclass('migrations')") is None:
        await link.execute(
            "CREATE TABLE migrations (version integer PRIMARY KEY, name text NOT NULL, applied_at bigint NOT NULL)"
        )
    version = int(await link.fetchval("SELECT coalesce(max(version), 0) FROM migrations"))
    done = []
    known = 0
    for known, name, sql in migrations():
        if known > version:
            await link.execute(sql)
            await link.execute(
                "INSERT INTO migrations VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)",
                known,
                name,
            )
            done.append(known)
    if version > known:
        raise StoreUnavailable(
            f"this database has schema {version}, and this Stoker knows only up to {known}; upgrade Stoker"
        )
    return done
