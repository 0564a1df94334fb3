"""A soft timeout raises `SoftTimeout` in the task, wherever it is, and leaves it time to tidy up."""

import asyncio
import time

import pytest

from stoker import SoftTimeout
from stoker.executors.async_soft_limit import SoftlyLimited
from stoker.executors.soft_limit import soft_limit


def test_a_sync_task_is_interrupted_while_it_waits() -> None:
    tidied: list[bool] = []

    def task() -> None:
        try:
            time.sleep(10)
        finally:
            tidied.append(True)

    with pytest.raises(SoftTimeout, match=r"0\.02 s"), soft_limit(0.02):
        task()
    assert tidied


def test_a_sync_task_that_ends_in_time_is_left_alone() -> None:
    with soft_limit(0.02):
        pass
    with soft_limit(None):
        time.sleep(0.03)  # the timer of the block before would ring in here


async def test_an_async_task_sees_the_soft_timeout_where_it_awaits() -> None:
    seen: list[str] = []

    async def task() -> str:
        try:
            await asyncio.Event().wait()
        except SoftTimeout:
            await asyncio.sleep(0)
            seen.append("tidied")
        return "partial"

    assert await SoftlyLimited(task(), 0.01) == "partial"
    assert seen == ["tidied"]


async def test_an_async_task_that_does_not_catch_it_fails_with_it() -> None:
    async def task() -> None:
        await asyncio.gather(asyncio.Event().wait(), asyncio.Event().wait())

    with pytest.raises(SoftTimeout):
        await SoftlyLimited(task(), 0.01)


async def test_a_cancel_stays_a_cancel() -> None:
    async def task() -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        await SoftlyLimited(task(), 60)

    running = asyncio.create_task(run())
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_an_async_task_that_ends_in_time_gives_its_result() -> None:
    async def task() -> int:
        await asyncio.sleep(0)
        return 7

    assert await SoftlyLimited(task(), 60) == 7
