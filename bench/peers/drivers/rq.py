"""RQ. `enqueue_many` is its bulk call."""

import importlib
from collections.abc import Sequence
from typing import Any

from bench.peers.drivers import kit

redis: Any = importlib.import_module("redis")
rq: Any = importlib.import_module("rq")

mark = kit.board().mark
queue: Any = rq.Queue(connection=redis.Redis.from_url(kit.url()))


def echo(number: int) -> None:
    mark(number)


def submit(number: int) -> None:
    queue.enqueue(echo, number, result_ttl=0)


def submit_many(numbers: Sequence[int]) -> None:
    queue.enqueue_many([rq.Queue.prepare_data(echo, (number,), result_ttl=0) for number in numbers])


def producer() -> kit.Producer:
    return kit.Producer(submit=submit, submit_many=submit_many)
