"""The application: a set of tasks, and the way to the server.

    from stoker import Stoker

    app = Stoker()

    @app.task
    def add(x: int, y: int) -> int:
        return x + y

    add.submit(2, 3).result(timeout=10)  # 5, computed by a worker: stoker worker --app module:app

Making a `Stoker` reads no settings and opens nothing, so a module that defines tasks can be imported anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, overload

from stoker.client.errors import ArgumentError, TaskError
from stoker.client.job import JobHandle
from stoker.client.options import changed_options, task_options
from stoker.client.requests import JobInfo, Request, SubmitFields, SubmitOptions, TaskDefaults, submit
from stoker.client.task import Task
from stoker.domain import json_text
from stoker.domain.json_values import to_json

if TYPE_CHECKING:
    from stoker.client.transport import Transport

P = ParamSpec("P")
R = TypeVar("R")


class Stoker:
    """Tasks by name, and a client for submitting them.

    `url` and `token` default to STOKER_API_URL (or API_URL) and STOKER_TOKEN, read when first needed.
    """

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        self._url = url
        self._token = token
        self.tasks: dict[str, Task[..., Any]] = {}

    @cached_property
    def transport(self) -> Transport:
        """The connection to the server, made on first use."""
        from stoker.client.transport import Transport

        return Transport(self._url, self._token)

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self, *, name: str | None = None, **defaults: Unpack[TaskDefaults]
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(  # type: ignore[misc]  # mypy does not match an unpacked TypedDict with the same one here
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        **defaults: Unpack[TaskDefaults],
    ) -> Any:
        """Make a function, sync or async, a task: `@app.task`, or `@app.task(name=..., queue=..., ...)`.

        The task's name, which is the `type` of its jobs, is the function's name unless given. The other options
        are defaults for its jobs, also for those that are submitted elsewhere and leave them out: queue, priority,
        timeout_sec, max_attempts, thread_demand, memory_mb, on_oversize, labels, metadata.
        """
        options = task_options(defaults)
        if function is not None and not callable(function):
            raise TaskError(f"@app.task({function!r}) is no function; to give a name: @app.task(name='...')")

        def decorate(function: Callable[P, R]) -> Task[P, R]:
            chosen = name or str(getattr(function, "__name__", ""))
            return self._add(Task(self, function, chosen, options))

        return decorate if function is None else decorate(function)

    def submit(self, type_name: str, payload: Any = None, **options: Unpack[SubmitFields]) -> JobHandle:
        """Submit a job of any type, such as one that another program's workers serve."""
        info: JobInfo = self.transport.send(_submission(type_name, payload, options))
        return self._handle(info)

    async def submit_async(
        self, type_name: str, payload: Any = None, **options: Unpack[SubmitFields]
    ) -> JobHandle:
        """The same, without blocking the loop."""
        return self._handle(await self.transport.send_async(_submission(type_name, payload, options)))

    def job(self, job_id: str) -> JobHandle:
        """A handle for a job that was submitted earlier. Asks nothing yet."""
        return JobHandle(self.transport, job_id, typed=self._typed)

    def _handle(self, info: JobInfo) -> JobHandle:
        return JobHandle(self.transport, info.id, info, typed=self._typed)

    def _typed(self, job: JobInfo) -> Any:
        """The result of a completed job, as the type that its task says it returns; as JSON has it for others' types."""
        task = self.tasks.get(job.type)
        return job.result if task is None else task.result_of(job)

    def close(self) -> None:
        """Close connections; the next call opens new ones."""
        self.transport.close()

    async def aclose(self) -> None:
        """Close connections, those of the running event loop included."""
        await self.transport.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _add(self, task: Task[P, R]) -> Task[P, R]:
        if task.name in self.tasks:
            raise TaskError(
                f"there are two tasks named {task.name!r}; give one of them another: @app.task(name='...')"
            )
        self.tasks[task.name] = task
        return task


def _submission(type_name: str, payload: Any, options: SubmitFields) -> Request:
    try:
        encoded = json_text.encode(payload, to_json)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ArgumentError(f"the payload cannot be sent as JSON: {error}", "payload") from None
    return submit(type_name, encoded, changed_options(SubmitOptions(), options, "app.submit"))
