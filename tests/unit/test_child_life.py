"""What is around a task in a child process, without the process."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import stoker
from stoker import JobContext, Stoker
from stoker.context import enter_job
from stoker.executors.life import ChildLife


def blocking(job: JobContext, call_next: Callable[[], Any]) -> Any:
    return call_next()


async def waiting(job: JobContext, call_next: Callable[[], Awaitable[Any]]) -> Any:
    return await call_next()


@pytest.mark.parametrize("middleware", [[], [blocking], [waiting], [waiting, blocking], [blocking, waiting]])
def test_a_soft_timeout_reaches_an_async_task_whatever_is_around_it(middleware: list[Any]) -> None:
    app = Stoker()
    for one in middleware:
        app.middleware(one)
    seen: list[str] = []

    @app.task
    async def tidy() -> str:
        try:
            await asyncio.Event().wait()
        except stoker.SoftTimeout:
            seen.append("tidied up")
        return "partly"

    life = ChildLife(app, 1_000)
    run = life.async_runner(tidy, lambda index: False)

    async def main() -> bytes:
        enter_job(JobContext("x", 1, "tidy", 1, 1, 1, "default", None, {}), alone=False)
        async with asyncio.timeout(30):
            return await run(b"null", 0.01)

    assert asyncio.run(main()) == b'"partly"'
    assert seen == ["tidied up"]


@pytest.mark.parametrize(
    ("error", "told"),
    [(ValueError("no"), ["ValueError"]), (stoker.RetryAfter(3), ["RetryAfter"]), (stoker.Snooze(3), [])],
)
def test_a_failure_is_told_and_a_snooze_is_none(error: Exception, told: list[str]) -> None:
    app = Stoker()
    seen: list[str] = []
    app.on_failure(lambda job, error: seen.append(type(error).__name__))

    @app.task
    def work() -> None:
        raise error

    @app.task
    async def work_later() -> None:
        raise error

    life = ChildLife(app, 1_000)
    enter_job(JobContext("x", 1, "work", 1, 1, 1, "default", None, {}))
    with pytest.raises(type(error)):
        life.runner(work, lambda: False)(b"null")
    assert seen == told

    async def main() -> None:
        await life.async_runner(work_later, lambda index: False)(b"null", None)

    with pytest.raises(type(error)):
        asyncio.run(main())
    assert seen == told * 2
