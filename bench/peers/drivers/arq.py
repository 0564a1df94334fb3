"""arq. It has no bulk call: 1,000 are submitted at once by `asyncio.gather`."""

import asyncio
import importlib
from collections.abc import Sequence
from typing import Any

from bench.peers.drivers import kit

arq: Any = importlib.import_module("arq")
connections: Any = importlib.import_module("arq.connections")

mark = kit.board().mark
kit.use_uvloop()
settings: Any = connections.RedisSettings.from_dsn(kit.url())


async def echo(context: dict[str, Any], number: int) -> None:
    mark(number)


class WorkerSettings:
    """What `arq` is started with."""

    functions = (echo,)
    redis_settings = settings
    max_jobs = 100
    poll_delay = 0.005
    keep_result = 0
    max_tries = 1


class Client:
    async def open(self) -> None:
        self.pool: Any = await arq.create_pool(settings)

    async def submit(self, number: int) -> None:
        await self.pool.enqueue_job("echo", number)

    async def submit_many(self, numbers: Sequence[int]) -> None:
        await asyncio.gather(*(self.submit(number) for number in numbers))


def producer() -> kit.Producer:
    client = Client()
    return kit.Producer(submit_async=client.submit, submit_many_async=client.submit_many, opened=client.open)
