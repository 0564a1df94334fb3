"""Waiting on conditions instead of sleeping."""

import asyncio
from collections.abc import Callable

ENOUGH = 10_000


async def until(true: Callable[[], bool]) -> None:
    """Let the loop turn until the condition holds; fail when it plainly never will."""
    for _ in range(ENOUGH):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never came true")


async def turns(count: int = 20) -> None:
    """Let everything that is ready run, to see that nothing happens."""
    for _ in range(count):
        await asyncio.sleep(0)
