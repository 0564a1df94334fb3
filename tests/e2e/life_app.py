"""An app with all that can be around a task; tests read its journal."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from stoker import Fail, RetryAfter, Snooze, Stoker, current_job
from stoker.context import JobContext

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
request: ContextVar[Any] = ContextVar("request")


def note(*words: object) -> None:
    with open(os.environ["E2E_JOURNAL"], "a", encoding="utf-8") as journal:
        journal.write(" ".join(map(str, words)) + "\n")


@asynccontextmanager
async def lifespan(app: Stoker) -> AsyncIterator[dict[str, Any]]:
    if "broken" in os.listdir():
        raise ConnectionError("the database is down")
    note("enter outer", os.getpid())
    ticking = asyncio.create_task(asyncio.sleep(3600))
    yield {"pool": "the pool"}
    ticking.cancel()
    note("exit outer", os.getpid())


def inner_lifespan(app: Stoker) -> Iterator[None]:
    app.state.model = "the model"
    note("enter inner", os.getpid())
    yield
    note("exit inner", os.getpid())


app = Stoker(lifespan=lifespan, context=[tenant])
mails = Stoker(lifespan=inner_lifespan, context=[request])
app.include(mails)


@app.middleware
def outer(job: JobContext, call_next: Callable[[], Any]) -> Any:
    note("outer before", job.type)
    try:
        return call_next()
    finally:
        note("outer after", job.type)


@app.middleware
async def second(job: JobContext, call_next: Callable[[], Awaitable[Any]]) -> Any:
    note("second before", job.type)
    value = await call_next()
    await asyncio.sleep(0)
    note("second after", job.type, value)
    return value


@mails.middleware
def third(job: JobContext, call_next: Callable[[], Any]) -> Any:
    note("third", job.type)
    return call_next()


@app.on_success
def pleased(job: JobContext, result: Any) -> None:
    note("success", job.type, result)
    raise RuntimeError("hooks cannot change an outcome")


@app.on_failure
async def sorry(job: JobContext, error: BaseException) -> None:
    await asyncio.sleep(0)
    note("failure", job.type, job.attempt, type(error).__name__)


@app.task
def plain(n: int) -> int:
    return asyncio.run(doubled(n))


async def doubled(n: int) -> int:
    return 2 * n


@app.task
async def later(n: int) -> int:
    await asyncio.sleep(0)
    return n + 1


@mails.task
async def send(to: str) -> dict[str, Any]:
    return {"to": to, "pool": app.state.pool, "model": mails.state.model}


@app.task(max_attempts=2)
def broken(text: str) -> None:
    raise ValueError(text)


def signal() -> None:
    """First snooze, then ask for another attempt, then give up."""
    job = current_job()
    if job.attempt == 2:
        raise Fail("no more")
    first = os.path.join(os.path.dirname(os.environ["E2E_JOURNAL"]), f"snoozed-{job.type}")
    if not os.path.exists(first):
        open(first, "w").close()
        raise Snooze(0.01)
    raise RetryAfter(0.02)


@app.task(max_attempts=4)
def signals() -> None:
    signal()


@app.task(max_attempts=4)
async def async_signals() -> None:
    signal()


@app.task
def unfit() -> list[int]:
    return ["one"]  # type: ignore[list-item]


@app.task
def who() -> dict[str, Any]:
    job = current_job()
    nested = where.submit()
    return {"tenant": tenant.get(), "context": job.context, "nested": nested.id}


@mails.task
def where() -> str:
    return tenant.get() + json.dumps(request.get(None))


@app.task
async def slow() -> None:
    note("slow began")
    await asyncio.sleep(3600)
