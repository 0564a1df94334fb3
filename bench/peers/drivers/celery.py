"""Celery with Redis. Groups are its bulk call."""

import importlib
from collections.abc import Sequence
from typing import Any

from bench.peers.drivers import kit

celery: Any = importlib.import_module("celery")

mark = kit.board().mark
app: Any = celery.Celery("bench", broker=kit.url())
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=100,
    worker_enable_remote_control=False,
    broker_pool_limit=kit.SUBMITTERS,
    broker_connection_retry_on_startup=True,
)


def echo(number: int) -> None:
    mark(number)


task: Any = app.task(name="echo")(echo)


def submit_many(numbers: Sequence[int]) -> None:
    celery.group(task.s(number) for number in numbers).apply_async()


def producer() -> kit.Producer:
    return kit.Producer(submit=task.delay, submit_many=submit_many)
