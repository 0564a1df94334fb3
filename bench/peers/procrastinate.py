"""Procrastinate with its psycopg connector, for submitting and for working."""

import asyncio
import importlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from bench.peers.script import JOB, Consume, Produce, Started, Submit, main

# Imported by name, because it is an extra: type checks run without it.
procrastinate: Any = importlib.import_module("procrastinate")

LISTENERS: Final = """
    SELECT count(*) AS listeners FROM pg_stat_activity
    WHERE application_name = %(name)s AND query LIKE 'LISTEN %%'
"""


def _app(url: str, connections: int, name: str = "") -> Any:
    connector = procrastinate.PsycopgConnector(
        conninfo=url, min_size=connections, max_size=connections, kwargs={"application_name": name}
    )
    return procrastinate.App(connector=connector)


class ProcrastinatePeer:
    async def install(self, url: str) -> None:
        async with _app(url, 1).open_async() as app:
            await app.schema_manager.apply_schema_async()

    @asynccontextmanager
    async def producer(self, order: Produce) -> AsyncIterator[Submit]:
        async with _app(order.url, order.connections).open_async() as app:
            echo = app.configure_task(JOB)

            async def submit(numbers: range) -> None:
                if order.batch == 1:
                    await echo.defer_async(n=numbers[0])
                else:
                    await echo.batch_defer_async(*({"n": number} for number in numbers))

            yield submit

    async def consume(self, order: Consume, started: Started, ready: Callable[[], None]) -> None:
        name = f"consumer-{os.getpid()}"
        async with _app(order.url, order.connections, name).open_async() as app:

            async def echo(n: int) -> None:
                if order.starts:
                    started(n)

            app.task(name=JOB)(echo)
            running = asyncio.create_task(app.run_worker_async(concurrency=order.at_once))
            await _wait_until_listening(app, running, name)
            ready()
            await running


async def _wait_until_listening(app: Any, running: asyncio.Task[None], name: str) -> None:
    while not running.done():
        row = await app.connector.execute_query_one_async(LISTENERS, name=name)
        if row["listeners"]:
            return
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    main(ProcrastinatePeer())
