"""Programs that both type checkers must accept, and what they must know about each value. Checked, never run."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, assert_type

import stoker
from stoker import AsyncTask, Batch, JobContext, JobEvent, JobHandle, Stoker, StokerError, Task


@dataclass
class Point:
    x: int
    y: int = 0


tenant: ContextVar[str] = ContextVar("tenant")


@asynccontextmanager
async def lifespan(app: Stoker) -> AsyncGenerator[dict[str, object], None]:
    yield {"pool": 1}


@contextmanager
def blocking_lifespan(app: Stoker) -> Generator[None, None, None]:
    yield


def generator_lifespan(app: Stoker) -> Iterator[dict[str, int]]:
    yield {"a": 1}


app = Stoker("http://127.0.0.1:8080", token="t", lifespan=lifespan, context=[tenant])
Stoker(lifespan=blocking_lifespan)
Stoker(lifespan=generator_lifespan)
app.include(Stoker())


@app.task
def add(x: int, y: int = 1) -> int:
    return x + y


@app.task(queue="geometry", timeout_sec=3, max_attempts=2)
def move(point: Point, /, *by: int, slowly: bool = False) -> Point:
    return point


@app.task
async def fetch(url: str) -> bytes:
    return b""


@app.task(name="fetch.all", priority=0)
async def fetch_all(urls: list[str]) -> list[bytes]:
    return [await fetch(url) for url in urls]


@app.task
def nothing() -> None: ...


@app.middleware
def around(job: JobContext, call_next: Callable[[], Any]) -> Any:
    assert_type(job.attempt, int)
    return call_next()


@app.middleware
async def around_async(job: JobContext, call_next: Callable[[], Awaitable[Any]]) -> Any:
    return await call_next()


@app.on_success
def pleased(job: JobContext, result: Any) -> None: ...


@app.on_failure
async def sorry(job: JobContext, error: BaseException) -> None: ...


def blocking() -> None:
    assert_type(add(1, 2), int)
    assert_type(add.submit(1, y=2), JobHandle[int])
    assert_type(add.submit(1).result(timeout=3), int)
    assert_type(add.options(priority=0).submit(1).result(), int)
    assert_type(add.job("id").result(), int)
    assert_type(move.submit(Point(1), 1, 2, slowly=True).result(), Point)
    assert_type(fetch.submit("u").result(), bytes)
    assert_type(fetch("u"), Coroutine[Any, Any, bytes]).close()
    assert_type(fetch_all.submit(["u"]).result(), list[bytes])
    assert_type(nothing.submit(), JobHandle[None])
    assert_type(add.submit_many([(1, 2), {"x": 1}]), Batch[int])
    assert_type(add.submit_many([]).results(), list[int])
    assert_type(add.submit_many([]).results(return_exceptions=True), list[int | StokerError])
    assert_type(stoker.gather([add.submit(1), add.submit(2)]), list[int])
    assert_type(stoker.gather([add.submit(1)], return_exceptions=True), list[int | StokerError])
    for job in stoker.as_completed([add.submit(1)], timeout=3):
        assert_type(job, JobHandle[int])
    assert_type(app.submit("other", {"a": 1}), JobHandle[Any])
    anything: list[JobHandle[int | bytes]] = [add.submit(1), fetch.submit("u")]
    assert_type(stoker.gather(anything), list[int | bytes])


async def awaiting() -> None:
    job = await add.submit_async(1)
    assert_type(job, JobHandle[int])
    assert_type(await job, int)
    assert_type(await fetch.submit("u"), bytes)
    assert_type(await fetch("u"), bytes)
    assert_type(await job.result_async(timeout=1), int)
    assert_type(await stoker.gather_async([job]), list[int])
    async for ended in stoker.as_completed([job]):
        assert_type(ended, JobHandle[int])
    async for event in job.events():
        assert_type(event, JobEvent)
    async for found in app.jobs(status="failed", type=add):
        assert_type(found, JobHandle[Any])


def scripts() -> None:
    job = add.submit(1)
    assert_type(job.retry().status, str)
    assert_type(job.why().summary, str)
    for event in job.events():
        assert_type(event.at, datetime | None)
    for entry in job.logs(follow=True):
        assert_type(entry.text, str)
    for found in app.jobs(["failed", "cancelled"], created_after=timedelta(hours=2), queue="mail"):
        found.cancel()
    assert_type(app.jobs().count(), int)
    app.queues.pause(app.queues.list()[0].name)
    app.workers.drain(app.workers.list()[0].id)
    assert_type(app.dead_letters.replay(fingerprint="f", limit=1), int)
    assert_type(app.dead_letters.discard("id"), int)


def by_name(task: Task[[int], str], later: AsyncTask[[], bytes]) -> None:
    assert_type(task.submit(1).result(), str)
    assert_type(later.submit().result(), bytes)
