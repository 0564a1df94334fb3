"""Huey with Redis, or with a file of SQLite that is synced at every commit, as the URL says."""

import importlib
from typing import Any, Final

from bench.peers.drivers import kit

library: Any = importlib.import_module("huey")

mark = kit.board().mark
FILE: Final = "sqlite:///"


def _huey(url: str) -> Any:
    if url.startswith(FILE):
        return library.SqliteHuey(
            filename=url.removeprefix(FILE), journal_mode="wal", fsync=True, results=False, timeout=30
        )
    return library.RedisHuey(url=url, results=False)


huey: Any = _huey(kit.url())


def echo(number: int) -> None:
    mark(number)


task: Any = huey.task()(echo)


def producer() -> kit.Producer:
    return kit.Producer(submit=task)
