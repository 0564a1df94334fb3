"""pgqueuer, as its guide to performance says: a pool for producers, tuned autovacuum, durable tables (the default)."""

import asyncio
import importlib
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import asyncpg
import msgspec

from bench.peers.script import JOB, Consume, Produce, Started, Submit, main

# Imported by name, because it is an extra: type checks run without it.
pgqueuer: Any = importlib.import_module("pgqueuer")

PROBE: Final = timedelta(seconds=0.2)


async def _open_pool(url: str, connections: int) -> Any:
    return await asyncpg.create_pool(url, min_size=connections, max_size=connections)


class PgQueuerPeer:
    async def install(self, url: str) -> None:
        connection = await asyncpg.connect(url)
        queries = pgqueuer.Queries.from_asyncpg_connection(connection)
        await queries.install()
        await queries.optimize_autovacuum()
        await connection.close()

    @asynccontextmanager
    async def producer(self, order: Produce) -> AsyncIterator[Submit]:
        pool = await _open_pool(order.url, order.connections)
        queries = pgqueuer.Queries.from_asyncpg_pool(pool)

        async def submit(numbers: range) -> None:
            payloads = [_payload(number) for number in numbers]
            if order.batch == 1:
                await queries.enqueue(JOB, payloads[0])
            else:
                await queries.enqueue([JOB] * len(payloads), payloads, [0] * len(payloads))

        yield submit
        await pool.close()

    async def consume(self, order: Consume, started: Started, ready: Callable[[], None]) -> None:
        pool = await _open_pool(order.url, order.connections)
        queue = pgqueuer.PgQueuer.from_asyncpg_pool(pool)

        async def echo(job: Any) -> None:
            if order.starts:
                started(msgspec.json.decode(job.payload)["n"])

        queue.entrypoint(JOB)(echo)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queue.shutdown.set)
        running = asyncio.create_task(queue.run(batch_size=order.at_once))
        await _wait_until_listening(queue, running)
        ready()
        await running


async def _wait_until_listening(queue: Any, running: asyncio.Task[None]) -> None:
    while not running.done():
        try:
            await queue.qm.listener_healthy(PROBE)
            return
        except pgqueuer.errors.FailingListenerError:
            continue


def _payload(number: int) -> bytes:
    return b'{"n":%d}' % number


if __name__ == "__main__":
    main(PgQueuerPeer())
