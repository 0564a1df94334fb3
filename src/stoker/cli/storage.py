"""Everything that a coordinator keeps things in, opened as the settings say."""

import contextlib
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from stoker.bus.base import Bus
from stoker.bus.cache import JobCache, NoCache, RedisJobCache
from stoker.bus.local import NoBus
from stoker.bus.postgres import PostgresBus
from stoker.bus.redis import RedisBus
from stoker.clock import SystemClock
from stoker.domain.lifecycle import Status
from stoker.settings import Settings
from stoker.store.base import Store
from stoker.store.logs import Logs
from stoker.store.postgres.database import driver_url
from stoker.store.postgres.logs import PostgresLogs
from stoker.store.postgres.store import PostgresStore
from stoker.store.sqlite.logs import SqliteLogs, logs_path
from stoker.store.sqlite.store import SqliteStore

COMPLETED: Final[frozenset[Status]] = frozenset({"completed"})


class Storage(msgspec.Struct, frozen=True):
    store: Store
    logs: Logs
    bus: Bus
    cache: JobCache


@contextlib.asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Storage]:
    """The store, and what goes with it, closed afterwards in the right order. Raises `StoreUnavailable`."""
    async with contextlib.AsyncExitStack() as stack:
        store, logs = await (_postgres(settings, stack) if settings.on_postgres else _sqlite(settings, stack))
        # Without a shared store no other coordinator could hear notifications, and a cache would only stand in the way.
        shared_redis = settings.redis_url if store.shared else None
        bus: Bus = NoBus()
        if shared_redis is not None:
            bus = RedisBus(shared_redis)
        elif settings.on_postgres:
            bus = PostgresBus(driver_url(settings.database_url))
        stack.push_async_callback(bus.close)
        # Completed jobs never change, so what is cached of them cannot be stale, whatever becomes of Redis.
        cache: JobCache = (
            NoCache() if shared_redis is None else RedisJobCache(shared_redis, statuses=COMPLETED)
        )
        stack.push_async_callback(cache.close)
        yield Storage(store, logs, bus, cache)


async def _sqlite(settings: Settings, stack: contextlib.AsyncExitStack) -> tuple[Store, Logs]:
    store = await SqliteStore.open(
        settings.database_path,
        SystemClock(),
        priority_order=settings.priority_order,
        max_pending=settings.max_pending_jobs,
    )
    stack.push_async_callback(store.close)
    logs = SqliteLogs.open(logs_path(settings.database_path))
    stack.push_async_callback(logs.close)
    return store, logs


async def _postgres(settings: Settings, stack: contextlib.AsyncExitStack) -> tuple[Store, Logs]:
    store = await PostgresStore.open(
        settings.database_url,
        SystemClock(),
        priority_order=settings.priority_order,
        max_pending=settings.max_pending_jobs,
    )
    stack.push_async_callback(store.close)
    logs = PostgresLogs(store.database)
    stack.push_async_callback(logs.close)
    return store, logs
