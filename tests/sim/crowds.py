"""What clients do together in the quiet phase, when the order in which jobs run can be judged."""

import asyncio
from typing import Final

from tests.checkers.invariants import FINAL
from tests.sim.clients import Client, Order
from tests.sim.machine import Deed

FLOOD: Final = 120
TOO_MANY_THREADS: Final = 9


def flood(client: Client, worker: str) -> None:
    """Many short jobs for one worker, and in the middle of them urgent ones that need a free thread."""
    client.start(_flood(client, worker))


async def _flood(client: Client, worker: str) -> None:
    labels = {"host": worker}
    orders = [
        Order(Deed(f"blink-{n}", 0.01), "blink", f"key-blink-{n}", priority=2, labels=labels)
        for n in range(FLOOD)
    ]
    await client.submit(orders)
    await until_over(client, orders[FLOOD // 10])
    for n in range(2):
        urgent = Deed(f"urgent-{n}", 0.05)
        await client.submit([Order(urgent, "work", f"key-urgent-{n}", priority=0, labels=labels)])


async def oversize(client: Client) -> None:
    """A job that waits for a worker which never comes, and one that runs on one thread instead; the first is cancelled
    when the second is over."""
    waits = Order(
        Deed("waits", 0.1),
        key="key-waits",
        thread_demand=TOO_MANY_THREADS,
        priority=0,
        on_oversize="wait",
    )
    degrades = Order(Deed("degrades", 0.1), key="key-degrades", thread_demand=TOO_MANY_THREADS, priority=1)
    await client.submit([waits])
    await client.submit([degrades])
    await until_over(client, degrades)
    await client.cancel(id_of(client, waits))


async def until_over(client: Client, order: Order) -> None:
    """Wait until a job is final, however often the answer is lost."""
    while True:
        if await client.wait(id_of(client, order), 8.0) in FINAL:
            return
        await asyncio.sleep(0.5)


def id_of(client: Client, order: Order) -> str:
    """The id under which a job was accepted."""
    return next(
        id
        for op in client.world.ops
        if op.what == "submit" and op.answer == "ok"
        for item, id in zip(op.items, op.jobs, strict=True)
        if item.marker == order.deed.marker
    )
