import asyncio

from stoker.coordinator.waiters import JobWaiters


def test_those_who_wait_for_a_job_are_woken_in_the_order_in_which_they_came() -> None:
    woken: list[int] = []

    async def wait(waiters: JobWaiters, number: int) -> None:
        with waiters.watch("a") as ended:
            await ended.wait()
            woken.append(number)

    async def main() -> None:
        waiters = JobWaiters()
        async with asyncio.TaskGroup() as tasks:
            for number in range(50):
                tasks.create_task(wait(waiters, number))
            await asyncio.sleep(0)
            waiters.finished(["a"])
        assert len(waiters) == 0

    asyncio.run(main())
    assert woken == list(range(50))
