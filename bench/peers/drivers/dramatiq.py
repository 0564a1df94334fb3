"""Dramatiq with Redis. Groups are its bulk call."""

import importlib
from collections.abc import Sequence
from typing import Any

from bench.peers.drivers import kit

dramatiq: Any = importlib.import_module("dramatiq")
redis_broker: Any = importlib.import_module("dramatiq.brokers.redis")

mark = kit.board().mark
dramatiq.set_broker(redis_broker.RedisBroker(url=kit.url()))


def echo(number: int) -> None:
    mark(number)


actor: Any = dramatiq.actor(echo)


def submit_many(numbers: Sequence[int]) -> None:
    dramatiq.group([actor.message(number) for number in numbers]).run()


def producer() -> kit.Producer:
    return kit.Producer(submit=actor.send, submit_many=submit_many)
