"""What `stoker doctor` checks of the services that the settings name: PostgreSQL and Redis.

Facts are gathered first, and judged by functions that touch nothing. Redis only makes things faster, so nothing about it
is worse than a warning.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from stoker.cli.findings import Finding

if TYPE_CHECKING:
    from stoker.store.postgres.database import Database
    from stoker.store.schema import Migration

POSTGRES_MIN = 14
REDIS_MIN = (6, 2)
CONNECTIONS_WANTED = 16
"""The connections that should be free: a coordinator's for reads and writes, one for notifications, and some for its
operator."""
SKEW_WARNING_SECONDS = 5
SLOW_SECONDS = 0.05
ANSWER_SECONDS = 5.0
HEAR_SECONDS = 2.0
_PINGS = 9


# ── PostgreSQL ─────────────────────────────────────────────────────────────────────────────────────────────────────


class PostgresFacts(msgspec.Struct, frozen=True):
    version: int
    """As the server counts: 160003."""
    synchronous_commit: str
    fsync: str
    skew_seconds: float
    round_trip_seconds: float
    connections_left: int
    hears: bool
    """Whether a connection that listens hears what another one says."""


def check_postgres(url: str) -> list[Finding]:
    """The server answers, keeps what it confirms, and has room; the schema is up to date."""
    return asyncio.run(_check_postgres(url))


async def _check_postgres(url: str) -> list[Finding]:
    from stoker.domain.errors import StoreUnavailable
    from stoker.store.postgres.database import shown
    from stoker.store.postgres.schema import open_plainly, status_of

    try:
        database = await open_plainly(url)
        try:
            facts = await _postgres_facts(database)
            migrations = await status_of(database)
        finally:
            await database.close()
    except StoreUnavailable as error:
        fix = "start PostgreSQL, or correct STOKER_DATABASE_URL: host, port, user, password and database"
        return [Finding("database", "broken", str(error), fix)]
    seconds = facts.round_trip_seconds
    return [
        Finding("database", "ok", f"{shown(url)} answers in {seconds * 1000:.1f} ms"),
        *judge_postgres(facts),
        judge_migrations(migrations),
    ]


async def _postgres_facts(database: Database) -> PostgresFacts:
    await database.fetchval("SELECT 1")  # connects, which is not what is measured
    asked_at = time.time()
    theirs = float(await database.fetchval("SELECT extract(epoch FROM clock_timestamp())"))
    answered_at = time.time()
    ((version, synchronous_commit, fsync, left),) = await database.fetch(_FACTS)
    return PostgresFacts(
        version=version,
        synchronous_commit=synchronous_commit,
        fsync=fsync,
        skew_seconds=theirs - (asked_at + answered_at) / 2,
        round_trip_seconds=answered_at - asked_at,
        connections_left=left,
        hears=await _hears(database),
    )


_FACTS = """
SELECT current_setting('server_version_num')::int, current_setting('synchronous_commit'), current_setting('fsync'),
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
       - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::int
"""


async def _hears(database: Database) -> bool:
    """Return whether a NOTIFY reaches a LISTEN. Behind a pooler in transaction mode a LISTEN is lost at once, or belongs to
    another client's connection."""
    from stoker.store.postgres.database import refusals

    channel = f"stoker_doctor_{uuid4().hex}"
    heard = asyncio.Event()

    def hear(*_: object) -> None:
        heard.set()

    link = await database.acquire()
    try:
        with refusals("the database does not LISTEN"):
            await link.add_listener(channel, hear)
            await database.execute(f"NOTIFY {channel}")
            try:
                async with asyncio.timeout(HEAR_SECONDS):
                    await heard.wait()
            except TimeoutError:
                pass
            await link.remove_listener(channel, hear)
    finally:
        await database.release(link)
    return heard.is_set()


def judge_postgres(facts: PostgresFacts) -> Iterator[Finding]:
    """Judge the facts about a server."""
    version = facts.version // 10_000
    if version < POSTGRES_MIN:
        fix = f"upgrade it to {POSTGRES_MIN} or later"
        yield Finding("postgresql", "broken", f"version {version} is too old", fix)
    else:
        yield Finding("postgresql", "ok", f"version {version}")
    yield judge_durability(facts)
    yield judge_connections(facts.connections_left)
    yield judge_database_clock(facts.skew_seconds)
    yield judge_listen(facts.hears)


def judge_durability(facts: PostgresFacts) -> Finding:
    if facts.fsync == "off":
        fix = "set fsync = on in postgresql.conf and reload; without it a power cut can destroy the whole database"
        return Finding("durability", "broken", "fsync is off", fix)
    if facts.synchronous_commit == "off":
        fix = "Stoker asks for it in its own transactions; to make it the rule: ALTER SYSTEM SET synchronous_commit = on"
        return Finding("durability", "warning", "synchronous_commit is off", fix)
    return Finding("durability", "ok", f"synchronous_commit is {facts.synchronous_commit}, fsync is on")


def judge_connections(left: int) -> Finding:
    if left < CONNECTIONS_WANTED:
        fix = (
            f"raise max_connections, or put a pooler in front; each coordinator may open {CONNECTIONS_WANTED}"
        )
        return Finding("connections", "warning", f"{max(left, 0)} left", fix)
    return Finding("connections", "ok", f"{left} left")


def judge_database_clock(skew_seconds: float) -> Finding:
    if abs(skew_seconds) > SKEW_WARNING_SECONDS:
        fix = "let NTP set both clocks; the database's clock judges, so times in logs here will not fit its times"
        return Finding("database clock", "warning", f"{skew_seconds:+.0f} s apart from this machine", fix)
    return Finding("database clock", "ok", "agrees with this machine")


def judge_listen(hears: bool) -> Finding:
    if hears:
        return Finding("listen", "ok", "coordinators hear each other over the database")
    fix = (
        "let STOKER_DATABASE_URL lead to the server itself or to a pool in session mode, or set STOKER_REDIS_URL; "
        "until then coordinators find each other's jobs within a second"
    )
    return Finding("listen", "warning", "LISTEN does not work here: a pooler in transaction mode?", fix)


def judge_migrations(migrations: list[Migration]) -> Finding:
    """Whether the schema is the one that this Stoker works with."""
    pending = [migration for migration in migrations if migration.state == "pending"]
    if any(migration.state == "unknown" for migration in migrations):
        detail = f"the database has schema {migrations[-1].version}, made by a later Stoker"
        return Finding("schema", "broken", detail, "upgrade Stoker here")
    if pending:
        fix = "run: stoker migrate up (or start a coordinator, which does the same)"
        return Finding("schema", "warning", f"{len(pending)} migrations are pending", fix)
    return Finding("schema", "ok", f"version {migrations[-1].version}, up to date")


# ── Redis ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_redis(url: str) -> list[Finding]:
    """Redis answers, soon, and is recent enough."""
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.exceptions import RedisError
    from redis.retry import Retry

    from stoker.store.postgres.database import shown

    try:
        with Redis.from_url(
            url,
            socket_timeout=ANSWER_SECONDS,
            socket_connect_timeout=ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 0),
        ) as client:
            seconds = median(_ping(client) for _ in range(_PINGS))
            version = str(client.info("server")["redis_version"])
    except (RedisError, OSError, ValueError) as error:
        fix = "start Redis, or correct or remove STOKER_REDIS_URL; without it everything works, only slower"
        return [Finding("redis", "warning", f"{shown(url)}: {error}", fix)]
    return [judge_redis(shown(url), version, seconds)]


def _ping(client: Any) -> float:
    started = time.perf_counter()
    client.ping()
    return time.perf_counter() - started


def judge_redis(name: str, version: str, seconds: float) -> Finding:
    """Judge the version and the time of an answer."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < REDIS_MIN:
        wanted = ".".join(map(str, REDIS_MIN))
        return Finding("redis", "warning", f"{name}: version {version}", f"upgrade it to {wanted} or later")
    if seconds > SLOW_SECONDS:
        fix = "move Redis closer to the coordinators: it is there to save time"
        return Finding("redis", "warning", f"{name} takes {seconds * 1000:.0f} ms to answer", fix)
    return Finding("redis", "ok", f"{name}: version {version}, answers in {seconds * 1000:.1f} ms")
