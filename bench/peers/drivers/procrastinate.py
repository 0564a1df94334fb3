"""Procrastinate with psycopg: the async connector, and the sync one for threads."""

import asyncio
import importlib
from collections.abc import Sequence
from typing import Any, Final

from bench.peers.drivers import kit

procrastinate: Any = importlib.import_module("procrastinate")

CONCURRENCY: Final = 4
PRODUCER_CONNECTIONS: Final = 10

mark = kit.board().mark


def _app(connections: int) -> Any:
    connector = procrastinate.PsycopgConnector(conninfo=kit.url(), min_size=connections, max_size=connections)
    return procrastinate.App(connector=connector)


async def echo(number: int) -> None:
    mark(number)


def install() -> None:
    asyncio.run(_install())


async def _install() -> None:
    async with _app(1).open_async() as app:
        await app.schema_manager.apply_schema_async()


def work() -> None:
    with asyncio.Runner(loop_factory=kit.loop_factory()) as runner:
        runner.run(_work())


async def _work() -> None:
    app = _app(CONCURRENCY + 1)
    app.task(name="echo")(echo)
    async with app.open_async():
        await app.run_worker_async(concurrency=CONCURRENCY)


class Client:
    """Both kinds of connections; the pool of each is opened before anything is measured."""

    async def open(self) -> None:
        app = _app(PRODUCER_CONNECTIONS)
        await app.open_async()
        self._async: Any = app.configure_task("echo")
        connector = procrastinate.SyncPsycopgConnector(
            conninfo=kit.url(), min_size=PRODUCER_CONNECTIONS, max_size=PRODUCER_CONNECTIONS
        )
        sync = procrastinate.App(connector=connector)
        sync.open()
        self._sync: Any = sync.configure_task("echo")

    def submit(self, number: int) -> None:
        self._sync.defer(number=number)

    async def submit_async(self, number: int) -> None:
        await self._async.defer_async(number=number)

    def submit_many(self, numbers: Sequence[int]) -> None:
        self._sync.batch_defer(*({"number": number} for number in numbers))


def producer() -> kit.Producer:
    client = Client()
    return kit.Producer(
        submit=client.submit,
        submit_many=client.submit_many,
        submit_async=client.submit_async,
        opened=client.open,
    )
