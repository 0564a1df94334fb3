"""SAQ with Redis. It has no bulk call that does not wait for results: 1,000 are submitted at once by `asyncio.gather`."""

import asyncio
import importlib
from collections.abc import Sequence
from typing import Any

from bench.peers.drivers import kit

saq: Any = importlib.import_module("saq")

mark = kit.board().mark
kit.use_uvloop()
queue: Any = saq.Queue.from_url(kit.url())


async def echo(context: dict[str, Any], *, number: int) -> None:
    mark(number)


settings: dict[str, Any] = {"queue": queue, "functions": [echo], "concurrency": 100}


async def submit(number: int) -> None:
    await queue.enqueue("echo", number=number, ttl=-1)


async def submit_many(numbers: Sequence[int]) -> None:
    await asyncio.gather(*(submit(number) for number in numbers))


def producer() -> kit.Producer:
    return kit.Producer(submit_async=submit, submit_many_async=submit_many, opened=queue.connect)
