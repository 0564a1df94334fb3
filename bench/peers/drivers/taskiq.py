"""Taskiq with Redis lists. It has no bulk call: 1,000 are submitted at once by `asyncio.gather`."""

import asyncio
import importlib
from collections.abc import Sequence
from typing import Any

from bench.peers.drivers import kit

taskiq_redis: Any = importlib.import_module("taskiq_redis")

mark = kit.board().mark
broker: Any = taskiq_redis.ListQueueBroker(kit.url())


async def echo(number: int) -> None:
    mark(number)


task: Any = broker.task(task_name="echo")(echo)


async def submit_many(numbers: Sequence[int]) -> None:
    await asyncio.gather(*(task.kiq(number) for number in numbers))


def producer() -> kit.Producer:
    return kit.Producer(submit_async=task.kiq, submit_many_async=submit_many, opened=broker.startup)
