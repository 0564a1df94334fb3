"""The tasks that `bench.urgent` sends amid a flood."""

import asyncio
import time

from stoker import Stoker

app = Stoker()


@app.task
def first_seen(seconds: float) -> None:
    """Nothing is known of its run time until it has run."""
    time.sleep(seconds)


@app.task
def known_slow(seconds: float) -> None:
    """Known to take longer than what is given to a worker ahead of time."""
    time.sleep(seconds)


@app.task
def known_short(seconds: float) -> None:
    time.sleep(seconds)


@app.task
async def side_by_side(seconds: float) -> None:
    await asyncio.sleep(seconds)
