"""The simulation's own ground: virtual time, and processes that are killed and paused."""

import asyncio
import contextvars
from collections.abc import AsyncIterator

import pytest

from stoker.testing.loop import Process, SimLoop, Spinning, Stalled


def test_time_jumps_to_the_next_timer() -> None:
    loop = SimLoop()

    async def nap() -> float:
        await asyncio.sleep(3600)
        return loop.time()

    assert loop.run_until_complete(nap()) == 3600
    loop.close()


def test_a_killed_process_runs_nothing_more_and_no_finally() -> None:
    loop = SimLoop()
    seen: list[str] = []

    async def victim() -> None:
        try:
            seen.append("begins")
            await asyncio.sleep(2)
            seen.append("goes on")
        finally:
            if not loop.is_closed():
                seen.append("tidies up")

    async def main() -> None:
        process = Process(loop, "p")
        process.spawn(victim())
        process.call_later(2.0, seen.append, "timer")
        await asyncio.sleep(1)
        process.kill()
        await asyncio.sleep(5)

    loop.run_until_complete(main())
    loop.close()
    assert seen == ["begins"]


def test_a_loop_closes_while_an_async_generator_is_being_ended() -> None:
    loop = SimLoop()

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(10)

    async def reader() -> None:
        async for _ in numbers():
            break  # dropped half-way: asyncio ends the generator in a task of its own
        await asyncio.sleep(10)

    async def main() -> None:
        Process(loop, "p").spawn(reader())
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    loop.close()


def test_what_a_task_starts_belongs_to_its_process() -> None:
    loop = SimLoop()
    seen: list[str] = []

    async def child() -> None:
        await asyncio.sleep(1)
        seen.append("child")

    async def parent() -> None:
        task = asyncio.create_task(child())
        asyncio.get_running_loop().call_later(1, seen.append, "timer")
        await task

    async def main() -> None:
        process = Process(loop, "p")
        process.spawn(parent())
        await asyncio.sleep(0.5)
        process.kill()
        await asyncio.sleep(5)

    loop.run_until_complete(main())
    loop.close()
    assert seen == []


def test_a_paused_process_catches_up_in_order_when_the_last_pause_ends() -> None:
    loop = SimLoop()
    seen: list[tuple[str, float]] = []

    async def main() -> None:
        process = Process(loop, "p")
        for second in (1, 2, 3):
            process.call_later(second, lambda name: seen.append((name, loop.time())), f"timer {second}")
        process.pause()
        process.pause()
        await asyncio.sleep(1.5)
        process.resume()
        await asyncio.sleep(1)
        process.resume()
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    loop.close()
    assert seen == [("timer 1", 2.5), ("timer 2", 2.5), ("timer 3", 3.0)]


def test_a_fuse_burns_after_so_many_callbacks() -> None:
    loop = SimLoop()
    count = 0

    async def busy() -> None:
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0.1)

    async def main() -> None:
        process = Process(loop, "p")
        process.on_fuse = process.kill
        process.spawn(busy())
        await asyncio.sleep(1.0)
        before = count
        process.fuse = 7
        await asyncio.sleep(60)
        assert before < count < before + 7

    loop.run_until_complete(main())
    loop.close()


def test_the_fuse_of_a_process_that_was_killed_burns_no_more() -> None:
    loop = SimLoop()
    burnt: list[str] = []

    async def sleepy(seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def main() -> None:
        process = Process(loop, "p")
        process.on_fuse = lambda: burnt.append("down")
        for seconds in range(1, 6):
            process.spawn(sleepy(seconds))
        await asyncio.sleep(0.5)
        process.fuse = 2
        process.kill()
        await asyncio.sleep(10)

    loop.run_until_complete(main())
    loop.close()
    assert burnt == []


def test_a_loop_that_spins_is_found_out() -> None:
    loop = SimLoop()

    async def spin() -> None:
        while True:  # noqa: ASYNC110 - that is the mistake
            await asyncio.sleep(0)

    with pytest.raises(Spinning):
        loop.run_until_complete(spin())
    loop.close()


def test_a_loop_with_nothing_left_to_do_is_found_out() -> None:
    loop = SimLoop()

    async def wait() -> None:
        await loop.create_future()

    with pytest.raises(Stalled):
        loop.run_until_complete(wait())
    loop.close()


def test_contexts_are_those_of_asyncio() -> None:
    loop = SimLoop()
    name = contextvars.ContextVar("name", default="outside")

    async def inside() -> str:
        name.set("inside")
        return await asyncio.create_task(look())

    async def look() -> str:
        return name.get()

    async def main() -> str:
        process = Process(loop, "p")
        return str(await process.spawn(inside()))

    assert loop.run_until_complete(main()) == "inside"
    assert name.get() == "outside"
    loop.close()
