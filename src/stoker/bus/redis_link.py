"""A connection to Redis that never holds up a request for long: short timeouts and a circuit breaker.

Redis only makes things faster, so a Redis that does not answer must not make them slower. The first command without an
answer within `ANSWER_SECONDS` opens the breaker: from then on commands fail at once, and a background task asks every
second whether Redis is back. An error reply is an answer: it fails that one command only.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import structlog
from redis.asyncio.client import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

T = TypeVar("T")

ANSWER_SECONDS: Final = 0.5
CLIENT_SECONDS: Final = 2.0
"""The Redis client's own timeout: it ends commands that their caller has given up on after `ANSWER_SECONDS`."""
PROBE_SECONDS: Final = 1.0
SLOTS: Final = 4
"""The most commands under way at once, each on a connection of its own. More would not be faster on one event loop, and
opening many connections at once would take long enough to look like an outage."""

log = structlog.get_logger()


class RedisDown(Exception):
    """Redis did not answer, or refused: do without it."""


def client_of(url: str) -> Redis:
    """Return a client with short timeouts that never retries by itself."""
    options: dict[str, Any] = {
        "protocol": 2,
        "socket_connect_timeout": CLIENT_SECONDS,
        "socket_timeout": CLIENT_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "driver_info": None,  # naming the driver would cost two commands for each connection
    }
    client: Redis = Redis.from_url(url, **options)
    return client


class RedisLink:
    """A client with a circuit breaker."""

    def __init__(self, url: str, *, used_for: str) -> None:
        self.client = client_of(url)
        self._used_for = used_for
        self._slots = asyncio.Semaphore(SLOTS)
        self._asking: set[asyncio.Future[Any]] = set()
        self._probe: asyncio.Task[None] | None = None
        self._refusal = ""
        self._closed = False

    @property
    def up(self) -> bool:
        """Return False while the breaker is open, and after `close`."""
        return self._probe is None and not self._closed

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Return the answer. Raises `RedisDown` after `ANSWER_SECONDS`, and at once while the breaker is open."""
        self._require_up()
        async with self._slots:
            self._require_up()  # the breaker may have opened while this one waited
            asking = asyncio.ensure_future(question())
            self._asking.add(asking)
            asking.add_done_callback(self._over)
            await _patience(asking)
            return self._result(asking)

    def _require_up(self) -> None:
        if not self.up:
            raise RedisDown

    def _over(self, asking: "asyncio.Future[Any]") -> None:
        self._asking.discard(asking)
        if not asking.cancelled():
            asking.exception()  # mark it as retrieved: its caller may have given up, and asyncio would log it

    def _result(self, asking: "asyncio.Future[T]") -> T:
        try:
            if not asking.done():
                raise TimeoutError(f"no answer within {ANSWER_SECONDS} s")
            if asking.cancelled():
                raise RedisDown("the link was closed")
            return asking.result()
        except ResponseError as error:
            self._refused(error)
            raise RedisDown from error
        except (RedisError, OSError, TimeoutError) as error:
            self._fell(error)
            raise RedisDown from error

    async def close(self) -> None:
        self._closed = True
        tasks = [*self._asking, *([] if self._probe is None else [self._probe])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.client.aclose()

    def _refused(self, error: ResponseError) -> None:
        if str(error) != self._refusal:  # the same refusal once, not a thousand times a second
            self._refusal = str(error)
            log.warning("redis_refused", used_for=self._used_for, detail=self._refusal)

    def _fell(self, error: Exception) -> None:
        if self.up:
            log.warning("redis_lost", used_for=self._used_for, detail=f"{type(error).__name__}: {error}")
            self._probe = asyncio.create_task(self._until_back(), name="redis probe")

    async def _until_back(self) -> None:
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            try:
                await self.client.ping()
                break
            except (RedisError, OSError, TimeoutError):
                continue
        self._probe = None
        log.info("redis_back", used_for=self._used_for)


async def _patience(asking: "asyncio.Future[Any]") -> None:
    """Wait for an answer, for `ANSWER_SECONDS` at most.

    It waits twice for half the time: if this process was suspended, the first wait times out although the answer is there,
    and the second one reads it. On timeout or cancellation the caller stops waiting, but the command is never cancelled:
    that could leave a connection on which the next command gets the answer to this one.
    """
    for _ in range(2):
        await asyncio.wait([asking], timeout=ANSWER_SECONDS / 2)
