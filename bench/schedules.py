"""10,000 schedules that are due in the same minute: how long until all their jobs are inserted, and what a `POST /jobs`
beside them waits, against the same without them.

    python -m bench.schedules --schedules 10000 [--postgres]
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from tests.e2e.conftest import STORES
from tests.e2e.system import System

CONNECTIONS = 32
SAMPLE = 500
"""So many schedules are made first, to know how long all of them will take on this machine."""


async def put_all(client: httpx.AsyncClient, count: int, at: datetime) -> None:
    cron = f"{at.minute} {at.hour} * * *"
    names = iter(range(count))

    async def some() -> None:
        for number in names:
            body = {"cron": cron, "job": {"type": "echo", "payload": number}}
            (await client.put(f"/schedules/s{number:05}", json=body)).raise_for_status()

    await asyncio.gather(*(some() for _ in range(CONNECTIONS)))


async def posts(client: httpx.AsyncClient, until: float) -> list[float]:
    """How long single submissions take, about a hundred a second."""
    found: list[float] = []
    while time.monotonic() < until:
        began = time.monotonic()
        (await client.post("/jobs", json={"type": "echo", "queue": "beside"})).raise_for_status()
        found.append(time.monotonic() - began)
        await asyncio.sleep(0.01)
    return found


async def inserted(client: httpx.AsyncClient) -> int:
    queues = (await client.get("/queues")).json()["queues"]
    return sum(row["queued"] for row in queues if row["name"] == "default")


async def measure(url: str, count: int) -> str:
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        began = time.monotonic()
        sample = min(count, SAMPLE)
        await put_all(client, sample, datetime.now(UTC) - timedelta(hours=1))  # set again below
        expected = (time.monotonic() - began) * count / sample
        at = (datetime.now(UTC) + timedelta(seconds=75 + 1.5 * expected)).replace(second=0, microsecond=0)
        began = time.monotonic()
        await put_all(client, count, at)
        took = time.monotonic() - began
        quiet = await posts(client, time.monotonic() + 5)
        wait = (at - datetime.now(UTC)).total_seconds()
        if wait < 0:
            return f"making {count} schedules took {took:.1f} s, which was too long; take fewer"
        await asyncio.sleep(wait)
        beside = asyncio.create_task(posts(client, time.monotonic() + 12))
        began = time.monotonic()
        while await inserted(client) < count and time.monotonic() - began < 60:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        seconds = time.monotonic() - began
        busy = (await beside)[: max(1, int(seconds * 80))]
        p99 = [statistics.quantiles(values, n=100)[98] * 1000 for values in (quiet, busy)]
        return (
            f"{count} schedules made in {took:.1f} s; {await inserted(client)} jobs inserted {seconds:.1f} s after; "
            f"POST /jobs p99 {p99[0]:.1f} ms quiet, {p99[1]:.1f} ms beside them ({p99[1] / p99[0]:.1f} times)"
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--schedules", type=int, default=10_000)
    options.add_argument("--postgres", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as name:
        folder = Path(name)
        with System(folder, STORES["postgres" if given.postgres else "sqlite"](folder)) as system:
            print(asyncio.run(measure(system.serve().url, given.schedules)))


if __name__ == "__main__":
    main()
