"""pgqueuer with asyncpg, as its guide to performance says: a pool for producers, tuned autovacuum, durable tables."""

import asyncio
import importlib
import signal
from collections.abc import Sequence
from typing import Any, Final

from bench.peers.drivers import kit

asyncpg: Any = importlib.import_module("asyncpg")
pgqueuer: Any = importlib.import_module("pgqueuer")

BATCH_SIZE: Final = 200
WORKER_CONNECTIONS: Final = 3
PRODUCER_CONNECTIONS: Final = 10

mark = kit.board().mark


async def _pool(connections: int) -> Any:
    return await asyncpg.create_pool(kit.url(), min_size=connections, max_size=connections)


def install() -> None:
    asyncio.run(_install())


async def _install() -> None:
    connection = await asyncpg.connect(kit.url())
    queries = pgqueuer.Queries.from_asyncpg_connection(connection)
    await queries.install()
    await queries.optimize_autovacuum()
    await connection.close()


def work() -> None:
    with asyncio.Runner(loop_factory=kit.loop_factory()) as runner:
        runner.run(_work())


async def _work() -> None:
    queue = pgqueuer.PgQueuer.from_asyncpg_pool(await _pool(WORKER_CONNECTIONS))

    async def echo(job: Any) -> None:
        mark(int(job.payload))

    queue.entrypoint("echo")(echo)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queue.shutdown.set)
    await queue.run(batch_size=BATCH_SIZE)


class Client:
    async def open(self) -> None:
        self._queries: Any = pgqueuer.Queries.from_asyncpg_pool(await _pool(PRODUCER_CONNECTIONS))

    async def submit(self, number: int) -> None:
        await self._queries.enqueue("echo", b"%d" % number)

    async def submit_many(self, numbers: Sequence[int]) -> None:
        payloads = [b"%d" % number for number in numbers]
        await self._queries.enqueue(["echo"] * len(payloads), payloads, [0] * len(payloads))


def producer() -> kit.Producer:
    client = Client()
    return kit.Producer(submit_async=client.submit, submit_many_async=client.submit_many, opened=client.open)
