"""Notifications over Redis: publish and subscribe.

Channels are shared by all databases of a Redis server, so the number of the database is part of the channel's name:
installations that use different databases do not receive each other's notifications. If they did, that would only cost
needless polls.
"""

from collections.abc import Sequence
from typing import Final

from redis.asyncio.client import PubSub, Redis

from stoker.bus.connected import ConnectedBus, Hear
from stoker.bus.redis_link import client_of

MAX_BYTES: Final = 256 * 1024
ANSWER_SECONDS: Final = 2.0
"""No request waits for the bus, so this is longer than the timeout of the job cache."""


class RedisBus(ConnectedBus):
    """A bus over a channel of Redis."""

    name = "redis"
    max_bytes = MAX_BYTES
    answer_seconds = ANSWER_SECONDS

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    async def _open(self, hear: Hear) -> "RedisBusConnection":
        client = client_of(self._url)
        try:
            return await RedisBusConnection.over(client, hear)
        except BaseException:
            await client.aclose()
            raise


class RedisBusConnection:
    """One connection that publishes and one that is subscribed."""

    def __init__(self, client: Redis, pubsub: PubSub, hear: Hear) -> None:
        self._client = client
        self._pubsub = pubsub
        self._hear = hear
        self._channel = channel_of(client)

    @classmethod
    async def over(cls, client: Redis, hear: Hear) -> "RedisBusConnection":
        opened = cls(client, client.pubsub(ignore_subscribe_messages=True), hear)
        try:
            await opened._pubsub.subscribe(opened._channel)
        except BaseException:
            await opened._pubsub.aclose()  # type: ignore[no-untyped-call]
            raise
        return opened

    async def send(self, messages: Sequence[bytes]) -> None:
        if len(messages) == 1:
            await self._client.publish(self._channel, messages[0])
            return
        async with self._client.pipeline(transaction=False) as pipeline:
            for message in messages:
                pipeline.publish(self._channel, message)
            await pipeline.execute()

    async def listen(self) -> None:
        while True:
            message = await self._pubsub.get_message(timeout=None)
            if message is not None:
                self._hear(message["data"])

    async def close(self) -> None:
        await self._pubsub.aclose()  # type: ignore[no-untyped-call]
        await self._client.aclose()


def channel_of(client: Redis) -> str:
    return f"stoker:{client.connection_pool.connection_kwargs.get('db') or 0}:news"
