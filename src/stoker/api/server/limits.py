"""The rate limit on submissions: a moving window of one minute per client.

Each job of a batch counts. A repeat under a live idempotency key, or of an id that the client made, creates nothing and so
costs nothing; to be sure which request is the repeat, requests with the same key or id wait for each other here. Without a
limit there is no limiter at all.

With Redis the window is shared by all coordinators. While Redis does not answer, each coordinator counts for itself, from
nothing: the limit is then less exact, but no request waits for Redis, and none is refused that would have passed.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, Protocol

from limits import RateLimitItemPerMinute
from limits.aio.storage import MemoryStorage, RedisStorage
from limits.aio.strategies import MovingWindowRateLimiter

from stoker.api.problems import InvalidField, Kind, RequestProblem, retry_after
from stoker.bus.redis_link import RedisDown, RedisLink
from stoker.settings import Settings
from stoker.store.submissions import IdempotencyKey

WINDOW_SECONDS: Final = 60

KnownKey = Callable[[str, str], Awaitable[bool]]
KnownIds = Callable[[Sequence[str]], Awaitable[set[str]]]

_IDS: Final = "\x1fid"
"""Stands for the client in the locks of ids; no client is called so."""


class RateWindow(Protocol):
    """Counts jobs per client: those of this process, or of all coordinators."""

    async def charge(self, client: str, jobs: int) -> int:
        """Charge this many jobs and return 0, or charge nothing and return the seconds after which they would pass."""
        ...

    async def close(self) -> None: ...


class MemoryWindow:
    """The window of one process."""

    def __init__(self, jobs_per_minute: int) -> None:
        self._item = RateLimitItemPerMinute(jobs_per_minute)
        self._storage = MemoryStorage()
        self._limiter = MovingWindowRateLimiter(self._storage)

    async def charge(self, client: str, jobs: int) -> int:
        if await self._limiter.hit(self._item, client, cost=jobs):
            return 0
        return await self._seconds_until(client, jobs)

    async def _seconds_until(self, client: str, jobs: int) -> int:
        """Return the first whole second at which enough of what is in the window has left it."""
        key = self._item.key_for(client)
        room = self._item.amount - jobs
        for seconds in range(1, WINDOW_SECONDS):
            _, still_inside = await self._storage.get_moving_window(
                key, self._item.amount, WINDOW_SECONDS - seconds
            )
            if still_inside <= room:
                return seconds
        return WINDOW_SECONDS

    async def close(self) -> None:
        pass


class RedisWindow:
    """One window for all coordinators that use this Redis; a window of this process whenever it does not answer."""

    def __init__(self, url: str, jobs_per_minute: int) -> None:
        self._item = RateLimitItemPerMinute(jobs_per_minute)
        self._link = RedisLink(url, used_for="rate limits")
        self._storage = _storage_on(self._link)
        self._limiter = MovingWindowRateLimiter(self._storage)
        self._alone = MemoryWindow(jobs_per_minute)

    async def charge(self, client: str, jobs: int) -> int:
        try:
            if await self._link.ask(lambda: self._limiter.hit(self._item, client, cost=jobs)):
                return 0
            return await self._seconds_until(client, jobs)
        except RedisDown:
            return await self._alone.charge(client, jobs)

    async def _seconds_until(self, client: str, jobs: int) -> int:
        """There is room for this many jobs as soon as this entry, counted from the newest, has left the window. It is the
        oldest of the newest `count`, and those the storage tells."""
        count = self._item.amount - jobs + 1
        key = self._item.key_for(client)
        oldest, inside = await self._link.ask(
            lambda: self._storage.get_moving_window(key, count, WINDOW_SECONDS)
        )
        if inside < count:  # it left just now
            return 1
        left = oldest + WINDOW_SECONDS - time.time()
        return min(max(math.floor(left) + 1, 1), WINDOW_SECONDS)

    async def close(self) -> None:
        await self._link.close()


def _storage_on(link: RedisLink) -> RedisStorage:
    """Return the library's storage on the link's connections; the address is what it wants to see, nothing dials it."""
    return RedisStorage(
        "async+redis://localhost:6379",
        implementation="redispy",
        key_prefix="stoker:1:limit",
        connection_pool=link.client.connection_pool,  # type: ignore[arg-type]  # the library declares too little
    )


def window(settings: Settings) -> RateWindow:
    """Return the window that these settings ask for."""
    limit = settings.rate_limit_jobs_per_min
    return MemoryWindow(limit) if settings.redis_url is None else RedisWindow(settings.redis_url, limit)


class SubmissionLimiter:
    """Lets a submission through, or raises 429."""

    def __init__(
        self, jobs_per_minute: int, window: RateWindow, known_key: KnownKey, known_ids: KnownIds
    ) -> None:
        self._limit = jobs_per_minute
        self._window = window
        self._known_key = known_key
        self._known_ids = known_ids
        self._locks = KeyLocks()

    @asynccontextmanager
    async def admit(
        self, client: str, keys: Sequence[IdempotencyKey | None], ids: Sequence[str] = ()
    ) -> AsyncIterator[None]:
        """Charge the client for the jobs that are new, and hold their keys until the submission is through. `keys` has a
        place for each job; `ids` are those that the client made for jobs without a key."""
        named = {(key.client, key.key) for key in keys if key is not None}
        async with self._locks.hold(named | {(_IDS, id) for id in ids}):
            cost = keys.count(None) + await self._count_new(named)
            if ids:
                cost -= len(ids) - len(set(ids) - await self._known_ids(ids))
            if cost > self._limit:
                raise _never_passes(cost, self._limit)
            wait = await self._window.charge(client, cost) if cost else 0
            if wait:
                raise _too_many(self._limit, wait)
            yield

    async def close(self) -> None:
        await self._window.close()

    async def _count_new(self, named: Iterable[tuple[str, str]]) -> int:
        new = 0
        for client, key in named:
            new += not await self._known_key(client, key)
        return new


class KeyLocks:
    """One lock per key, kept for as long as a request holds or awaits it."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, str], tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def hold(self, keys: Iterable[tuple[str, str]]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for key in sorted(keys):  # one order for all: two batches cannot wait for each other
                await stack.enter_async_context(self._one(key))
            yield

    @asynccontextmanager
    async def _one(self, key: tuple[str, str]) -> AsyncIterator[None]:
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, users - 1)


def _too_many(limit: int, wait: int) -> RequestProblem:
    return RequestProblem(
        Kind.RATE_LIMITED,
        f"this client may submit {limit:,} jobs per minute; try again in {wait} s",
        headers=[retry_after(wait)],
    )


def _never_passes(cost: int, limit: int) -> RequestProblem:
    message = f"{cost:,} jobs can never pass a limit of {limit:,} per minute; send smaller batches"
    return RequestProblem(Kind.INVALID, message, errors=[InvalidField("jobs", message)])
